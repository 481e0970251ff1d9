"""Timers, passed in: the server's loop in production, a list that tests work off by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """Something that can be called off."""

    def cancel(self) -> None:
        """Do not call."""
        ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class NoTimers:
    """For a broker that only looks at its data: nothing is ever late."""

    def __call__(self, seconds: float, call: Callable[[], None]) -> NoTimers:
        """Forget it."""
        return self

    def cancel(self) -> None:
        """Nothing to call off."""


class Alarm:
    """One timer at a time: setting it anew calls the earlier one off."""

    __slots__ = ("_call_later", "_timer")

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._timer: Timer | None = None

    @property
    def is_set(self) -> bool:
        """Whether it will go off."""
        return self._timer is not None

    def set(self, seconds: float, action: Callable[[], None]) -> None:
        """Act later."""
        self.cancel()

        def go_off() -> None:
            self._timer = None
            action()

        self._timer = self._call_later(seconds, go_off)

    def cancel(self) -> None:
        """Do not act."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
