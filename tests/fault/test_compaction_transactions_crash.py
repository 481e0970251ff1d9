"""Crash at every operation of a compaction of transactions, under every policy, and open again.

A reader of committed records must find the newest committed value of every key and nothing that was
aborted, whichever segments, markers and checkpoints the crash has left; and nothing may look open.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.support.log import DATA, Log
from tests.support.transactional import Pair, Writer, batches, committed

from penstock.broker.appending import Appender
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
FOLDER = DATA / "topics" / "t-0"
FORGOTTEN = 60 * 3600
"""Seconds after which the first producer of a history is forgotten, and its last marker may go."""


class History:
    """A topic written by three producers, two of them in transactions; `compact` is what is crashed."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.files = FaultyFiles(random.Random(seed))
        self.files.write(DATA / ".keep", b"")
        self.log = Log(self.files)
        self.topic = self.log.topic(config=CONFIG)
        self.aborted: set[int] = set()
        first = Writer(self.log, "first", new_epochs=seed % 2 == 0)
        self._write(rng, 8, [first])
        self.log.clock.advance(FORGOTTEN)
        writers = [Writer(self.log, "new"), Writer(self.log, "old", new_epochs=False)]
        self._write(rng, 10, writers)
        # Passes before the one that is crashed: there are markers whose time is over.
        self.log.compact()
        self.log.clock.advance(2)
        self._write(rng, 8, writers)
        self.log.commit()
        records = [r for header, rs in batches(self.topic) if not header.is_control for r in rs]
        self.appended = {record.offset: record for record in records}
        self.newest = {r.key: r for r in records if r.offset not in self.aborted}
        self.end = self.topic.partition(0).end_offset

    def _write(self, rng: random.Random, count: int, writers: list[Writer]) -> None:
        for _ in range(count):
            writer = rng.choice(writers)
            offsets: list[int] = []
            now = self.log.clock.wall_ms()
            for _ in range(rng.randint(1, 3)):
                batch = self._batch(rng)
                base = writer.write(self.topic, *batch, timestamp=now)
                offsets += range(base, base + len(batch))
                if rng.random() < 0.4:
                    self.log.put(self.topic, *self._batch(rng), timestamp=now)
            commit = rng.random() < 0.5
            if not commit:
                self.aborted |= set(offsets)
            writer.end(commit=commit)

    @staticmethod
    def _batch(rng: random.Random) -> list[Pair]:
        return [
            (b"k%d" % rng.randrange(8), b"%d" % rng.randrange(100) + b"." * rng.randrange(60))
            for _ in range(rng.randint(1, 3))
        ]

    def check(self, files: FaultyFiles) -> Log:
        """Open what a crash has left, and compare."""
        assert not [found for found in scan(files, FOLDER) if isinstance(found, Damage)]
        log = Log(files)
        log.clock.advance(FORGOTTEN + 4)
        log.commit()
        self.compare(log.broker.topic("t"))
        return log

    def compare(self, topic: Topic) -> None:
        partition = topic.partition(0)
        assert (partition.start_offset, partition.end_offset) == (0, self.end)
        assert not Appender.producers(partition).open_transactions
        left: dict[bytes | None, Record] = {}
        for record in committed(topic):
            assert record.offset not in self.aborted, "an aborted record is seen"
            assert record == self.appended[record.offset]
            left[record.key] = record
        assert left == self.newest

    def go_on(self, log: Log) -> None:
        """Compact what was found; then nothing that was aborted is left of what is sealed."""
        log.compact()
        log.clock.advance(62)  # a failed pass is left alone for a while
        log.compact()
        topic = log.broker.topic("t")
        self.compare(topic)
        sealed = topic.partition(0).active.base_offset
        found = [r.offset for header, rs in batches(topic) if not header.is_control for r in rs]
        assert not [offset for offset in found if offset < sealed and offset in self.aborted]


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
    before = [header.base_offset for header, _ in batches(history.topic) if header.is_control]
    history.log.compact()
    after = [header.base_offset for header, _ in batches(history.topic) if header.is_control]
    assert len(after) < len(before)
    history.compare(history.topic)


@pytest.mark.parametrize("seed", [1, 2])
def test_crash_at_every_operation(seed: int) -> None:
    for number, history in crashes(seed):
        for policy in Keep:
            for draw in range(4 if policy is Keep.PAGES_512 else 1):
                files = history.files.after_crash(policy, random.Random(100 * number + draw))
                log = history.check(files)
                if draw == 0:
                    history.go_on(log)


@pytest.mark.parametrize("kind", ["pwrite", "sync", "rename", "remove"])
def test_lost_checkpoints_cost_nothing_but_time(kind: str) -> None:
    """A disk that fails once at an operation of that kind, and then loses every checkpoint but one."""
    for at in range(1, 200):
        history = History(3)
        history.files.fail(kind, 5, at=at)
        history.log.compact()
        failed = any("failed: EIO" in line for line in history.files.trace)
        history.files.heal()
        names = sorted(n for n in history.files.list(FOLDER) if n.endswith(".checkpoint"))
        keep = random.Random(at).choice(names) if names else ""
        for name in names:
            if name != keep:
                history.files.remove(FOLDER / name)
        history.check(history.files.after_crash(Keep.EVERYTHING, random.Random(at)))
        if not failed:
            return
    raise AssertionError("the disk failed for ever")
