"""Compaction of what was written in transactions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.log import DATA, NOW, Log
from tests.support.transactional import Writer, batches, committed

from penstock.broker.appending import Appender
from penstock.broker.producers import ProducerTable
from penstock.broker.topic import Topic
from penstock.log.cleaning import Cleaned, Plan, Report
from penstock.record.batch import HORIZON_FLAG, BatchHeader
from penstock.record.marker import commits, encode_marker

CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "400",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "1000",
}
FOLDER = DATA / "topics" / "t-0"


def seal(log: Log, topic: Topic) -> None:
    """Begin a new segment: everything before can be compacted."""
    partition = topic.partition(0)
    first = partition.active
    while partition.active is first:
        log.put(topic, (b"seal", b"x" * 150))
        log.commit()


def compact(log: Log, topic: Topic) -> None:
    seal(log, topic)
    log.compact()


def pairs(topic: Topic) -> list[tuple[bytes | None, bytes | None]]:
    """What a reader of everything sees, but for what seals segments."""
    return [
        (record.key, record.value)
        for header, records in batches(topic)
        for record in records
        if not header.is_control and record.key != b"seal"
    ]


def values(topic: Topic) -> dict[bytes | None, bytes | None]:
    """The newest committed value of every key."""
    return {r.key: r.value for r in committed(topic) if r.key != b"seal"}


def markers(topic: Topic) -> list[BatchHeader]:
    return [header for header, _ in batches(topic) if header.is_control]


def producers(topic: Topic) -> ProducerTable:
    return Appender.producers(topic.partition(0))


@pytest.fixture
def topic(log: Log) -> Topic:
    return log.topic(config=CONFIG)


@pytest.mark.parametrize("new_epochs", [True, False])
def test_committed_records_replace_older_ones(log: Log, topic: Topic, new_epochs: bool) -> None:
    writer = Writer(log, new_epochs=new_epochs)
    for number in range(10):
        writer.transaction(topic, (b"a", b"%d" % number), (b"b", b"%d" % number))
    compact(log, topic)
    assert pairs(topic) == [(b"a", b"9"), (b"b", b"9")]
    assert values(topic) == {b"a": b"9", b"b": b"9"}


def test_aborted_records_replace_nothing_and_go(log: Log, topic: Topic) -> None:
    writer = Writer(log)
    writer.transaction(topic, (b"a", b"good"))
    writer.transaction(topic, (b"a", b"bad"), (b"b", b"bad"), commit=False)
    log.put(topic, (b"c", b"plain"))
    writer.transaction(topic, (b"c", None), commit=False)
    compact(log, topic)
    assert pairs(topic) == [(b"a", b"good"), (b"c", b"plain")]
    assert values(topic) == {b"a": b"good", b"c": b"plain"}


def test_others_between_the_batches_of_an_aborted_transaction_stay(log: Log, topic: Topic) -> None:
    one, two = Writer(log, "one"), Writer(log, "two")
    one.write(topic, (b"a", b"bad"))
    two.write(topic, (b"b", b"good"))
    log.put(topic, (b"c", b"plain"))
    one.write(topic, (b"b", b"bad"))
    one.end(commit=False)
    two.end(commit=True)
    compact(log, topic)
    assert pairs(topic) == [(b"b", b"good"), (b"c", b"plain")]


def test_nothing_undecided_is_touched(log: Log, topic: Topic) -> None:
    writer, other = Writer(log), Writer(log, "other")
    for number in range(3):
        other.transaction(topic, (b"a", b"%d" % number))
    seal(log, topic)
    writer.write(topic, (b"a", b"open"))
    start = topic.partition(0).end_offset - 1
    for number in range(3, 6):
        other.transaction(topic, (b"a", b"%d" % number))
    compact(log, topic)
    found = [(r.offset, r.value) for _, records in batches(topic) for r in records if r.key == b"a"]
    assert [value for offset, value in found if offset < start] == [b"2"]
    assert [value for offset, value in found if offset >= start] == [b"open", b"3", b"4", b"5"]
    writer.end(commit=True)
    compact(log, topic)
    assert pairs(topic) == [(b"a", b"5")]


class RecordingLog(Log):
    """Remembers of each group that a pass has written where the pass began, and what it unmarked."""

    def __init__(self) -> None:
        self.passes: list[tuple[int, list[int]]] = []
        super().__init__()

    def _compact(self, plan: Plan, report: Callable[[Report], None]) -> None:
        def noted(one: Report) -> None:
            if isinstance(one, Cleaned):
                self.passes.append((plan.dirty, one.unmarked))
            report(one)

        super()._compact(plan, noted)


class TestMarkers:
    def test_one_with_records_stays(self, log: Log, topic: Topic) -> None:
        Writer(log).transaction(topic, (b"a", b"1"))
        for _ in range(4):
            compact(log, topic)
            log.clock.advance(2)
        (marker,) = markers(topic)
        assert not marker.attributes & HORIZON_FLAG

    @pytest.mark.parametrize("commit", [True, False])
    def test_one_without_goes_when_readers_have_had_their_time(
        self, log: Log, topic: Topic, commit: bool
    ) -> None:
        writer = Writer(log)
        writer.transaction(topic, (b"a", b"1"), commit=commit)
        first = markers(topic)[0].base_offset
        writer.transaction(topic, (b"a", b"2"))
        compact(log, topic)
        kept = next(header for header in markers(topic) if header.base_offset == first)
        assert kept.attributes & HORIZON_FLAG
        assert kept.base_timestamp == NOW + 1000
        assert len(producers(topic).aborted_between(0, 10**6)) == (0 if commit else 1)
        log.clock.advance(0.5)
        compact(log, topic)
        assert first in [header.base_offset for header in markers(topic)]
        log.clock.advance(1)
        compact(log, topic)
        assert first not in [header.base_offset for header in markers(topic)]
        assert producers(topic).aborted_between(0, 10**6) == []
        assert values(topic) == {b"a": b"2"}

    def test_a_pass_is_made_for_their_sake(self, log: Log, topic: Topic) -> None:
        log.broker.configure(topic, CONFIG | {"min.cleanable.dirty.ratio": "0.9"})
        writer = Writer(log)
        writer.transaction(topic, (b"a", b"1"), commit=False)
        writer.transaction(topic, (b"a", b"2"))
        compact(log, topic)
        count = len(markers(topic))
        log.clock.advance(2)
        log.compact()
        assert len(markers(topic)) == count - 1

    def test_the_one_that_alone_knows_an_epoch_stays(self, log: Log, topic: Topic) -> None:
        """In the newer protocol a marker raises the epoch, and no batch has it yet."""
        writer = Writer(log)
        writer.transaction(topic, (b"a", b"1"), commit=False)
        log.put(topic, (b"a", b"2"))
        for _ in range(3):
            compact(log, topic)
            log.clock.advance(2)
        (marker,) = markers(topic)
        assert marker.producer_epoch == writer.producer.epoch
        for name in list(log.files.list(FOLDER)):
            if name.endswith(".checkpoint"):
                log.files.remove(FOLDER / name)  # so that the log alone must tell
        log.restart(clean=False)
        table = producers(log.broker.topic("t"))
        assert table.epoch_of(writer.producer.id) == writer.producer.epoch

    def test_it_goes_only_where_a_pass_is_on_record(self) -> None:
        """Because a start looks nowhere else for what is gone."""
        log = RecordingLog()
        topic = log.topic(config=CONFIG)
        writer = Writer(log)
        writer.transaction(topic, (b"a", b"1"), commit=False)
        writer.transaction(topic, (b"a", b"2"))
        compact(log, topic)
        log.files.remove(FOLDER / "compacted.json")
        log.restart(clean=False)
        topic = log.broker.topic("t")
        log.clock.advance(2)
        compact(log, topic)
        gone = [(dirty > 0, unmarked) for dirty, unmarked in log.passes if unmarked]
        assert [on_record for on_record, _ in gone] == [True]

    @pytest.mark.parametrize("commit", [True, False])
    def test_what_it_says_can_be_read_with_any_time(self, commit: bool) -> None:
        marker = encode_marker(1, 2, NOW, commit=commit)
        assert commits(marker) is commit
        assert not commits(marker[:61])


def test_the_last_batch_of_a_producer_keeps_its_marker(log: Log, topic: Topic) -> None:
    """In the older protocol: emptied, it still begins a transaction for those who read the log."""
    writer = Writer(log, new_epochs=False)
    writer.transaction(topic, (b"a", b"1"), commit=False)
    log.put(topic, (b"a", b"2"))
    for _ in range(3):
        compact(log, topic)
        log.clock.advance(2)
    mine = [h for h, _ in batches(topic) if h.producer_id == writer.producer.id]
    assert [(h.record_count, h.is_control) for h in mine] == [(0, False), (1, True)]
    for name in list(log.files.list(FOLDER)):
        if name.endswith(".checkpoint"):
            log.files.remove(FOLDER / name)
    log.restart(clean=False)
    table = producers(log.broker.topic("t"))
    assert not table.open_transactions
    (state,) = [s for s in table.states() if s.producer_id == writer.producer.id]
    assert state.last_sequence == 0


class TestRestart:
    """What a checkpoint says of transactions may be older than what compaction has left of them."""

    EXPECTED = {b"b%d" % number: b"x" * 150 for number in range(4)} | {b"c": b"good"}

    def history(self, log: Log, topic: Topic) -> Writer:
        """An aborted transaction over several segments, of which nothing is left in the end."""
        writer = Writer(log, new_epochs=False)
        for number in range(4):
            writer.write(topic, (b"a", b"%d" % number * 50))
            log.put(topic, (b"b%d" % number, b"x" * 150))
        writer.end(commit=False)
        writer.transaction(topic, (b"c", b"good"))
        return writer

    def settle(self, log: Log, topic: Topic) -> None:
        compact(log, topic)
        log.clock.advance(2)
        compact(log, topic)
        assert len(markers(topic)) == 1

    def test_a_state_from_before_is_told_what_is_gone(self, log: Log, topic: Topic) -> None:
        self.history(log, topic)
        self.settle(log, topic)
        log.restart(clean=False)
        topic = log.broker.topic("t")
        assert producers(topic).aborted_between(0, 10**6) == []
        assert values(topic) == self.EXPECTED

    def test_a_state_in_the_midst_is_not_built_upon(self, log: Log, topic: Topic) -> None:
        """The producer is forgotten after a day, and then nothing is left of its transaction."""
        self.history(log, topic)
        log.clock.advance(2 * 24 * 3600)
        other = dict(producer_id=99, producer_epoch=0, base_sequence=0)
        log.put(topic, (b"c", b"better"), timestamp=log.clock.wall_ms(), **other)
        for _ in range(3):
            compact(log, topic)
            log.clock.advance(2)
        assert markers(topic) == []
        checkpoints = sorted(n for n in log.files.list(FOLDER) if n.endswith(".checkpoint"))
        for name in checkpoints[1:]:
            log.files.remove(FOLDER / name)
        log.restart(clean=False)
        topic = log.broker.topic("t")
        assert not producers(topic).open_transactions
        log.commit()
        assert markers(topic) == []
        assert values(topic) == self.EXPECTED | {b"c": b"better"}

    def test_without_word_of_how_far_all_is_looked_at(self, log: Log, topic: Topic) -> None:
        self.history(log, topic)
        self.settle(log, topic)
        file = log.files.open(FOLDER / "compacted.json")
        file.pwrite([b"?"], 0)
        log.restart(clean=False)
        topic = log.broker.topic("t")
        assert not producers(topic).open_transactions
        assert values(topic) == self.EXPECTED
