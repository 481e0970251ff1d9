"""A clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """Implements penstock.clock.Clock.

    Args:
        wall_ms: where the wall clock starts; 2023-11-14T22:13:20Z unless given.
    """

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._wall_ms

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._monotonic_ms / 1000

    def advance(self, seconds: float) -> None:
        """Let time pass: both clocks move."""
        # Whole milliseconds, so that many small steps add up exactly.
        passed = round(seconds * 1000)
        assert passed >= 0, "time does not go back; jump_wall() does"
        self._wall_ms += passed
        self._monotonic_ms += passed

    def jump_wall(self, milliseconds: int) -> None:
        """Set the wall clock forward or back, as an administrator or NTP would; no time passes."""
        self._wall_ms += milliseconds
