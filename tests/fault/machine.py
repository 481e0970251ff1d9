"""One life of a log on a faulty disk: a broker in miniature whose threads a test steps by hand.

Real brokers have a loop, a commit thread and a background thread. Here each is a queue, and the
test says who runs next, so that every interleaving can be had again from its seed.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.fault.oracle import Broken, Found, Oracle, Sent, Spot, Token, TopicFacts

from penstock.errors import ConflictError, DamagedLogError, NotFoundError, PenstockError
from penstock.log import reading
from penstock.log.catalog import TopicEntry
from penstock.log.partition import Partition
from penstock.log.settings import Durability, LogSettings
from penstock.log.space import DiskSpace, means_full
from penstock.log.store import LogStore
from penstock.record.batch import HEADER_BYTES, BatchHeader, parse
from penstock.record.decode import decode
from penstock.record.encode import NewRecord, encode
from penstock.testing.clock import ManualClock
from penstock.testing.faulty import FaultyFiles

HOME = Path("/data")
SETTINGS = LogSettings(segment_bytes=1500, index_interval_bytes=300, retention_ms=60_000)
FREE_BYTES_MIN = 20_000
RESERVE_BYTES = 3_000


class Witness:
    """An observer that forgets nothing, to be compared with the log."""

    def __init__(self) -> None:
        self.batches: list[tuple[Token, int]] = []

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        self.batches.append((Token(header.producer_id, header.base_sequence), base_offset))

    def ended(self, header: BatchHeader, base_offset: int, *, commit: bool) -> None:
        raise AssertionError("there are no transactions in these histories")

    def snapshot(self) -> bytes:
        return json.dumps(self.batches).encode()

    def needed(self) -> list[int]:
        return []

    def fences(self) -> list[tuple[int, int]]:
        return []

    def last_stable_offset(self, durable_offset: int) -> int:
        return durable_offset

    def aborted_between(self, start: int, end: int) -> list[tuple[int, int, int]]:
        return []

    def forget_markers(self, gone: Collection[int]) -> None:
        pass

    def restore(self, state: bytes) -> None:
        found = json.loads(state or b"[]")
        self.batches = [(Token(*token), offset) for token, offset in found]


class Machine:
    """See the module. Opening it is a start of the server."""

    def __init__(
        self, files: FaultyFiles, oracle: Oracle, clock: ManualClock, settings: LogSettings
    ) -> None:
        self.files = files
        self.oracle = oracle
        self.clock = clock
        self.settings = settings
        self._deferred: deque[Callable[[], None]] = deque()
        self._job: tuple[Callable[[], Any], Callable[[Any], None]] | None = None
        self._outcome: tuple[Any, Callable[[Any], None]] | None = None
        self._background: deque[Callable[[], None]] = deque()
        self._deleting: set[str] = set()
        self.damaged: list[DamagedLogError] = []
        space = DiskSpace(
            files, HOME, clock, free_bytes_min=FREE_BYTES_MIN, reserve_bytes=RESERVE_BYTES
        )
        self.store = LogStore(
            files,
            HOME,
            clock,
            run=self._run,
            defer=self._deferred.append,
            background=self._background.append,
            space=space,
        )
        self.topics: dict[str, TopicEntry] = {}
        self.partitions: dict[tuple[str, int], Partition] = {}
        for entry in list(self.store.catalog.topics.values()):
            self._open(entry)
        self.store.begin()

    def _open(self, entry: TopicEntry) -> None:
        self.topics[entry.name] = entry
        for number in range(entry.partitions):
            try:
                partition = self.store.open_partition(entry, number, self.settings, Witness())
            except DamagedLogError as error:
                self.damaged.append(error)
                continue
            self.partitions[entry.name, number] = partition

    # -- the threads, one step each

    def _run(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        assert self._job is None
        assert self._outcome is None
        self._job = (job, done)

    def turn(self) -> bool:
        """The loop does what was put off to the end of its turn."""
        if not self._deferred:
            return False
        self._deferred.popleft()()
        return True

    def work(self) -> bool:
        """The commit thread does its round."""
        if self._job is None:
            return False
        job, done = self._job
        self._job = None
        self._outcome = (job(), done)
        return True

    def finish(self) -> bool:
        """The loop hears of the round."""
        if self._outcome is None:
            return False
        outcome, done = self._outcome
        self._outcome = None
        done(outcome)
        return True

    def tidy(self) -> bool:
        """The background thread does one thing; its errors are logged, nobody waits for it."""
        if not self._background:
            return False
        with tolerated():
            self._background.popleft()()
        return True

    def shake(self, rng: random.Random) -> None:
        """Let the threads run on for a random while."""
        for _ in range(rng.randint(0, 5)):
            rng.choice((self.turn, self.work, self.finish, self.tidy))()

    def settle(self) -> None:
        """Let the threads run until nothing is left to do, and a reader look at the result."""
        self.settle_unseen()
        self.look()

    def settle_unseen(self) -> None:
        """Let the threads run until nothing is left to do."""
        while self.turn() or self.work() or self.finish() or self.tidy():
            pass

    # -- what clients ask for

    def create_topic(self, name: str, partitions: int) -> None:
        # The broker refuses a name until its deletion is durable; clients try again.
        while name in self._deleting and (self.turn() or self.work() or self.finish()):
            pass
        if name in self._deleting:
            raise ConflictError(f"create topic {name}", "its deletion failed")
        entry = TopicEntry(name, UUID(int=self.oracle.number()), partitions, {}, 1)
        facts = self.oracle.topics[entry.id] = _facts(entry)
        made = self.store.create_partitions(entry, range(partitions), self.settings, Witness)
        self.topics[name] = entry
        for number, partition in enumerate(made):
            self.partitions[name, number] = partition

        def acknowledge() -> None:
            facts.created, facts.revision_acked = True, max(1, facts.revision_acked)
            facts.partitions_acked = max(facts.partitions_acked, partitions)

        self._when_metadata_is_durable(acknowledge)

    def change_topic(self, name: str, *, partitions: int | None = None) -> None:
        """Change the configuration, or add partitions."""
        old = self._topic(name)
        count = partitions or old.partitions
        revision = old.revision + 1
        entry = replace(old, partitions=count, config={"x": str(revision)}, revision=revision)
        facts = self.oracle.topics[entry.id]
        facts.revision_asked = revision
        if count > old.partitions:
            new = range(old.partitions, count)
            made = self.store.create_partitions(entry, new, self.settings, Witness)
            self.partitions |= {(name, n): p for n, p in zip(new, made, strict=True)}
        else:
            self.store.put(entry)
        self.topics[name] = entry

        def acknowledge() -> None:
            facts.revision_acked = max(facts.revision_acked, revision)
            facts.partitions_acked = max(facts.partitions_acked, count)

        self._when_metadata_is_durable(acknowledge)

    def delete_topic(self, name: str) -> None:
        entry = self._topic(name)
        facts = self.oracle.topics[entry.id]
        facts.delete_asked = True
        gone = [self.partitions[k] for k in list(self.partitions) if k[0] == name]
        self._deleting.add(name)
        self.store.delete_topic(entry, gone, partial(self._deleting.discard, name))
        del self.topics[name]
        self.partitions = {k: p for k, p in self.partitions.items() if k[0] != name}
        self._when_metadata_is_durable(lambda: setattr(facts, "deleted", True))

    def _topic(self, name: str) -> TopicEntry:
        if name not in self.topics:
            raise NotFoundError(f"use topic {name}", "it is not there")
        return self.topics[name]

    def _partition(self, name: str, number: int) -> Partition:
        if (name, number) not in self.partitions:
            raise NotFoundError(f"use {name}-{number}", "it is not there")
        return self.partitions[name, number]

    def _when_metadata_is_durable(self, acknowledge: Callable[[], None]) -> None:
        def callback() -> None:
            if self.store.commit.metadata_failed is None:
                acknowledge()

        self.store.commit.after(callback)

    def produce(
        self, name: str, number: int, producer: int, *, count: int = 2, size: int = 60
    ) -> None:
        spot = Spot(self._topic(name).id, number)
        sequence = self.oracle.number()
        values = [f"{producer}/{sequence}/{i}".encode().ljust(size, b".") for i in range(count)]
        sent = Sent(Token(producer, sequence), values)
        self.oracle.at(spot).sent[sent.token] = sent
        try:
            self.append(name, number, sent)
        except (OSError, PenstockError):
            sent.refused = True  # and its producer goes on with the next
            raise

    def append(self, name: str, number: int, sent: Sent) -> None:
        """Write a batch, or find that it has been written."""
        partition = self._partition(name, number)
        assert isinstance(partition.observer, Witness)
        for token, offset in partition.observer.batches:
            if token == sent.token:
                self._acknowledge_later(partition, sent, offset)
                return
        stamp = self.clock.wall_ms()
        batch = encode(
            [NewRecord(value, timestamp=stamp) for value in sent.values],
            producer_id=sent.token.producer,
            producer_epoch=0,
            base_sequence=sent.token.sequence,
        )
        self.store.space.check(len(batch))
        try:
            offset = partition.append(parse(batch), batch)
        except OSError as error:
            if means_full(error):
                self.store.space.found_full()
            else:
                partition.fail(f"write failed: {error}")
            raise
        if partition.needs_round:
            self.store.commit.appended(partition)
        self._acknowledge_later(partition, sent, offset)

    def _acknowledge_later(self, partition: Partition, sent: Sent, offset: int) -> None:
        def callback() -> None:
            if partition.durable_offset >= offset + len(sent.values):
                sent.acked_at = offset

        if partition.settings.durability is Durability.FSYNC:
            self.store.commit.after(callback)
        else:
            callback()

    def delete_records(self, name: str, number: int, before: int) -> None:
        partition = self._partition(name, number)
        before = min(before, partition.durable_offset)
        if before <= partition.start_offset:
            return
        facts = self.oracle.at(Spot(partition.identity.topic_id, number))
        facts.start_asked = max(facts.start_asked, before)
        partition.advance_start(before)
        self.store.commit.start_moved(partition)

        def acknowledge() -> None:
            if self.store.positions.failed is None and partition.offline is None:
                facts.start_acked = max(facts.start_acked, before)

        self.store.commit.after(acknowledge)

    def retain(self) -> None:
        """What the retention task does now and then."""
        now = self.clock.wall_ms()
        for (_, number), partition in self.partitions.items():
            if partition.roll_if_expired(now):
                self.store.commit.appended(partition)
            expired = partition.expired_segments(now)
            if not expired:
                continue
            facts = self.oracle.at(Spot(partition.identity.topic_id, number))
            facts.start_asked = max(facts.start_asked, expired[-1].next_offset)
            partition.drop(expired)
            self.store.commit.start_moved(partition)
            self.store.remove_segments(partition, expired)

    def close(self) -> None:
        """Stop in order."""
        self.settle()
        self.store.close(self.partitions.values())

    # -- what can be seen

    def spot(self, name: str, number: int) -> Spot:
        """The name of a partition that stays."""
        return Spot(self.topics[name].id, number)

    def must_be_well(self) -> None:
        """Nothing may have gone out of service."""
        failed = self.store.commit.metadata_failed
        if failed is not None:
            raise Broken(f"metadata failed: {failed}")
        offline = [f"{p}: {p.offline}" for p in self.partitions.values() if p.offline]
        if offline:
            raise Broken(f"offline: {offline}")

    def look(self) -> None:
        """Read everything, hold it against the oracle, and remember it."""
        for (name, number), partition in self.partitions.items():
            spot = Spot(self.topics[name].id, number)
            found = self.read(partition)
            self.oracle.check_partition(spot, found)
            self.oracle.note_seen(spot, found)

    def check(self) -> None:
        """Everything, as found at a start."""
        if self.damaged:
            raise Broken(f"refused to open: {self.damaged[0]}")
        found = {e.id: (e.name, e.partitions, e.revision) for e in self.topics.values()}
        _must_be_unique(self.store.catalog.topics.values())
        self.oracle.check_topics(found)
        self.look()

    def read(self, partition: Partition) -> Found:
        """Everything a reader finds, batch by batch."""
        values: dict[int, bytes] = {}
        batches: list[tuple[Token, int]] = []
        offset = partition.start_offset
        while offset < partition.durable_offset:
            for header, batch in _batches(bytes(reading.read(partition, offset, 700))):
                batches.append(
                    (Token(header.producer_id, header.base_sequence), header.base_offset)
                )
                for record in decode(batch):
                    if record.offset >= offset:
                        assert record.value is not None
                        values[record.offset] = record.value
                offset = header.last_offset + 1
        witness = partition.observer
        assert isinstance(witness, Witness)
        known = [batch for batch in witness.batches if batch[1] < partition.durable_offset]
        return Found(partition.start_offset, partition.durable_offset, values, batches, known)

    def retry_unknown(self) -> None:
        """Producers that do not know whether a batch was stored send it again."""
        for (name, number), _ in list(self.partitions.items()):
            for sent in self.oracle.unknown(Spot(self.topics[name].id, number)):
                self.append(name, number, sent)


def _facts(entry: TopicEntry) -> TopicFacts:
    return TopicFacts(entry.name, entry.partitions, revision_asked=entry.revision)


def _must_be_unique(entries: Iterable[TopicEntry]) -> None:
    names = [entry.name for entry in entries]
    if len(names) != len(set(names)):
        raise Broken(f"the catalog holds two topics of one name: {sorted(names)}")


def _batches(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    position = 0
    while position + HEADER_BYTES <= len(data):
        header = parse(data, position)
        if position + header.size > len(data):
            return
        yield header, data[position : position + header.size]
        position += header.size


@contextlib.contextmanager
def tolerated() -> Iterator[None]:
    """A client that is told of an error and goes on."""
    with contextlib.suppress(OSError, PenstockError):
        yield
