"""A broker over files in memory, whose commit rounds run when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from pathlib import Path
from typing import Any

from tests.support.space import small_reserve

from penstock.broker.broker import Broker
from penstock.broker.topic import Topic
from penstock.errors import PenstockError
from penstock.files import Files
from penstock.limits import GIB
from penstock.log.cleaning import Failed, Plan, Report, clean
from penstock.log.memory_space import MemorySpace
from penstock.log.partition import Partition
from penstock.log.reading import read
from penstock.log.store import LogStore
from penstock.memory_files import MemoryFiles
from penstock.record.batch import parse
from penstock.record.decode import Record, decode
from penstock.record.encode import NewRecord, encode
from penstock.record.thin import filler
from penstock.testing.clock import ManualClock

DATA = Path("/data")
NOW = 1_700_000_000_000


class Log:
    """One data folder; `commit` runs everything that waits."""

    def __init__(self, files: Files | None = None, *, memory_topics: int = GIB) -> None:
        self.files = files or MemoryFiles()
        self._memory_topics = memory_topics
        self.clock = ManualClock(wall_ms=NOW)
        self.open()

    def open(self) -> None:
        self._turns: list[Callable[[], None]] = []
        self._jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.background: list[Callable[[], None]] = []
        self.store = LogStore(
            self.files,
            DATA,
            self.clock,
            run=lambda job, done: self._jobs.append((job, done)),
            defer=self._turns.append,
            background=self.background.append,
            compact=self._compact,
            space=small_reserve(self.files, DATA, self.clock),
            memory=MemorySpace(self.clock, self._memory_topics),
        )
        self.broker = Broker(self.store, self.clock)
        self.broker.open()

    def _compact(self, plan: Plan, report: Callable[[Report], None]) -> None:
        try:
            for one in clean(self.files, plan._replace(free_bytes_min=0), lambda size: None):
                report(one)
        except (OSError, PenstockError) as error:
            report(Failed(str(error)))

    def commit(self) -> None:
        while self._turns or self._jobs:
            while self._turns:
                self._turns.pop(0)()
            if self._jobs:
                job, done = self._jobs.pop(0)
                done(job())

    def look(self) -> bool:
        """One turn of the loop; whether a round runs after it."""
        for call in [self._turns.pop(0) for _ in self._turns[:]]:
            call()
        return bool(self._jobs)

    def commit_until(self, answers: Sized) -> None:
        """Run rounds only until there is an answer."""
        while not answers:
            while self._turns:
                self._turns.pop(0)()
            job, done = self._jobs.pop(0)
            done(job())

    def start_round(self) -> Callable[[], None]:
        """Let a round begin; the function that is returned lets it end."""
        while self._turns:
            self._turns.pop(0)()
        job, done = self._jobs.pop(0)
        return lambda: done(job())

    def restart(self, *, clean: bool) -> None:
        if clean:
            self.commit()
            self.broker.close()
        self.open()

    def topic(self, name: str = "t", config: Mapping[str, str] | None = None) -> Topic:
        topic = self.broker.create_topic(name, 1, config or {})
        self.commit()
        return topic

    def put(self, topic: Topic, *pairs: tuple[bytes, bytes | None], **fields: int) -> int:
        """Append one batch of keys and values."""
        timestamp = fields.pop("timestamp", NOW)
        data = encode([NewRecord(value, key, timestamp) for key, value in pairs], **fields)
        return self.broker.appender.append(topic, topic.partition(0), data).base_offset

    def compact(self) -> None:
        """Let the broker look after its topics until it finds nothing more to do."""
        self.commit()
        self.broker.keep_retention()
        self.commit()

    def append(self, topic: Topic, *values: bytes, timestamp: int = NOW, **producer: int) -> int:
        records = [NewRecord(value, timestamp=timestamp) for value in values]
        data = encode(records, **producer)
        return self.broker.appender.append(topic, topic.partition(0), data).base_offset


def grow(broker: Broker, topic: Topic, end: int) -> None:
    """Let every partition end at an offset, by one small batch; durable after the next round."""
    for partition in topic.whole_partitions():
        batch = bytearray(filler(partition.end_offset, end - 1, NOW, partition.epoch))
        partition.append(parse(batch), batch)
        broker.commit.appended(partition)


def read_records(partition: Partition, offset: int = 0) -> list[Record]:
    """Everything a reader sees from an offset on."""
    found: list[Record] = []
    while offset < partition.durable_offset:
        data = bytes(read(partition, offset, 1))
        batch = data[: parse(data).size]
        found += [record for record in decode(batch) if record.offset >= offset]
        # Not that of the last record: compaction may have removed it, or all of them.
        offset = parse(data).last_offset + 1
    return found


def values(partition: Partition, offset: int = 0) -> list[bytes | None]:
    return [record.value for record in read_records(partition, offset)]
