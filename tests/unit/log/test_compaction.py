"""Compaction, over files in memory and with the pass made in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.support.log import DATA, NOW, Log, read_records

from penstock.broker.topic import Topic
from penstock.crc32c import crc32c
from penstock.errors import StorageError
from penstock.files import Files, write_atomically
from penstock.log import checkpoint
from penstock.log.cleaning import Cleaned, Finished, Plan, Report, clean
from penstock.log.compaction import cleanable
from penstock.log.reading import newest_by_time, offset_for_time, read
from penstock.log.verify import Damage, scan
from penstock.record.batch import HORIZON_FLAG, BatchHeader, parse
from penstock.record.decode import Record

DAY = 24 * 3600 * 1000
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "400", "min.cleanable.dirty.ratio": "0"}
FOLDER = DATA / "topics" / "t-0"


def pairs(topic: Topic) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records(topic)]


def records(topic: Topic) -> list[Record]:
    partition = topic.partition(0)
    return read_records(partition, partition.start_offset)


def headers(log: Log) -> Iterator[BatchHeader]:
    for found in scan(log.files, FOLDER):
        assert not isinstance(found, Damage), found
        yield found.header


def fill(log: Log, topic: Topic, rounds: int = 10, keys: int = 3, **fields: int) -> None:
    """The same keys again and again, one batch each round."""
    for number in range(rounds):
        values = [(b"k%d" % key, b"%d of %d" % (number, key)) for key in range(keys)]
        log.put(topic, *values, **fields)
    log.commit()


def seal(log: Log, topic: Topic, key: bytes = b"last") -> None:
    """Start a new segment, so that everything before can be compacted."""
    partition = topic.partition(0)
    while partition.active.size:
        before = partition.active
        log.put(topic, (key, b"x" * 100))
        log.commit()
        if partition.active is not before:
            return


def test_the_last_value_of_every_key_stays(log: Log) -> None:
    topic = log.topic(config=COMPACT)
    fill(log, topic)
    seal(log, topic)
    before = {record.key: record for record in records(topic)}
    count = len(records(topic))
    log.compact()
    after = records(topic)
    assert {record.key: record for record in after} == before
    # What is left beside them are records of the active segment, which is never touched.
    active = topic.partition(0).active.base_offset
    assert len([r for r in after if r.offset < active]) <= len(before)
    assert len(after) < count
    assert [record.offset for record in after] == sorted(record.offset for record in after)


def test_offsets_stay_covered_and_small_segments_become_one(log: Log) -> None:
    topic = log.topic(config=COMPACT)
    fill(log, topic)
    seal(log, topic)
    segments = len(topic.partition(0).segments)
    log.compact()
    expected = 0
    for header in headers(log):
        assert header.base_offset == expected
        expected = header.last_offset + 1
    assert expected == topic.partition(0).end_offset
    fill(log, topic)
    seal(log, topic)
    log.compact()
    assert len(topic.partition(0).segments) < 2 * segments
    names = log.files.list(FOLDER)
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    assert len([n for n in names if n.endswith(".log")]) == len(topic.partition(0).segments)


@pytest.mark.parametrize("clean_stop", [True, False])
def test_a_restart_finds_it_compacted_and_does_nothing_again(log: Log, clean_stop: bool) -> None:
    topic = log.topic(config=COMPACT)
    fill(log, topic)
    seal(log, topic)
    log.compact()
    before = records(topic)
    log.restart(clean=clean_stop)
    topic = log.broker.topic("t")
    assert records(topic) == before
    contents = {path: size for path, size in log.files.list(FOLDER).items() if ".log" in path}
    log.compact()
    assert {p: s for p, s in log.files.list(FOLDER).items() if ".log" in p} == contents
    fill(log, topic, 1)
    assert records(topic)[-1].offset == topic.partition(0).end_offset - 1


def test_lost_word_of_how_far_costs_a_pass_and_nothing_else(log: Log) -> None:
    topic = log.topic(config=COMPACT)
    fill(log, topic)
    seal(log, topic)
    log.compact()
    before = records(topic)
    log.files.remove(FOLDER / "compacted.json")
    log.restart(clean=False)
    log.compact()
    assert records(log.broker.topic("t")) == before
    assert log.files.exists(FOLDER / "compacted.json")


def test_a_checkpoint_from_before_the_end_is_not_taken_over(log: Log) -> None:
    """Its producers are not those at the end: the next start must read the segment instead."""
    topic = log.topic(config=COMPACT)
    fill(log, topic)
    seal(log, topic)
    for segment in topic.partition(0).segments[:-1]:
        old = checkpoint.load(log.files, FOLDER, segment.base_offset)
        assert old is not None
        early = old._replace(next_offset=old.next_offset - 1)
        path = checkpoint.checkpoint_path(FOLDER, segment.base_offset)
        write_atomically(log.files, path, checkpoint.encode(early))
    log.compact()
    first = topic.partition(0).segments[0]
    assert checkpoint.load(log.files, FOLDER, first.base_offset) is None
    before = records(topic)
    log.restart(clean=False)
    assert records(log.broker.topic("t")) == before


class TestTombstones:
    CONFIG = COMPACT | {"delete.retention.ms": "1000"}

    def test_they_go_after_the_readers_have_had_their_time(self, log: Log) -> None:
        topic = log.topic(config=self.CONFIG)
        log.put(topic, (b"gone", b"1"), (b"stays", b"1"))
        log.put(topic, (b"gone", None), (b"other", b"2"), timestamp=NOW + 5)
        log.commit()
        seal(log, topic)
        log.compact()
        assert pairs(topic)[:3] == [(b"stays", b"1"), (b"gone", None), (b"other", b"2")]
        found = records(topic)
        assert [(r.offset, r.timestamp) for r in found[:3]] == [
            (1, NOW),
            (2, NOW + 5),
            (3, NOW + 5),
        ]
        batch = next(h for h in headers(log) if h.base_offset == 2)
        assert batch.attributes & HORIZON_FLAG
        assert batch.base_timestamp == NOW + 1000
        assert batch.max_timestamp == NOW + 5
        log.clock.advance(0.9)
        log.compact()
        assert (b"gone", None) in pairs(topic)
        log.clock.advance(0.2)
        log.compact()
        assert pairs(topic)[:2] == [(b"stays", b"1"), (b"other", b"2")]

    def test_the_time_outlives_a_restart(self, log: Log) -> None:
        topic = log.topic(config=self.CONFIG)
        log.put(topic, (b"gone", b"1"))
        log.put(topic, (b"gone", None))
        log.commit()
        seal(log, topic)
        log.compact()
        log.restart(clean=False)
        topic = log.broker.topic("t")
        assert pairs(topic)[0] == (b"gone", None)
        log.clock.advance(1.1)
        log.compact()
        assert b"gone" not in [key for key, _ in pairs(topic)]

    def test_a_newer_value_outlives_them(self, log: Log) -> None:
        topic = log.topic(config=self.CONFIG)
        log.put(topic, (b"k", b"1"))
        log.put(topic, (b"k", None))
        log.put(topic, (b"k", b"2"))
        log.commit()
        seal(log, topic)
        log.compact()
        assert pairs(topic)[0] == (b"k", b"2")


class TestProducers:
    def test_a_retry_of_a_batch_that_is_gone_is_still_recognised(self, log: Log) -> None:
        topic = log.topic(config=COMPACT)
        log.put(topic, (b"a", b"1"), (b"b", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
        last = dict(producer_id=7, producer_epoch=0, base_sequence=2)
        base = log.put(topic, (b"a", b"2"), (b"b", b"2"), **last)
        log.commit()
        fill(log, topic, 6)
        log.put(topic, (b"a", b"3"), (b"b", b"3"))
        seal(log, topic)
        log.compact()
        kept = [h for h in headers(log) if h.producer_id == 7]
        assert [(h.base_offset, h.last_offset, h.record_count) for h in kept] == [(2, 3, 0)]
        for name in list(log.files.list(FOLDER)):
            if name.endswith(".checkpoint"):
                log.files.remove(FOLDER / name)  # so that the log alone must tell
        log.restart(clean=False)
        topic = log.broker.topic("t")
        assert log.put(topic, (b"a", b"2"), (b"b", b"2"), **last) == base
        log.put(topic, (b"a", b"4"), producer_id=7, producer_epoch=0, base_sequence=4)

    def test_thinned_batches_keep_their_sequences(self, log: Log) -> None:
        topic = log.topic(config=COMPACT)
        mine = dict(producer_id=7, producer_epoch=3, base_sequence=0)
        log.put(topic, (b"a", b"1"), (b"mine", b"1"), (b"b", b"1"), **mine)
        fill(log, topic, 6)
        log.put(topic, (b"a", b"3"), (b"b", b"3"))
        seal(log, topic)
        log.compact()
        (kept,) = [h for h in headers(log) if h.producer_id == 7]
        assert (kept.base_offset, kept.last_offset, kept.record_count) == (0, 2, 1)
        assert (kept.producer_epoch, kept.base_sequence) == (3, 0)
        assert pairs(topic)[0] == (b"mine", b"1")


class TestWhatIsCompacted:
    def test_never_the_active_segment(self, log: Log) -> None:
        topic = log.topic(config=COMPACT | {"segment.bytes": "100000"})
        fill(log, topic)
        before = pairs(topic)
        log.compact()
        assert pairs(topic) == before

    def test_what_may_not_be_decided_yet_stays(self, log: Log) -> None:
        topic = log.topic(config=COMPACT)
        fill(log, topic)
        seal(log, topic)
        partition = topic.partition(0)
        second = partition.segments[1]
        assert cleanable(partition, NOW, second.next_offset - 1) == partition.segments[:1]
        assert cleanable(partition, NOW, second.next_offset) == partition.segments[:2]

    def test_not_before_the_least_lag(self, log: Log) -> None:
        topic = log.topic(config=COMPACT | {"min.compaction.lag.ms": "5000"})
        fill(log, topic)
        seal(log, topic)
        count = len(records(topic))
        log.compact()
        assert len(records(topic)) == count
        log.clock.advance(6)
        log.compact()
        assert len(records(topic)) < count

    def test_the_greatest_lag_rolls_the_active_segment(self, log: Log) -> None:
        config = COMPACT | {"segment.bytes": "100000", "min.cleanable.dirty.ratio": "1"}
        topic = log.topic(config=config | {"max.compaction.lag.ms": "5000"})
        fill(log, topic)
        log.compact()
        assert len(records(topic)) == 30
        log.clock.advance(6)
        log.compact()
        log.compact()
        assert len(records(topic)) == 3

    def test_not_while_too_little_is_new(self, log: Log) -> None:
        topic = log.topic(config=COMPACT | {"min.cleanable.dirty.ratio": "0.9"})
        log.put(topic, *[(b"%d" % n, b"x" * 50) for n in range(5)])
        log.commit()
        seal(log, topic)
        log.compact()
        fill(log, topic, 3)
        seal(log, topic)
        count = len(records(topic))
        log.compact()
        assert len(records(topic)) == count

    def test_not_where_the_policy_does_not_say_so(self, log: Log) -> None:
        topic = log.topic(config={"segment.bytes": "400", "min.cleanable.dirty.ratio": "0"})
        fill(log, topic)
        seal(log, topic)
        count = len(records(topic))
        log.compact()
        assert len(records(topic)) == count

    def test_both_policies_together(self, log: Log) -> None:
        topic = log.topic(
            config=COMPACT | {"cleanup.policy": "compact,delete", "retention.ms": "9000"}
        )
        fill(log, topic)
        seal(log, topic)
        log.compact()
        assert len(records(topic)) < 12
        log.clock.advance(10)
        log.compact()
        log.compact()
        assert records(topic) == []
        assert topic.partition(0).start_offset == topic.partition(0).end_offset

    def test_records_without_a_key_from_before_go(self, log: Log) -> None:
        topic = log.topic(config=COMPACT | {"cleanup.policy": "delete"})
        log.append(topic, b"no key")
        log.commit()
        log.broker.configure(topic, COMPACT)
        fill(log, topic)
        seal(log, topic)
        log.compact()
        assert None not in [key for key, _ in pairs(topic)]


def _with_attributes(files: Files, path: Path, attributes: int) -> bytes:
    file = files.open(path)
    size = parse(file.pread(61, 0)).size
    batch = bytearray(file.pread(size, 0))
    batch[21:23] = attributes.to_bytes(2, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    file.pwrite([bytes(batch)], 0)
    return bytes(batch)


class TestReaders:
    def test_a_reader_in_the_middle_goes_on(self, log: Log) -> None:
        topic = log.topic(config=COMPACT)
        fill(log, topic)
        seal(log, topic)
        partition = topic.partition(0)
        held = read(partition, 0, 10**6)
        content = bytes(held)
        log.compact()
        assert bytes(held) == content, "what was begun is read from the old file"
        for offset in range(partition.end_offset):
            assert read_records(partition, offset) == [
                record for record in records(topic) if record.offset >= offset
            ]

    def test_search_by_time_passes_what_is_gone(self, log: Log) -> None:
        topic = log.topic(config=COMPACT)
        log.put(topic, (b"k", b"1"), timestamp=NOW + 100)
        log.put(topic, (b"k", b"2"), timestamp=NOW + 200)
        log.commit()
        seal(log, topic)
        log.compact()
        found = offset_for_time(topic.partition(0), NOW + 50)
        assert found is not None
        assert found == (1, NOW + 200)
        assert newest_by_time(topic.partition(0)) == (1, NOW + 200)


class TestPass:
    def test_more_keys_than_fit_take_several(self, log: Log) -> None:
        topic = log.topic(config=COMPACT | {"cleanup.policy": "delete"})
        for number in range(40):
            log.put(topic, (b"%d" % (number % 20), b"%d" % number))
        log.commit()
        seal(log, topic)
        partition = topic.partition(0)
        segments = cleanable(partition, NOW, partition.durable_offset)
        plan = Plan(
            folder=str(FOLDER),
            groups=[[segment.base_offset] for segment in segments],
            sizes=[segment.size for segment in segments],
            end=segments[-1].next_offset,
            dirty=0,
            needed=[],
            aborted=[],
            fences=[],
            now=NOW,
            delete_retention_ms=0,
            index_interval=100,
            keys_max=5,
            free_bytes_min=0,
        )
        reports = list(clean(log.files, plan, lambda size: None))
        *groups, last = reports
        assert last == Finished(5, None)
        assert all(isinstance(report, Cleaned) for report in groups)
        assert len(groups) < len(segments)

    @pytest.fixture
    def plan(self, log: Log) -> Plan:
        """For the first segment of a partition."""
        topic = log.topic(config=COMPACT)
        fill(log, topic)
        seal(log, topic)
        first = topic.partition(0).segments[0]
        return Plan(
            folder=str(FOLDER),
            groups=[[0]],
            sizes=[first.size],
            end=first.next_offset,
            dirty=0,
            needed=[],
            aborted=[],
            fences=[],
            now=NOW,
            delete_retention_ms=0,
            index_interval=100,
            free_bytes_min=0,
        )

    def test_every_byte_is_accounted_for(self, log: Log, plan: Plan) -> None:
        seen: list[int] = []
        list(clean(log.files, plan, seen.append))
        assert sum(seen) >= 2 * plan.sizes[0]

    def test_files_that_are_not_those_of_the_plan_are_refused(self, log: Log, plan: Plan) -> None:
        with pytest.raises(StorageError, match="expected"):
            list(clean(log.files, plan._replace(sizes=[plan.sizes[0] - 1]), lambda size: None))

    def test_tombstones_stay_behind_batches_that_are_not_judged(self, log: Log) -> None:
        """Whose older values of the same keys would be seen again."""
        config = COMPACT | {"delete.retention.ms": "1000"}
        topic = log.topic(config=config)
        log.put(topic, (b"k", b"1"), producer_id=1, producer_epoch=0, base_sequence=0)
        log.put(topic, (b"k", None))
        log.commit()
        seal(log, topic)
        packed = 0x01  # says the header, and nobody can unpack it
        _with_attributes(log.files, FOLDER / f"{0:020d}.log", packed)
        log.compact()
        log.clock.advance(10)
        log.compact()
        kept = [(header.base_offset, header.record_count) for header in headers(log)]
        assert kept[:2] == [(0, 1), (1, 1)]


class SlowLog(Log):
    """A log whose passes wait until the test lets them run."""

    waiting: Callable[[], None]

    def _compact(self, plan: Plan, report: Callable[[Report], None]) -> None:
        self.waiting = partial(super()._compact, plan, report)


class TestMeanwhile:
    """The broker goes on while a pass runs."""

    @pytest.fixture
    def log(self) -> SlowLog:
        return SlowLog()

    @pytest.fixture
    def topic(self, log: SlowLog) -> Topic:
        topic = log.topic(config=COMPACT | {"cleanup.policy": "compact,delete"})
        fill(log, topic)
        seal(log, topic)
        log.compact()
        return topic

    def left(self, log: SlowLog) -> list[str]:
        folder = log.files.list(FOLDER)
        return [name for name in folder if name.endswith((".cleaned", ".swap"))]

    def test_appends(self, log: SlowLog, topic: Topic) -> None:
        fill(log, topic, 3)
        newest = {record.key: record for record in records(topic)}
        log.waiting()
        fill(log, topic, 0)
        log.commit()
        assert {record.key: record for record in records(topic)} == newest
        assert len(records(topic)) < 30

    def test_no_second_pass(self, log: SlowLog, topic: Topic) -> None:
        first = log.waiting
        log.compact()
        assert log.waiting is first

    def test_retention_removes_what_is_compacted(self, log: SlowLog, topic: Topic) -> None:
        log.broker.delete_records(topic.partition(0), topic.partition(0).segments[1].base_offset)
        log.compact()
        before = records(topic)
        log.waiting()
        log.commit()
        assert records(topic) == before
        assert self.left(log) == []
        log.restart(clean=False)
        assert records(log.broker.topic("t")) == before

    def test_the_topic_is_deleted_and_made_again(self, log: SlowLog, topic: Topic) -> None:
        log.broker.delete_topic(topic)
        log.commit()
        again = log.topic(config=COMPACT)
        log.put(again, (b"k", b"new"))
        log.waiting()
        log.commit()
        assert pairs(again) == [(b"k", b"new")]
        assert self.left(log) == []
        assert not log.files.exists(FOLDER / "compacted.json")

    def test_a_restart(self, log: SlowLog, topic: Topic) -> None:
        before = records(topic)
        log.files.open(FOLDER / f"{0:020d}.log.cleaned", create=True)
        log.restart(clean=True)
        assert records(log.broker.topic("t")) == before
        assert self.left(log) == []


def test_a_full_disk_leaves_everything_as_it_is(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = log.topic(config=COMPACT)
    fill(log, topic)
    seal(log, topic)
    before, names = pairs(topic), set(log.files.list(FOLDER))
    # Enough for the broker, too little for the pass.
    room = log.files.free_bytes(DATA)
    monkeypatch.setattr(log.files, "free_bytes", lambda path: 100 if path == FOLDER else room)
    log.compact()
    assert pairs(topic) == before
    assert set(log.files.list(FOLDER)) == names
    monkeypatch.undo()
    log.compact()
    assert pairs(topic) == before, "it is left alone for a while"
    log.clock.advance(61)
    log.compact()
    assert len(pairs(topic)) < len(before)


def test_damage_is_not_copied(log: Log) -> None:
    topic = log.topic(config=COMPACT)
    fill(log, topic)
    seal(log, topic)
    path = FOLDER / f"{0:020d}.log"
    log.files.open(path).pwrite([b"\xff"], 70)
    size = log.files.list(FOLDER)[path.name]
    log.compact()
    names = log.files.list(FOLDER)
    assert names[path.name] == size
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
