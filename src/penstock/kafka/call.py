"""One request on its way: what was asked, what handlers need to answer it, and the way back.

This module may run compiled (setup.py), with the C types that stand in call.pxd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Protocol

from penstock.broker.broker import Broker
from penstock.broker.topic import Topic
from penstock.clock import Clock
from penstock.files import Buffer, FileSlice
from penstock.kafka.fetch_session import FetchSessions
from penstock.kafka.share_session import ShareSessions
from penstock.wire import codec
from penstock.wire.codec import Message
from penstock.wire.requests import PartitionKey, TopicKey

_RESPONSE = Struct(">ii")
_CLIENT_ID_LENGTH = Struct(">h")
NODE_ID = 1


class Timer(Protocol):
    """Something that can be called off."""

    def cancel(self) -> None:
        """Do not call."""
        ...


class Waiting(Protocol):
    """A request that is answered later."""

    def finish(self) -> None:
        """Answer with what there is."""
        ...

    def abandon(self) -> None:
        """Nobody wants the answer any more."""
        ...


class Context:
    """What the handlers stand on; built once by the server.

    Args:
        broker: topics, groups and what makes them durable.
        clock: time.
        call_soon: calls at the end of the loop's turn.
        call_later: calls after so many seconds.
        run_cold: runs the first on a thread, then the second on the loop.
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
        advertised: tuple[str, int] | None,
        fetch_sessions: FetchSessions,
        share_sessions: ShareSessions,
    ) -> None:
        self.broker = broker
        self.clock = clock
        self.call_soon = call_soon
        self.call_later = call_later
        self.run_cold = run_cold
        self.advertised = advertised
        self.fetch_sessions = fetch_sessions
        self.share_sessions = share_sessions
        self.waiting_fetches: set[Waiting] = set()
        """Those that wait for data, so that a server that stops can answer them at once."""


class Answer(Protocol):
    """The place of one answer in its connection's order."""

    waiting: Waiting | None
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


@dataclass(slots=True)
class Peer:
    """Where the client is, the address it reached us at, and what its connection has to remember."""

    local_host: str
    local_port: int
    remote: str
    closing: dict[object, Callable[[], None]] = field(default_factory=dict, compare=False)
    """Called when the client has gone; by what they are about, so that there are not too many."""
    fetched_last: PartitionKey | None = field(default=None, compare=False)
    """Where an answer stopped that left partitions out; None if the last one had everything."""

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

    @property
    def body(self) -> memoryview:
        """The request after its header. There until the handler returns."""
        return self.frame[self.body_start :]

    @property
    def client_id(self) -> str:
        """What the client calls itself. As the body, it is there until the handler returns."""
        length = max(0, _CLIENT_ID_LENGTH.unpack_from(self.frame, 8)[0])
        return str(self.frame[10 : 10 + length], "utf-8", "replace")

    def topic(self, key: TopicKey) -> Topic:
        """The topic that a request names, or UnknownTopicError."""
        broker = self.context.broker
        return broker.topic(key.name) if key.id is None else broker.topic_by_id(key.id)

    def reply(self, response: Message) -> None:
        """Answer with a message."""
        body = codec.encode(response, self.version)
        self.reply_parts([body], codec.is_flexible(type(response), self.version))

    def reply_parts(self, parts: Sequence[Buffer | FileSlice], flexible: bool) -> None:
        """Answer with an encoded body."""
        size = 5 if flexible else 4
        for part in parts:
            size += len(part)
        head = _RESPONSE.pack(size, self.correlation_id)
        self.answer.fill([head + b"\x00" if flexible else head, *parts])
