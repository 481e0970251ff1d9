"""What a sink does when a batch comes again, by the last batch that it has a marker of.

The plan of a batch is kept before any sink is written to (checkpoints.py). A sink that has the batch
although its plan was not kept has it from another life of the query: the checkpoint is an old copy.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from penstock.errors import ConflictError

_GONE_BACK: Final = "start with a new checkpoint, or with the newest copy of this one"
# Which sinks have looked for their marker, in a batch that was never planned before.
_looked: ContextVar[set[str] | None] = ContextVar("looked", default=None)


def begin_batch(*, ran_before: bool) -> None:
    """Say of the batch that the sinks of this thread get next whether it was planned before."""
    _looked.set(None if ran_before else set())


def was_written(done: int | None, batch_id: int, operation: str) -> bool:
    """Whether a batch has been written before.

    Raises:
        ConflictError: it or a later one has been in another life of the query, which went back.
    """
    if done is not None and done > batch_id:
        cause = f"batch {done} has been written, and this is batch {batch_id}: it went back"
        raise ConflictError(operation, cause, _GONE_BACK)
    looked = _looked.get()
    first = looked is not None and operation not in looked
    if looked is not None:
        looked.add(operation)  # who looks again may find what it has written itself
    if done == batch_id and first:
        cause = f"batch {batch_id} has been written, and its plan is not in the checkpoint"
        raise ConflictError(operation, cause, _GONE_BACK)
    return done == batch_id
