"""Requests as frames to the table and answers back, over a broker whose disk is memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kafka.protocol.api_header import ResponseClassRegistry
from tests.support.log import grow
from tests.support.space import small_reserve
from tests.support.timers import ManualTimers

from penstock.broker.broker import Broker
from penstock.broker.topic import Topic
from penstock.files import Buffer, FileSlice
from penstock.kafka.apis import APIS
from penstock.kafka.call import Context, Peer, Pending
from penstock.kafka.consumer_dialect import ConsumerDialect
from penstock.kafka.dispatcher import Dispatcher
from penstock.kafka.fetch_session import FetchSessions
from penstock.kafka.pace import Pace
from penstock.kafka.share_session import ShareSessions
from penstock.log.store import LogStore
from penstock.record.encode import NewRecord, encode
from penstock.testing.clock import ManualClock
from penstock.testing.faulty import FaultyFiles

DATA = Path("/data")
NOW = 1_700_000_000_000
PEER = Peer("127.0.0.1", 9092, "127.0.0.1:50000")
PEER_ELSEWHERE = Peer("10.0.0.1", 9092, "10.0.0.2:50000")
CORRELATION = 7
CLIENT = "unit"


def versions(key: int) -> range:
    """Every version of a request that is answered."""
    return range(APIS[key].lowest, APIS[key].highest + 1)


@dataclass
class Slot:
    """Where one answer arrives."""

    data: bytes | None = None
    dropped: bool = False
    waiting: Pending | None = None
    rested: float = 0.0
    held: int = 0
    wanted: bool = True
    failed: Exception | None = None

    def fill(self, parts: Sequence[Buffer | FileSlice]) -> None:
        assert self.data is None
        self.data = b"".join(map(bytes, parts))

    def drop(self) -> None:
        self.dropped = True

    def rest(self, seconds: float) -> None:
        self.rested += seconds

    def hold(self) -> None:
        self.held += 1

    def release(self) -> None:
        self.held -= 1

    def is_wanted(self) -> bool:
        return self.wanted

    def fail(self, error: Exception) -> None:
        assert self.failed is None
        self.failed = error


@dataclass
class Exchange:
    """A broker, and the way to ask it."""

    files: FaultyFiles = field(default_factory=FaultyFiles)
    advertised: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        self.clock = ManualClock(wall_ms=NOW)
        self.open()

    def open(self) -> None:
        """Start, or start again after whatever happened. Clients connect anew."""
        for peer in (PEER, PEER_ELSEWHERE):
            peer.fetches_next = None
        self._turns: list[Callable[[], None]] = []
        self.store = LogStore(
            self.files,
            DATA,
            self.clock,
            run=lambda job, done: done(job()),
            defer=self._turns.append,
            background=lambda job: job(),
            space=small_reserve(self.files, DATA, self.clock),
        )
        self.timers = ManualTimers(self.clock)
        self.broker = Broker(
            self.store, self.clock, call_later=self.timers, dialect=ConsumerDialect()
        )
        self.broker.open()
        self.context = Context(
            broker=self.broker,
            clock=self.clock,
            call_soon=self._turns.append,
            call_later=lambda _seconds, _call: self,
            run_cold=self._run_cold,
            pace=Pace(self.clock, self._turns.append, self._run_cold),
            advertised=self.advertised,
            fetch_sessions=FetchSessions(Random(0), self.clock),
            share_sessions=ShareSessions(),
        )
        self.dispatcher = Dispatcher(self.context)

    @staticmethod
    def _run_cold(job: Callable[[], None], done: Callable[[], None]) -> None:
        job()
        done()

    def cancel(self) -> None:
        """As a timer: nothing here waits for the clock."""

    def drain(self) -> None:
        """Run the commit rounds that wait."""
        while self._turns:
            self._turns.pop(0)()

    # -- asking

    def begin(self, request: Any, version: int, peer: Peer = PEER) -> Slot:
        """Send a request, and let nothing become durable."""
        request.API_VERSION = version
        request.with_header(correlation_id=CORRELATION, client_id=CLIENT)
        frame = bytearray(request.encode(version=version, header=True))
        slot = Slot()
        self.dispatcher.handle(memoryview(frame), peer, slot)
        return slot

    def send(self, request: Any, version: int) -> Any:
        """Send a request and return its answer."""
        slot = self.begin(request, version)
        self.drain()
        return answer(request, version, slot)

    def send_highest(self, request: Any) -> Any:
        """The same in the newest version."""
        return self.send(request, APIS[request.API_KEY].highest)

    # -- the stage

    def topic(
        self, name: str = "orders", partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> Topic:
        topic = self.broker.create_topic(name, partitions, config or {})
        self.drain()
        return topic

    def grown_topic(self, end: int) -> Topic:
        """One whose log ends at an offset, so that it can be committed."""
        topic = self.topic()
        grow(self.broker, topic, end)
        self.drain()
        return topic

    def append(self, topic: Topic, *timestamps: int, partition: int = 0) -> None:
        """One batch with a record for each time, durable."""
        batch = encode([NewRecord(b"v", None, timestamp) for timestamp in timestamps])
        self.broker.appender.append(topic, topic.partition(partition), batch)
        self.drain()


def answer(request: Any, version: int, slot: Slot) -> Any:
    """The message in an answer's frame, which must be exactly as kafka-python would write it."""
    assert slot.data is not None, "no answer"
    response_class = ResponseClassRegistry.get_response_class(request.header)
    response = response_class.decode(slot.data, version=version, header=True, framed=True)
    assert response.header.correlation_id == CORRELATION
    assert response.encode(header=True, framed=True) == slot.data
    return response
