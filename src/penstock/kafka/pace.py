"""Requests that take long, in pieces: whoever else asks waits for one piece at the most.

One loop does everything, so that a request with a hundred thousand names would keep everybody waiting
for seconds. Handlers that go over what a request or the broker can have many of are coroutines, and do
so with `each`, which lets others go first once a piece has taken its time. Large messages are decoded
and encoded on a thread, which shares the interpreter but touches no state. Requests that come in large
frames are taken one after the other: decoded, each is a hundred times its size in memory.

A client's next request waits until the handler of the one before has ended, as if it had not taken long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.clock import Clock
from penstock.limits import PIECE_SECONDS_MAX
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.kafka.call import Call

Made = Message | Coroutine[Any, Any, Message | None] | None
"""What a handler returns: an answer, work that leads to one, or nothing if it answers by itself."""

_T = TypeVar("_T")


class _Later:
    """Awaited by work that lets others go first."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_LATER = _Later()


class Cold:
    """Awaited by work that goes on when a thread has brought something from the disk."""

    def __init__(self, job: Callable[[], None]) -> None:
        self._job = job

    def __await__(self) -> Generator[Callable[[], None], None, None]:
        yield self._job


class _Work:
    """A handler that has not ended, or the making of an answer."""

    def __init__(self, call: Call, work: Coroutine[Any, Any, Message | None]) -> None:
        self.call = call
        self._work = work
        self.needs: Callable[[], None] | None = None
        self.done: Callable[[], None] | None = None

    def step(self) -> bool:
        """Go on until others must go first, or answer; whether it has ended."""
        try:
            self.needs = self._work.send(None)
        except StopIteration as end:
            if end.value is not None:
                self.call.reply(end.value)
            return True
        return False


class LargeRequest:
    """A request in a large frame, which its connection keeps where it is until the handler has ended."""

    def __init__(
        self, call: Call, decode: Callable[[], Any], handle: Callable[[Any], Made]
    ) -> None:
        self.call = call
        self._decode = decode
        self.handle = handle
        self.message: Any = None
        self.error: Exception | None = None
        self.abandoned = False

    def decode(self) -> None:
        """On the thread."""
        try:
            self.message = self._decode()
        except Exception as error:
            self.error = error

    def abandon(self) -> None:
        """The client has gone before the handler began."""
        self.abandoned = True


class Pace:
    """One for all connections.

    Args:
        clock: time.
        next_turn: calls after the loop has looked at everybody else.
        apart: runs the first on a thread, then the second on the loop; one after the other.
    """

    def __init__(
        self,
        clock: Clock,
        next_turn: Callable[[Callable[[], None]], object],
        apart: Callable[[Callable[[], None], Callable[[], None]], None],
    ) -> None:
        self._clock = clock
        self._next_turn = next_turn
        self.apart = apart
        self._until = 0.0
        self._works: deque[_Work] = deque()
        self._large: deque[LargeRequest] = deque()
        self._large_taken: LargeRequest | None = None

    async def each(self, items: Iterable[_T]) -> AsyncIterator[_T]:
        """The items; others go first where a piece has taken its time.

        What belongs to the broker may change meanwhile, so that it is to be given as a list.
        """
        monotonic = self._clock.monotonic
        for item in items:
            yield item
            if monotonic() >= self._until:
                await _LATER

    # -- handlers

    def handled(self, call: Call, made: Made) -> None:
        """Answer with what a handler has made, or let it go on later; its client waits so long."""
        if isinstance(made, CoroutineType):
            self._start(_Work(call, made), holds=True)
        elif made is not None:
            call.reply(made)

    def answer(self, call: Call, made: Made) -> None:
        """The same for an answer that is made after its handler has ended."""
        if not isinstance(made, CoroutineType):
            call.reply(made)
            return
        try:
            self._start(_Work(call, made), holds=False)
        except Exception as error:
            call.answer.fail(error)

    def _start(self, work: _Work, *, holds: bool) -> None:
        self._until = self._clock.monotonic() + PIECE_SECONDS_MAX
        if not work.step():
            work.call.is_large = True
            if holds:
                work.call.answer.hold()
                work.done = partial(_ended, work.call)
            self._put_off(work)

    def _put_off(self, work: _Work) -> None:
        if work.needs is not None:
            job, work.needs = work.needs, None
            work.call.context.run_cold(job, partial(self._put_off, work))
            return
        self._works.append(work)
        if len(self._works) == 1:
            self._next_turn(self._go_on)

    def _go_on(self) -> None:
        """One piece of one request in each turn of the loop."""
        work = self._works.popleft()
        if self._works:
            self._next_turn(self._go_on)
        self._until = self._clock.monotonic() + PIECE_SECONDS_MAX
        try:
            ended = work.step()
        except Exception as error:
            work.call.answer.fail(error)
            ended = True
        if not ended:
            self._put_off(work)
        elif work.done is not None:
            work.done()

    # -- large frames

    def take(self, request: LargeRequest) -> None:
        """Decode and handle a request when those before it are."""
        request.call.is_large = True
        request.call.answer.waiting = request
        request.call.answer.hold()
        self._large.append(request)
        if self._large_taken is None:
            self._take_next()

    def _take_next(self) -> None:
        self._large_taken = None
        while self._large:
            request = self._large.popleft()
            if not request.abandoned:
                self._large_taken = request
                self.apart(request.decode, self._decoded)
                return

    def _decoded(self) -> None:
        request = self._large_taken
        assert request is not None
        call = request.call
        call.answer.waiting = None
        message, request.message = request.message, None
        try:
            if request.error is not None:
                raise request.error
            made = None if request.abandoned else request.handle(message)
        except Exception as error:
            call.answer.fail(error)
            made = None
        if isinstance(made, CoroutineType):
            work = _Work(call, made)
            work.done = self._large_done
            self._put_off(work)
            return
        if made is not None:
            call.reply(made)
        self._large_done()

    def _large_done(self) -> None:
        request = self._large_taken
        assert request is not None
        self._take_next()
        _ended(request.call)


def _ended(call: Call) -> None:
    """A handler that took long has ended."""
    call.forget_frame()
    call.answer.release()
