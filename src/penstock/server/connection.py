"""One client's connection: frames in, answers out in the order of the requests.

Reading stops while the client owes us reading (its answers pile up), while it has too many requests
in flight, while one of them takes long, while its next large frame has no room, or while it rests
because it took more than its quota; it goes on by itself afterwards. A connection that stalls in the
middle of a frame is closed.

This module may run compiled (setup.py), with the C types that stand in connection.pxd.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.files import Buffer, FileSlice
from penstock.kafka.call import Answer, Peer, Pending
from penstock.limits import (
    FRAME_PROGRESS_BYTES_MIN,
    FRAME_SECONDS_MAX,
    IDLE_SECONDS_MAX,
    JOIN_BYTES_MAX,
    RECEIVE_BUFFER_BYTES_KEPT,
    RECEIVE_BUFFERS_SHRUNK_MAX,
    RECEIVE_PIECE_BYTES,
    REQUESTS_IN_FLIGHT_MAX,
    WRITE_BUFFER_BYTES_MAX,
)
from penstock.server.framing import FrameBuffer
from penstock.server.memory import FrameMemory
from penstock.server.outbox import Outbox, Part
from penstock.server.turn import Turn

_log = logging.getLogger(__name__)
# Where the system has none, a client that has gone is noticed when it is answered.
_GONE = getattr(select, "POLLRDHUP", 0)


class Handler(Protocol):
    """Who answers frames."""

    def handle(self, frame: memoryview, peer: Peer, answer: Answer) -> None:
        """Answer a request, now or later; an error closes the connection."""
        ...


class PendingAnswer:
    """A place in the order of answers."""

    def __init__(self, connection: Pump) -> None:
        self.connection = connection
        self.parts: Sequence[Part] | None = None
        self.size = 0
        self.waiting: Pending | None = None

    def fill(self, parts: Sequence[Part]) -> None:
        """Send as soon as every earlier answer has been sent."""
        self.parts = parts
        self.connection.answer_ready(self)

    def drop(self) -> None:
        """This request gets no answer."""
        self.fill(())

    def rest(self, seconds: float) -> None:
        """Take no further request of this client for a while."""
        self.connection.rest(seconds)

    def hold(self) -> None:
        """Take no further request of this client until `release`; this one's frame stays as it is."""
        self.connection.hold()

    def release(self) -> None:
        """Go on with this client's requests."""
        self.connection.release()

    def is_wanted(self) -> bool:
        """Whether the client is still there; ends the connection if not."""
        return self.connection.is_wanted()

    def fail(self, error: Exception) -> None:
        """There is no answer: end the connection."""
        self.connection.fail(error)


class Connections:
    """All open connections, and what they share."""

    def __init__(self, handler: Handler, clock: Clock, turn: Turn, limit: int) -> None:
        self.handler = handler
        self.turn = turn
        self.clock = clock
        self.limit = limit
        self.memory = FrameMemory()
        self.open: set[Pump] = set()
        self.stopping = False
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """An answer was sent or a connection closed; a server that stops waits for that."""
        if self.stopping:
            self._changed.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return when a condition about the connections holds, while stopping."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def shrink_buffers(self) -> None:
        """Take back the memory of those who make no use of it. Called now and then."""
        self._shrink_buffers(list(self.open))

    def _shrink_buffers(self, left: list[Pump]) -> None:
        """A few in each turn of the loop, so that nobody waits for the buffers of thousands."""
        shrunk = 0
        while left and shrunk < RECEIVE_BUFFERS_SHRUNK_MAX:
            shrunk += left.pop().shrink_buffer()
        if left:
            asyncio.get_running_loop().call_soon(self._shrink_buffers, left)

    def close_stalled(self) -> None:
        """Close what has not moved for too long. Called now and then."""
        now = self.clock.monotonic()
        for connection in list(self.open):
            connection.close_if_stalled(now)


