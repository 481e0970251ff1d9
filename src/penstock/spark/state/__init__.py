"""State by key for streaming queries: sorted runs of Arrow rows, versioned by batch."""

from penstock.spark.state.keyed import keyed

__all__ = ["keyed"]
