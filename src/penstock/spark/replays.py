"""What a sink does when a batch comes again, by the last batch that it has a marker of."""

from __future__ import annotations

from penstock.errors import ConflictError


def was_written(done: int | None, batch_id: int, operation: str) -> bool:
    """Whether a batch has been written before.

    Raises:
        ConflictError: a later one has been: the checkpoint is older than what the sink holds.
    """
    if done is not None and done > batch_id:
        cause = f"batch {done} has been written, and this is batch {batch_id}: it went back"
        remedy = "start with a new checkpoint, or with the newest copy of this one"
        raise ConflictError(operation, cause, remedy)
    return done == batch_id
