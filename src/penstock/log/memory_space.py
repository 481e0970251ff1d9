"""Counts what topics of durability `memory` hold, so that they cannot take all memory of the machine.

Partitions say what they take and give back; that is one addition for a batch. Beyond the bound appends
to these topics are refused, as a full disk refuses them for the others. Nothing has to be opened again:
the next append after something was given back passes.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from penstock.clock import Clock
from penstock.errors import MemoryFullError
from penstock.limits import MEMORY_LOOK_SECONDS

_log = logging.getLogger(__name__)


class MemorySpace:
    """Says whether topics in memory may take more. Used on the loop only."""

    def __init__(self, clock: Clock, bytes_max: int = sys.maxsize) -> None:
        self._bytes_max = bytes_max
        self._clock = clock
        self._looked_at = float("-inf")
        self._refusing = False
        self.held_bytes = 0
        """Bytes of all batches in memory."""
        self.make_room: Callable[[], None] = lambda: None
        """Asked, a few times a second at most, before an append is refused."""

    def check(self, size: int) -> None:
        """Pass if size more bytes may be held, or raise MemoryFullError."""
        if self.held_bytes + size <= self._bytes_max:
            return
        now = self._clock.monotonic()
        if now - self._looked_at >= MEMORY_LOOK_SECONDS:
            self._looked_at = now
            self.make_room()
        if self.held_bytes + size > self._bytes_max:
            self._note_refusal()
            raise self._error()

    def take(self, size: int) -> None:
        """So many bytes more are held."""
        self.held_bytes += size

    def give_back(self, size: int) -> None:
        """So many bytes are no longer held."""
        self.held_bytes -= size
        assert self.held_bytes >= 0
        if self._refusing and size:
            self._refusing = False
            _log.warning("topics in memory hold less again: writes to them are accepted")

    def _note_refusal(self) -> None:
        if not self._refusing:
            self._refusing = True
            _log.warning(
                "topics in memory hold %d of %d bytes: writes to them are refused, all else goes on",
                self.held_bytes,
                self._bytes_max,
            )

    def _error(self) -> MemoryFullError:
        return MemoryFullError(
            "append",
            f"topics of durability memory may hold {self._bytes_max} bytes together, "
            f"and hold {self.held_bytes}",
            "make room with `penstock topics trim`, a shorter retention.ms or a smaller "
            "retention.bytes, and writes go on by themselves; or serve with a larger --memory-topics",
        )
