"""The budget of large frames: first come, first served, and nobody is forgotten."""

from __future__ import annotations

from penstock.server.memory import FrameMemory


class Waiter:
    """Somebody who wants memory."""

    def __init__(self) -> None:
        self.got: list[int] = []

    def found(self, size: int) -> None:
        self.got.append(size)


def test_what_is_free_is_given_at_once() -> None:
    memory, waiter = FrameMemory(10), Waiter()
    assert memory.take(4, waiter.found)
    assert memory.take(6, Waiter().found)
    assert waiter.got == []


def test_who_does_not_fit_waits_until_it_does() -> None:
    memory, waiter = FrameMemory(10), Waiter()
    assert memory.take(6, Waiter().found)
    assert not memory.take(5, waiter.found)
    assert waiter.got == []
    memory.give_back(6)
    assert waiter.got == [5]
    assert not memory.take(6, Waiter().found), "the five are taken"


def test_the_order_is_that_of_arrival() -> None:
    memory = FrameMemory(10)
    large, small, late = Waiter(), Waiter(), Waiter()
    assert memory.take(6, Waiter().found)
    assert not memory.take(8, large.found)
    assert not memory.take(1, small.found), "it would fit, but somebody came before"
    memory.give_back(6)
    assert (large.got, small.got) == ([8], [1])
    assert memory.take(1, late.found)


def test_one_return_can_serve_several() -> None:
    memory, waiters = FrameMemory(10), [Waiter() for _ in range(4)]
    assert memory.take(10, Waiter().found)
    for waiter in waiters:
        assert not memory.take(3, waiter.found)
    memory.give_back(10)
    assert [waiter.got for waiter in waiters] == [[3], [3], [3], []]


def test_asking_twice_is_waiting_once() -> None:
    memory, waiter = FrameMemory(10), Waiter()
    assert memory.take(10, Waiter().found)
    assert not memory.take(3, waiter.found)
    assert not memory.take(3, waiter.found)
    memory.give_back(10)
    assert waiter.got == [3]


def test_who_is_forgotten_gets_nothing() -> None:
    memory, waiter, other = FrameMemory(10), Waiter(), Waiter()
    assert memory.take(10, Waiter().found)
    assert not memory.take(3, waiter.found)
    assert not memory.take(4, other.found)
    memory.forget(waiter.found)
    memory.give_back(10)
    assert (waiter.got, other.got) == ([], [4])


def test_those_behind_the_forgotten_need_not_wait_for_the_next_return() -> None:
    memory, large, small = FrameMemory(10), Waiter(), Waiter()
    assert memory.take(4, Waiter().found)
    assert not memory.take(9, large.found)
    assert not memory.take(5, small.found)
    memory.forget(large.found)
    assert small.got == [5]


def test_the_forgotten_may_come_again() -> None:
    memory, waiter = FrameMemory(10), Waiter()
    assert memory.take(10, Waiter().found)
    assert not memory.take(3, waiter.found)
    memory.forget(waiter.found)
    assert not memory.take(2, waiter.found)
    memory.give_back(10)
    assert waiter.got == [2]