class Pump:
    """See the module."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._frames = FrameBuffer()
        self._answers: deque[PendingAnswer] = deque()
        self._transport: asyncio.Transport | None = None
        self._peer = Peer("", 0, "")
        self._outbox: Outbox | None = None
        self._reading = True
        self._low_water = 1
        self._reserved = 0
        self._ready_bytes = 0
        self._moved_at = 0.0
        self._progress = (0, 0, False)
        self._flush_scheduled = False
        self._resting: asyncio.TimerHandle | None = None
        self._held = False
        self._turn = connections.turn
        self._loop = asyncio.get_running_loop()

    # -- from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        # uvloop's transports are asyncio's in all but their base class.
        self._transport = transport = cast(asyncio.Transport, transport)
        self._moved_at = self._connections.clock.monotonic()
        local = transport.get_extra_info("sockname")
        remote = transport.get_extra_info("peername")
        if not (local and remote):  # it went before it was accepted
            transport.abort()
            return
        self._peer = Peer(str(local[0]), int(local[1]), f"{remote[0]}:{remote[1]}")
        if self._connections.stopping or len(self._connections.open) >= self._connections.limit:
            _log.warning("%s refused: too many connections", self._peer.remote)
            transport.abort()
            return
        descriptor = transport.get_extra_info("socket").fileno()
        try:
            self._outbox = Outbox(self._loop, descriptor, self.progressed, self.abort)
        except OSError as error:
            _log.warning("%s refused: %s", self._peer.remote, error)
            transport.abort()
            return
        self._connections.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._transport = None
        if self._outbox is not None:
            self._outbox.close()
            self._outbox = None
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        answers, self._answers = self._answers, deque()
        for answer in answers:
            if answer.waiting is not None:
                answer.waiting.abandon()
        for closing in self._peer.closing.values():
            closing()
        self._release_memory()
        self._connections.open.discard(self)
        self._connections.changed()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop may put bytes."""
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        self._turn.enter()
        try:
            self._frames.received(nbytes)
            self._handle_frames()
            self._set_low_water()
        finally:
            self._turn.leave()

    def progressed(self) -> None:
        """The client has taken some of its answers."""
        self._moved_at = self._connections.clock.monotonic()
        if self._outbox is not None and self._outbox.waiting_bytes == 0:
            self._connections.changed()
        self._handle_frames()

    def _set_low_water(self) -> None:
        """Be woken for large pieces of a large frame, not for each that arrives.

        Never for more than is missing of it: nothing else need ever come. That holds until more comes,
        for a frame that lacks something cannot be taken before.
        """
        low_water = RECEIVE_PIECE_BYTES if self._frames.missing() >= RECEIVE_PIECE_BYTES else 1
        if low_water != self._low_water and self._outbox is not None:
            self._low_water = low_water
            self._outbox.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    # -- requests

    def _handle_frames(self) -> None:
        frames, answers = self._frames, self._answers
        handle = self._connections.handler.handle
        try:
            while len(answers) < REQUESTS_IN_FLIGHT_MAX and not self._blocked():
                frame = frames.next_frame()
                if frame is None:
                    self._reserve_memory()
                    break
                answer = PendingAnswer(self)
                answers.append(answer)
                handle(frame, self._peer, answer)
                if self._transport is None:
                    return
        except Exception as error:
            self.fail(error)
            return
        self._update_reading()

    def fail(self, error: Exception) -> None:
        """End the connection because of a request that cannot be answered."""
        if isinstance(error, PenstockError):
            _log.info("%s closed: %s", self._peer.remote, error)
        else:
            _log.error(
                "%s closed: a request failed unexpectedly", self._peer.remote, exc_info=error
            )
        self.abort()

    def hold(self) -> None:
        """Handle and read nothing until `release`: a request takes long, and its frame is needed."""
        self._held = True

    def is_wanted(self) -> bool:
        """Whether the client is still there: a connection that is not read does not tell."""
        if self._transport is None or self._transport.is_closing():
            return False
        look = select.poll()
        look.register(self._transport.get_extra_info("socket").fileno(), _GONE)
        if not look.poll(0):
            return True
        self.abort()
        return False

    def release(self) -> None:
        """Go on."""
        self._held = False
        if self._transport is not None and not self._transport.is_closing():
            self._handle_frames()

    def _reserve_memory(self) -> None:
        """Large frames share a budget; the connection waits for its share before it reads on.

        Called only when the length of the frame that comes next has been found acceptable.
        """
        wanted = self._frames.wanted()
        if self._reserved and self._reserved != wanted:
            self._frames.shrink()
            self._release_memory()
        if (
            wanted > RECEIVE_BUFFER_BYTES_KEPT
            and not self._reserved
            and self._connections.memory.take(wanted, self._room_found)
        ):
            self._reserved = wanted

    def _room_found(self, size: int) -> None:
        if self._transport is None:
            self._connections.memory.give_back(size)
            return
        self._reserved = size
        self._update_reading()

    def shrink_buffer(self) -> bool:
        """Give the receive buffer back if the client no longer fills it; whether it was."""
        return self._frames.shrink_unless_filled()

    def _release_memory(self) -> None:
        if self._reserved:
            self._connections.memory.give_back(self._reserved)
            self._reserved = 0
        self._connections.memory.forget(self._room_found)

    def _update_reading(self) -> None:
        """Read only while what is read can be handled."""
        if self._transport is None:
            return
        waits_for_memory = self._frames.wanted() > RECEIVE_BUFFER_BYTES_KEPT and not self._reserved
        should_read = not (
            self._blocked() or waits_for_memory or len(self._answers) >= REQUESTS_IN_FLIGHT_MAX
        )
        if should_read != self._reading:
            self._reading = should_read
            if should_read:
                self._moved_at = self._connections.clock.monotonic()  # it was we who stood still
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def rest(self, seconds: float) -> None:
        """Handle and read nothing for a while: the client took more than its quota."""
        if self._transport is None:
            return
        if self._resting is not None:
            if self._loop.time() + seconds <= self._resting.when():
                return  # it already rests for longer, for another quota
            self._resting.cancel()
        self._resting = self._loop.call_later(seconds, self._rested)
        self._update_reading()

    def _rested(self) -> None:
        self._resting = None
        self._handle_frames()

    # -- answers

    def answer_ready(self, answer: PendingAnswer) -> None:
        """Send every answer whose turn it is, once for all that become ready in this turn."""
        if len(self._answers) > 1:
            # Of requests that were pipelined, what is ready and not sent counts as if it were.
            for part in answer.parts or ():
                answer.size += len(part)
            self._ready_bytes += answer.size
        if not self._flush_scheduled and self._answers and self._answers[0] is answer:
            self._flush_scheduled = True
            self._turn.soon(self.flush)

    def flush(self) -> None:
        """Send what is ready, up to the first answer that is not."""
        self._flush_scheduled = False
        answers = self._answers
        waited = (
            len(answers) >= REQUESTS_IN_FLIGHT_MAX or self._ready_bytes > WRITE_BUFFER_BYTES_MAX
        )
        parts: list[Part] = []
        while answers:
            answer = answers[0]
            if answer.parts is None:
                break
            answers.popleft()
            parts += answer.parts
            self._ready_bytes -= answer.size
        if self._outbox is not None and parts:
            self._outbox.send(_joined(parts) if len(parts) > 1 else parts)
            self._update_reading()
        self._connections.changed()
        if waited:
            self._handle_frames()

    @property
    def idle(self) -> bool:
        """Whether every request has been answered, and the answers have been sent."""
        return not self._answers and (self._outbox is None or self._outbox.waiting_bytes == 0)

    def _blocked(self) -> bool:
        """Whether requests wait unread: for one that takes long, for the client, or for the end."""
        if self._held or self._connections.stopping or self._resting is not None:
            return True
        outbox = self._outbox
        return (
            outbox is not None and outbox.waiting_bytes + self._ready_bytes > WRITE_BUFFER_BYTES_MAX
        )

    # -- the end

    def close_if_stalled(self, now: float) -> None:
        """Close a half-open or idle connection, or one that sends a frame byte by byte."""
        frames = self._frames
        pending = frames.pending()
        # Whole frames, large pieces, the begin of a frame: everything else is no progress.
        progress = (frames.total - pending, frames.total // FRAME_PROGRESS_BYTES_MIN, pending > 0)
        if progress != self._progress:
            self._progress = progress
            self._moved_at = now
        quiet = now - self._moved_at
        if pending and self._reading and quiet > FRAME_SECONDS_MAX:
            _log.info("%s closed: stalled in the middle of a frame", self._peer.remote)
            self.abort()
        elif quiet > IDLE_SECONDS_MAX and not self._answers:
            self.abort()

    def stop_reading(self) -> None:
        """Take no more requests; those in flight are answered."""
        if self._transport is not None and self._reading:
            self._reading = False
            self._transport.pause_reading()

    def close(self) -> None:
        """Close; an idle connection has nothing left to send."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


def _joined(parts: list[Part]) -> list[Part]:
    """Small answers as one buffer, unless a file is among them."""
    size = 0
    for part in parts:
        size += len(part)
        if size > JOIN_BYTES_MAX or isinstance(part, FileSlice):
            return parts
    return [b"".join(cast(list[Buffer], parts))]


class Connection(Pump, asyncio.BufferedProtocol):
    """A pump as the loop knows it: bytes come into a buffer that we choose."""
