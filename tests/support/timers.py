"""Timers that go off when a test moves the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.testing.clock import ManualClock


@dataclass(eq=False)
class ManualTimer:
    due: float
    call: Callable[[], None]
    timers: ManualTimers

    def cancel(self) -> None:
        if self in self.timers.waiting:
            self.timers.waiting.remove(self)


class ManualTimers:
    """A `call_later` over a clock that stands still."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.waiting: list[ManualTimer] = []

    def __call__(self, seconds: float, call: Callable[[], None]) -> ManualTimer:
        assert seconds >= 0
        timer = ManualTimer(self.clock.monotonic() + seconds, call, self)
        self.waiting.append(timer)
        return timer

    def advance(self, seconds: float = 0.0) -> None:
        """Let time pass, and every timer go off in its turn."""
        end = self.clock.monotonic() + seconds
        while due := [timer for timer in self.waiting if timer.due <= end + 1e-9]:
            first = min(due, key=lambda timer: timer.due)
            self.clock.advance(max(0.0, first.due - self.clock.monotonic()))
            self.waiting.remove(first)
            first.call()
        self.clock.advance(max(0.0, end - self.clock.monotonic()))
