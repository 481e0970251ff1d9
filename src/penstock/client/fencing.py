"""What a producer is told when another one has taken its name over."""

from __future__ import annotations

from typing import Final

from penstock.client.connection import error_of_code
from penstock.errors import ConflictError

# INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED
_FENCED: Final = frozenset({47, 49, 90})


class FencedError(ConflictError):
    """Another has taken the name over; this one can do no more."""


def check(operation: str, code: int, message: str | None = None) -> None:
    """Pass if all went well.

    Raises:
        FencedError: another has taken over.
        PenstockError: whatever else the code stands for.
    """
    if code in _FENCED:
        cause = "another has taken the name over"
        raise FencedError(operation, cause, "let one at a time use it, and start anew")
    if code:
        raise error_of_code(operation, code, message)
