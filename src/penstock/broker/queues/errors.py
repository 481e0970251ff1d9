"""What queues refuse."""

from __future__ import annotations

from penstock.errors import PenstockError


class NotHeldError(PenstockError):
    """Somebody speaks of positions that it does not hold, or no longer."""
