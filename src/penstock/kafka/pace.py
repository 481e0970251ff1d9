"""Requests that take long, in pieces: whoever else asks waits for one piece at the most.

One loop does everything, so that a request with a hundred thousand names would keep everybody waiting
for seconds. Handlers that go over what a request or the broker can have many of are coroutines, and do
so with `each`, which lets others go first once a piece has taken its time. Large messages are decoded
and encoded on a thread, which shares the interpreter but touches no state. Requests that come in large
frames are taken one after the other: decoded, each is a hundred times its size in memory. The largest
have a line of their own, so that a group's commit does not wait for them.

A client's next request waits until the handler of the one before has ended, as if it had not taken long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.clock import Clock
from penstock.limits import HUGE_REQUEST_BYTES_MIN, PIECE_SECONDS_MAX
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


class _GivenUp(BaseException):
    """Ends work that nobody waits for."""


class _Work:
    """A handler that has not ended, or the making of an answer."""

    def __init__(self, call: Call, work: Coroutine[Any, Any, Message | None]) -> None:
        self.call = call
        self._work = work
        self.needs: Callable[[], None] | None = None
        self.done: Callable[[], None] | None = None
        self.line: _Line | None = None

    def step(self) -> bool:
        """Go on until others must go first, or answer; whether it has ended."""
        try:
            self.needs = self._work.send(None)
        except StopIteration as end:
            made = end.value
        else:
            return False
        if made is not None:  # not above: an error would be logged with all of the message
            self.call.reply(made)
        return True

    def close(self) -> None:
        """Do not go on."""
        # Thrown: a coroutine that is closed leaves the generators it goes over unfinished.
        with suppress(_GivenUp, StopIteration):
            self._work.throw(_GivenUp())


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


class _Line:
    """Requests in large frames, of which one at a time is handled."""

    def __init__(self) -> None:
        self.waiting: deque[LargeRequest] = deque()
        self.taken = False


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
        self._lines = (_Line(), _Line())
        self._stopped = False

    def stop(self) -> None:
        """Give up what has not ended: nobody is left to answer, and the broker is about to close."""
        self._stopped = True
        for line in self._lines:
            line.waiting.clear()
        works, self._works = self._works, deque()
        for work in works:
            work.close()

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
        if self._stopped:
            work.close()
            return
        if work.needs is not None:
            job, work.needs = work.needs, None
            if work.line is self._lines[0]:
                self._leave_line(work)  # no group's commit has to wait for this one's disk
            work.call.context.run_cold(job, partial(self._put_off, work))
            return
        self._works.append(work)
        if len(self._works) == 1:
            self._next_turn(self._go_on)

    def _go_on(self) -> None:
        """One piece of one request in each turn of the loop."""
        if not self._works:
            return  # they were given up
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
            return
        self._leave_line(work)
        if work.done is not None:
            work.done()

    def _leave_line(self, work: _Work) -> None:
        line, work.line = work.line, None
        if line is not None:
            self._take_next(line)

    # -- large frames

    def take(self, request: LargeRequest) -> None:
        """Decode and handle a request when those before it in its line are."""
        request.call.is_large = True
        request.call.answer.waiting = request
        request.call.answer.hold()
        line = self._lines[len(request.call.frame) >= HUGE_REQUEST_BYTES_MIN]
        line.waiting.append(request)
        if not line.taken:
            self._take_next(line)

    def _take_next(self, line: _Line) -> None:
        line.taken = False
        while line.waiting:
            request = line.waiting.popleft()
            if not request.abandoned and request.call.answer.is_wanted():
                line.taken = True
                try:
                    self.apart(request.decode, partial(self._decoded, request, line))
                except BaseException:
                    line.taken = False  # there is no thread to be had now; the next one tries again
                    raise
                return

    def _decoded(self, request: LargeRequest, line: _Line) -> None:
        if self._stopped:
            return
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
            work.done = partial(_ended, call)
            work.line = line
            self._put_off(work)
            return
        if made is not None:
            call.reply(made)
        self._take_next(line)
        _ended(call)


def _ended(call: Call) -> None:
    """A handler that took long has ended."""
    call.forget_frame()
    call.answer.release()
