"""One request on its way: what was asked, what handlers need to answer it, and the way back.

This module may run compiled (setup.py), with the C types that stand in call.pxd.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Protocol, TypeVar

from penstock.broker.broker import Broker
from penstock.broker.topic import Topic
from penstock.clock import Clock
from penstock.files import Buffer, FileSlice
from penstock.kafka.fetch_session import FetchSessions
from penstock.kafka.pace import Pace
from penstock.kafka.share_session import ShareSessions
from penstock.wire import codec
from penstock.wire.codec import Message
from penstock.wire.requests import PartitionKey, TopicKey

_RESPONSE = Struct(">ii")
_CLIENT_ID_LENGTH = Struct(">h")
NODE_ID = 1
_NOTHING = memoryview(b"")
_T = TypeVar("_T")


class Timer(Protocol):
    """Something that can be called off."""

    def cancel(self) -> None:
        """Do not call."""
        ...


class Pending(Protocol):
    """A request that is not answered yet."""

    def abandon(self) -> None:
        """Nobody wants the answer any more."""
        ...


class Waiting(Pending, Protocol):
    """A request that waits for something to happen."""

    def finish(self) -> None:
        """Answer with what there is."""
        ...


class Context:
    """What the handlers stand on; built once by the server.

    Args:
        broker: topics, groups and what makes them durable.
        clock: time.
        call_soon: calls at the end of the loop's turn.
        call_later: calls after so many seconds.
        run_cold: runs the first on a thread, then the second on the loop.
        pace: takes what takes long in pieces.
        advertised: where clients are told to connect; None for where they did.
        fetch_sessions: all of them.
        share_sessions: those of share groups' members.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        clock: Clock,
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], Timer],
        run_cold: Callable[[Callable[[], None], Callable[[], None]], None],
        pace: Pace,
        advertised: tuple[str, int] | None,
        fetch_sessions: FetchSessions,
        share_sessions: ShareSessions,
    ) -> None:
        self.broker = broker
        self.clock = clock
        self.call_soon = call_soon
        self.call_later = call_later
        self.run_cold = run_cold
        self.pace = pace
        self.advertised = advertised
        self.fetch_sessions = fetch_sessions
        self.share_sessions = share_sessions
        self.waiting_fetches: set[Waiting] = set()
        """Those that wait for data, so that a server that stops can answer them at once."""


class Answer(Protocol):
    """The place of one answer in its connection's order."""

    waiting: Pending | None
    """Who is told if the client goes before there is an answer."""

    def fill(self, parts: Sequence[Buffer | FileSlice]) -> None:
        """Send, as soon as every earlier answer has been sent."""
        ...

    def drop(self) -> None:
        """Send nothing for this request."""
        ...

    def rest(self, seconds: float) -> None:
        """Take no further request of this client for a while; this one is answered all the same."""
        ...

    def hold(self) -> None:
        """Take no further request of this client, and keep the frame of this one, until `release`."""
        ...

    def release(self) -> None:
        """Go on with this client's requests."""
        ...

    def is_wanted(self) -> bool:
        """Whether the client is still there; while it is held, nobody else notices that it goes."""
        ...

    def fail(self, error: Exception) -> None:
        """There is no answer: end the connection."""
        ...


@dataclass(slots=True)
class Peer:
    """Where the client is, the address it reached us at, and what its connection has to remember."""

    local_host: str
    local_port: int
    remote: str
    closing: dict[object, Callable[[], None]] = field(default_factory=dict, compare=False)
    """Called when the client has gone; by what they are about, so that there are not too many."""
    fetches_next: PartitionKey | None = field(default=None, compare=False)
    """The first partition that an answer left out behind others; None if the last one had everything."""

    @property
    def is_here(self) -> bool:
        """Whether the client runs on this machine: both ends have one address."""
        return self.remote.rpartition(":")[0] == self.local_host


class Call:
    """A request and its answer."""

    def __init__(
        self,
        context: Context,
        peer: Peer,
        answer: Answer,
        version: int,
        correlation_id: int,
        frame: memoryview,
        body_start: int,
    ) -> None:
        self.context = context
        self.peer = peer
        self.answer = answer
        self.version = version
        self.correlation_id = correlation_id
        self.frame = frame
        self.body_start = body_start
        self.is_large = False
        """Whether it takes so long that its answer is encoded on a thread."""

    @property
    def body(self) -> memoryview:
        """The request after its header. There until the handler returns."""
        return self.frame[self.body_start :]

    @property
    def client_id(self) -> str:
        """What the client calls itself. As the body, it is there until the handler returns."""
        length = max(0, _CLIENT_ID_LENGTH.unpack_from(self.frame, 8)[0])
        return str(self.frame[10 : 10 + length], "utf-8", "replace")

    def forget_frame(self) -> None:
        """The handler has ended: an answer can take a minute, and the receive buffer must not wait."""
        self.frame = _NOTHING

    def each(self, items: Iterable[_T]) -> AsyncIterator[_T]:
        """Items of which there can be many; others go first now and then."""
        return self.context.pace.each(items)

    def topic(self, key: TopicKey) -> Topic:
        """The topic that a request names, or UnknownTopicError."""
        broker = self.context.broker
        return broker.topic(key.name) if key.id is None else broker.topic_by_id(key.id)

    def reply(self, response: Message) -> None:
        """Answer with a message."""
        flexible = codec.is_flexible(type(response), self.version)
        if self.is_large:
            EncodedApart(self, response, flexible).start()
        else:
            self.reply_parts([codec.encode(response, self.version)], flexible)

    def reply_parts(self, parts: Sequence[Buffer | FileSlice], flexible: bool) -> None:
        """Answer with an encoded body."""
        size = 5 if flexible else 4
        for part in parts:
            size += len(part)
        head = _RESPONSE.pack(size, self.correlation_id)
        self.answer.fill([head + b"\x00" if flexible else head, *parts])


class EncodedApart:
    """An answer that is encoded on a thread."""

    def __init__(self, call: Call, response: Message, flexible: bool) -> None:
        self._call = call
        self._response = response
        self._flexible = flexible
        self._body = b""
        self._error: Exception | None = None

    def start(self) -> None:
        """Encode, then answer."""
        self._call.context.pace.apart(self._encode, self._send)

    def _encode(self) -> None:
        try:
            self._body = codec.encode(self._response, self._call.version)
        except Exception as error:
            self._error = error
        self._response = None  # here, and not on the loop: there are many pieces to give back

    def _send(self) -> None:
        if self._error is not None:
            self._call.answer.fail(self._error)
        else:
            self._call.reply_parts([self._body], self._flexible)
