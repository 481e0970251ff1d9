"""The clock that tests move."""

from __future__ import annotations

import pytest

from penstock.clock import Clock
from penstock.testing.clock import ManualClock


def test_stands_still_until_it_is_moved() -> None:
    clock: Clock = ManualClock(5_000)
    assert (clock.wall_ms(), clock.monotonic()) == (5_000, 0.0)
    assert (clock.wall_ms(), clock.monotonic()) == (5_000, 0.0)


def test_advancing_moves_both() -> None:
    clock = ManualClock(5_000)
    for _ in range(10):
        clock.advance(0.1)
    assert (clock.wall_ms(), clock.monotonic()) == (6_000, 1.0)


def test_the_wall_clock_jumps_alone() -> None:
    clock = ManualClock(5_000)
    clock.jump_wall(-4_000)
    assert (clock.wall_ms(), clock.monotonic()) == (1_000, 0.0)


def test_time_does_not_go_back() -> None:
    with pytest.raises(AssertionError):
        ManualClock().advance(-1)
