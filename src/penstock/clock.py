"""Time, passed in: production uses SystemClock, tests a clock they move by hand.

This module may run compiled (setup.py), with the C types that stand in clock.pxd.
"""

from __future__ import annotations

import time
from typing import Protocol

import cython

if cython.compiled:
    from cython.cimports.posix.time import CLOCK_REALTIME, clock_gettime, timespec


class Clock(Protocol):
    """The two kinds of time the broker needs."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; for record timestamps and retention, may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; for timeouts and intervals."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        if cython.compiled:
            now = cython.declare(timespec)
            clock_gettime(CLOCK_REALTIME, cython.address(now))
            ms: int = cython.cast(cython.longlong, now.tv_sec) * 1000 + now.tv_nsec // 1_000_000
            return ms
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()
