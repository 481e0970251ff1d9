"""A broker whose disk is memory, with a few topics in it, to be asked and damaged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from uuid import UUID

from penstock.broker import topic_config
from penstock.broker.broker import Broker
from penstock.broker.producers import ProducerTable
from penstock.files import Buffer, FileSlice
from penstock.kafka.call import Context, Peer, Pending
from penstock.kafka.dispatcher import Dispatcher
from penstock.kafka.fetch_session import FetchSessions
from penstock.kafka.pace import Pace
from penstock.kafka.share_session import ShareSessions
from penstock.log.catalog import TopicEntry
from penstock.log.space import DiskSpace
from penstock.log.store import LogStore
from penstock.memory_files import MemoryFiles
from penstock.record.encode import NewRecord, encode
from penstock.testing.clock import ManualClock
from tools.fuzz.target import BrokenError

DATA = Path("/data")
NOW = 1_700_000_000_000
PEER = Peer("127.0.0.1", 9092, "127.0.0.1:50000")
SMALL = {"segment.bytes": "900", "index.interval.bytes": "100"}
TOPICS: dict[str, dict[str, str]] = {
    "orders": SMALL,
    "packed": {"compression.type": "zstd"},
    "opened": {"compression.type": "uncompressed"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "kept": {"penstock.durability": "memory"},
}
# How often everybody who waits is told that the time is up, before an answer counts as missing.
_ROUNDS_MAX = 10
BYSTANDER = "bystander"
"""A topic that no hostile request names: somebody else works with it."""


def topic_id(name: str) -> UUID:
    """The same in every run, so that requests can be made before the broker is."""
    return UUID(bytes=name.encode().ljust(16, b"-"))


class Disk(MemoryFiles):
    """As MemoryFiles, without asking the machine for its free memory."""

    def free_bytes(self, path: Path) -> int:
        """Always enough."""
        return 1 << 40

    def total_bytes(self, path: Path) -> int:
        """Always the same."""
        return 1 << 41


class Slot:
    """Where one answer arrives."""

    def __init__(self, correlation_id: int) -> None:
        self.data: bytes | None = None
        self.waiting: Pending | None = None
        self.error: Exception | None = None
        self._correlation_id = correlation_id

    def fill(self, parts: Sequence[Buffer | FileSlice]) -> None:
        """Take the answer, which must be one whole frame and the only one."""
        if self.data is not None:
            raise BrokenError("answered twice")
        self.data = data = b"".join(map(bytes, parts))
        if int.from_bytes(data[:4], "big") != len(data) - 4:
            raise BrokenError("the answer's length is wrong")
        if int.from_bytes(data[4:8], "big", signed=True) != self._correlation_id:
            raise BrokenError("the answer is not to this request")

    def drop(self) -> None:
        """No answer."""
        self.data = b""

    def rest(self, seconds: float) -> None:
        """Nothing is sent twice here."""

    def hold(self) -> None:
        """Nothing else is sent before the answer."""

    def release(self) -> None:
        """Nothing waited."""

    def is_wanted(self) -> bool:
        """Nobody goes."""
        return True

    def fail(self, error: Exception) -> None:
        """The connection would end."""
        self.error = error


class Alarm:
    """A timer that goes off when the stage lets time pass."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Do not go off."""
        self.call = None


class Stage:
    """Opens a disk as a server does."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._turns: list[Callable[[], None]] = []
        self._alarms: list[Alarm] = []
        clock = ManualClock(wall_ms=NOW)
        self.store = LogStore(
            disk,
            DATA,
            clock,
            run=lambda job, done: done(job()),
            defer=self._turns.append,
            background=lambda job: job(),
            space=DiskSpace(disk, DATA, clock, free_bytes_min=0, reserve_bytes=1),
        )
        self.broker = Broker(self.store, clock, call_later=self._call_later)
        self.broker.open()
        self._context = Context(
            broker=self.broker,
            clock=clock,
            call_soon=self._turns.append,
            call_later=self._call_later,
            run_cold=_at_once,
            pace=Pace(clock, self._turns.append, _at_once),
            advertised=None,
            fetch_sessions=FetchSessions(Random(0), clock),
            share_sessions=ShareSessions(),
        )
        self._dispatcher = Dispatcher(self._context)

    def _call_later(self, _seconds: float, call: Callable[[], None]) -> Alarm:
        self._alarms.append(Alarm(call))
        return self._alarms[-1]

    def ask(self, frame: bytes) -> Slot:
        """Let one request be handled to its end: commit rounds run, and time is up for who waits."""
        slot = Slot(int.from_bytes(frame[4:8], "big", signed=True))
        # Batches are patched in place, as in the receive buffer of a connection.
        self._dispatcher.handle(memoryview(bytearray(frame)), PEER, slot)
        for _ in range(_ROUNDS_MAX):
            self.settle()
            if slot.error is not None:
                raise slot.error
            if slot.data is not None:
                break
            self._let_time_pass()
        if slot.data is None:
            raise BrokenError("not answered")
        return slot

    def settle(self) -> None:
        """Run everything that waits."""
        while self._turns:
            self._turns.pop(0)()

    def _let_time_pass(self) -> None:
        alarms, self._alarms = self._alarms, []
        for alarm in alarms:
            if alarm.call is not None:
                alarm.call()

    def append(self, name: str, records: Sequence[NewRecord], **producer: int) -> None:
        """Store one batch for good."""
        topic = self.broker.topic(name)
        self.broker.appender.append(topic, topic.partition(0), encode(records, **producer))
        self.settle()


def _at_once(job: Callable[[], None], done: Callable[[], None]) -> None:
    job()
    done()


def new_disk() -> Disk:
    """A disk with topics of every kind, several segments, and no orderly stop."""
    disk = Disk()
    stage = Stage(disk)
    for name, config in ({**TOPICS, BYSTANDER: {}}).items():
        entry = TopicEntry(name, topic_id(name), 2, config)
        settings = topic_config.parse(config).log
        stage.store.create_partitions(
            entry, range(2), settings, lambda: ProducerTable(ManualClock())
        )
    stage.settle()
    stage = Stage(disk)
    for number in range(40):
        record = NewRecord(b"value %d" % number, b"key", NOW + number, [("h", b"x")])
        stage.append(
            "orders",
            [record] * (1 + number % 3),
            producer_id=number % 2,
            producer_epoch=0,
            base_sequence=sum(1 + n % 3 for n in range(number) if n % 2 == number % 2),
        )
    for name in ("packed", "opened", "stamped"):
        stage.append(name, [NewRecord(b"value", b"key", NOW)] * 3, codec=1)
    return disk


_kept: list[Disk] = []


def copied_disk() -> Disk:
    """A fresh copy of the disk, which is built once."""
    if not _kept:
        _kept.append(new_disk())
    return copy.deepcopy(_kept[0])
