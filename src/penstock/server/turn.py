"""Work that is put off to the end of what the loop is doing right now: answers, readers to wake.

Whoever brings news from outside (bytes from a socket, the end of a sync) enters, hands the news on, and
leaves; what was put off meanwhile runs then, each piece once for all that happened. The loop's own
`call_soon` would do it too, but takes another look at every socket before each step.

This module may run compiled (setup.py), with the C types that stand in turn.pxd.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Turn:
    """One for all connections. call_soon is the loop's, for work that comes from elsewhere."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._work: list[Callable[[], None]] = []
        self._inside = False
        self._scheduled = False

    def soon(self, work: Callable[[], None]) -> None:
        """Call work at the end of this turn."""
        self._work.append(work)
        if not (self._inside or self._scheduled):
            self._scheduled = True
            self._call_soon(self.leave)

    def enter(self) -> None:
        """News comes: what is put off from now on waits for `leave`."""
        self._inside = True

    def leave(self) -> None:
        """The news has been handed on: do what was put off, and what that puts off."""
        self._inside = True
        self._scheduled = False
        while self._work:
            work, self._work = self._work, []
            for call in work:
                try:
                    call()
                except Exception:
                    _log.exception("something that was put off failed")
        self._inside = False
