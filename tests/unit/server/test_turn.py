"""What is put off runs at the end of a turn, once, whoever asked for it and whatever fails."""

from __future__ import annotations

from collections.abc import Callable

from penstock.server.turn import Turn


def test_inside_a_turn_work_waits_for_its_end() -> None:
    scheduled: list[Callable[[], None]] = []
    done: list[str] = []
    turn = Turn(scheduled.append)
    turn.enter()
    turn.soon(lambda: done.append("a"))
    turn.soon(lambda: turn.soon(lambda: done.append("b")))
    assert not done
    turn.leave()
    assert (done, scheduled) == (["a", "b"], [])


def test_outside_a_turn_the_loop_is_asked_once() -> None:
    scheduled: list[Callable[[], None]] = []
    done: list[str] = []
    turn = Turn(scheduled.append)
    turn.soon(lambda: done.append("a"))
    turn.soon(lambda: done.append("b"))
    assert len(scheduled) == 1
    scheduled.pop()()
    assert done == ["a", "b"]
    turn.soon(lambda: done.append("c"))
    assert len(scheduled) == 1


def test_a_failure_costs_the_others_nothing() -> None:
    done: list[str] = []
    turn = Turn(lambda _: None)
    turn.enter()
    turn.soon(lambda: done.remove("never there"))
    turn.soon(lambda: done.append("a"))
    turn.leave()
    assert done == ["a"]
