"""Crash at every file-system operation of a compaction, under every policy, and open again.

Whatever is found must be some of what was appended, with the newest of every key, or nothing of a key
whose tombstone has had its time.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest
from tests.support.log import DATA, NOW, Log, read_records

from penstock.broker.topic import Topic
from penstock.log.verify import Damage, scan
from penstock.record.decode import Record
from penstock.testing.faulty import Crash, FaultyFiles
from penstock.testing.power_failure import Keep

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1200)]

CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "700",
    "index.interval.bytes": "150",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "1000",
}
PRODUCER = 7


class History:
    """A topic with its updates; `compact` is what is crashed."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.files = FaultyFiles(random.Random(seed))
        self.files.write(DATA / ".keep", b"")
        self.log = Log(self.files)
        self.topic = self.log.topic(config=CONFIG)
        self.sequence = 0
        self.last: tuple[list[tuple[bytes, bytes | None]], int, int] | None = None
        for number in range(30):
            self._write(rng, number)
        # A pass before the one that is crashed, so that there is a clean part with tombstones
        # whose time is over.
        self.log.compact()
        self.log.clock.advance(2)
        for number in range(30, 50):
            self._write(rng, number)
        self.log.commit()
        self.appended = {r.offset: r for r in read_records(self.topic.partition(0))}
        self.newest = {record.key: record for record in self.appended.values()}
        self.end = self.topic.partition(0).end_offset

    def _write(self, rng: random.Random, number: int) -> None:
        batch: list[tuple[bytes, bytes | None]] = [
            (
                b"k%d" % rng.randrange(12),
                None if rng.random() < 0.2 else b"%d" % number + b"." * rng.randrange(60),
            )
            for _ in range(rng.randint(1, 4))
        ]
        producer = (
            {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": self.sequence}
            if number % 3 == 0
            else {}
        )
        base = self.log.put(self.topic, *batch, timestamp=NOW + number, **producer)
        if producer:
            self.last = (batch, self.sequence, base)
            self.sequence += len(batch)
        self.log.commit()

    def check(self, files: FaultyFiles) -> Log:
        """Open what a crash has left, and compare."""
        folder = DATA / "topics" / "t-0"
        damage = [found for found in scan(files, folder) if isinstance(found, Damage)]
        assert not damage, "verification reports what recovery settles by itself"
        log = Log(files)
        log.clock.advance(2)
        topic = log.broker.topic("t")
        self.compare(topic)
        assert self.last is not None
        batch, sequence, base = self.last
        retried = log.put(
            topic, *batch, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence
        )
        assert retried == base, "a retry was taken for a new batch"
        return log

    def compare(self, topic: Topic) -> None:
        partition = topic.partition(0)
        assert (partition.start_offset, partition.end_offset) == (0, self.end)
        found = read_records(partition)
        left: dict[bytes | None, Record] = {}
        for record in found:
            assert record == self.appended[record.offset]
            left[record.key] = record
        for key, newest in self.newest.items():
            if newest.value is None:
                assert key not in left or left[key] == newest, "a deleted key is back"
            else:
                assert left.get(key) == newest, "the newest value of a key is gone"

    def go_on(self, log: Log) -> None:
        """Compact what was found; then nothing superfluous may be left of what is sealed."""
        log.compact()
        log.clock.advance(62)  # a failed pass is left alone for a while
        log.compact()
        topic = log.broker.topic("t")
        self.compare(topic)
        folder = DATA / "topics" / "t-0"
        assert not [d for d in scan(log.files, folder) if isinstance(d, Damage)]
        assert not [n for n in log.files.list(folder) if n.endswith((".cleaned", ".swap"))]
        partition = topic.partition(0)
        sealed = [r for r in read_records(partition) if r.offset < partition.active.base_offset]
        assert len({record.key for record in sealed}) == len(sealed)


def crashes(seed: int) -> Iterator[tuple[int, History]]:
    """A compaction, cut off at every operation; the last one is not cut off."""
    number = 0
    while True:
        history = History(seed)
        number += 1
        history.files.crash_at = history.files.operations + number
        try:
            history.log.compact()
        except Crash:
            yield number, history
        else:
            yield number, history
            return


def test_there_is_something_to_crash() -> None:
    history = History(1)
    before = len(read_records(history.topic.partition(0)))
    renames = sum(" rename " in line for line in history.files.trace)
    history.log.compact()
    assert sum(" rename " in line for line in history.files.trace) - renames > 10
    assert any(" remove " in line and line.endswith(".log") for line in history.files.trace)
    assert len(read_records(history.topic.partition(0))) < before
    history.compare(history.topic)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_crash_at_every_operation(seed: int) -> None:
    for number, history in crashes(seed):
        for policy in Keep:
            # Which names survive is drawn, and only some draws are of interest.
            for draw in range(8 if policy is Keep.PAGES_512 else 1):
                files = history.files.after_crash(policy, random.Random(100 * number + draw))
                log = history.check(files)
                if draw == 0:
                    history.go_on(log)


@pytest.mark.parametrize("policy", [Keep.NOTHING, Keep.PAGES_512, Keep.EVERYTHING])
def test_crash_at_every_operation_of_the_recovery(policy: Keep) -> None:
    for number, history in crashes(4):
        if not any(path.suffix == ".swap" for path in history.files.paths()):
            continue  # nothing of the compaction is left to do
        operations = 0
        while True:
            operations += 1
            files = history.files.after_crash(Keep.EVERYTHING, random.Random(number))
            files.crash_at = operations
            try:
                history.check(files)
                break
            except Crash:
                pass
            after = files.after_crash(policy, random.Random(operations))
            history.go_on(history.check(after))


@pytest.mark.parametrize("kind", ["pwrite", "sync", "rename", "remove", "sync_folder", "create"])
def test_failures_cost_no_record(kind: str) -> None:
    """A disk that fails once, at every operation of a kind in turn."""
    at = 0
    while True:
        at += 1
        history = History(5)
        history.files.fail(kind, 5, at=at)
        with contextlib.suppress(OSError):
            history.log.compact()
        failed = any("failed: EIO" in line for line in history.files.trace)
        history.files.heal()
        history.compare(history.topic)
        history.check(history.files.after_crash(Keep.EVERYTHING, random.Random(at)))
        if not failed:
            break


def test_a_full_disk_costs_no_record() -> None:
    for room in range(0, 6000, 250):
        history = History(6)
        history.files.capacity = _used(history.files) + room
        history.log.compact()
        history.compare(history.topic)
        history.files.capacity = None
        history.go_on(history.check(history.files.after_crash(Keep.NOTHING, random.Random(room))))


def _used(files: FaultyFiles) -> int:
    return sum(len(files.read(path)) for path in files.paths())
