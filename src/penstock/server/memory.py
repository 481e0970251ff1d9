"""The memory that large frames share: first come, first served, and never more than the budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.limits import LARGE_FRAME_BYTES_TOTAL

Found = Callable[[int], None]


class FrameMemory:
    """A budget with a queue."""

    def __init__(self, total: int = LARGE_FRAME_BYTES_TOTAL) -> None:
        self._free = total
        self._waiting: deque[tuple[int, Found]] = deque()

    def take(self, size: int, found: Found) -> bool:
        """Take size bytes now; or queue, and found(size) is called when they have been taken."""
        if any(other == found for _, other in self._waiting):
            return False
        if not self._waiting and size <= self._free:
            self._free -= size
            return True
        self._waiting.append((size, found))
        return False

    def give_back(self, size: int) -> None:
        """Return what was taken; those who wait get it in their order."""
        self._free += size
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            wanted, found = self._waiting.popleft()
            self._free -= wanted
            found(wanted)

    def forget(self, found: Found) -> None:
        """Somebody no longer waits."""
        if self._waiting:
            self._waiting = deque(entry for entry in self._waiting if entry[1] != found)
            self._serve()  # those behind may want less
