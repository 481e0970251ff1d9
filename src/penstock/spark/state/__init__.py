"""State by key for streaming queries: sorted runs of Arrow rows, versioned by batch."""

from penstock.spark.state.keyed import keyed
from penstock.spark.state.reading import read_state
from penstock.spark.state.savepoints import savepoint

__all__ = ["keyed", "read_state", "savepoint"]
