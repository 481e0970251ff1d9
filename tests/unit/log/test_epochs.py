"""Epochs: every start marks what it appends, and where each of them ended can be found again."""

from __future__ import annotations

from random import Random

import pytest
from tests.support.log import DATA, NOW, Log, grow

from penstock.broker.topic import Topic
from penstock.errors import DamagedLogError
from penstock.limits import EPOCHS_MAX
from penstock.log.epochs import EpochEnd, end_of_epoch
from penstock.log.journal import Journal
from penstock.log.verify import Damage, scan
from penstock.record.batch import BatchHeader
from penstock.testing.faulty import FaultyFiles

CATALOG = DATA / "catalog.journal"
SMALL = {"segment.bytes": "600", "index.interval.bytes": "200"}
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "400", "min.cleanable.dirty.ratio": "0"}


def headers(log: Log, topic: Topic) -> list[BatchHeader]:
    found = list(scan(log.files, topic.partition(0).folder))
    assert not any(isinstance(one, Damage) for one in found)
    return [one.header for one in found if not isinstance(one, Damage)]


def ends(topic: Topic, *epochs: int) -> list[EpochEnd | None]:
    return [end_of_epoch(topic.partition(0), epoch) for epoch in epochs]


def again(log: Log, *, clean: bool = True) -> Topic:
    log.restart(clean=clean)
    return log.broker.topic("t")


class TestCountingStarts:
    def test_every_start_marks_its_batches(self, log: Log) -> None:
        topic = log.topic()
        for start, clean in enumerate([True, False, True, False]):
            assert log.broker.epoch == start
            log.append(topic, b"a")
            log.commit()
            topic = again(log, clean=clean)
        assert [header.leader_epoch for header in headers(log, topic)] == [0, 1, 2, 3]

    def test_markers_and_new_partitions_have_it_too(self, log: Log) -> None:
        topic = again_with_topic(log)
        log.broker.appender.append_marker(topic.partition(0), 7, 0, commit=True)
        log.commit()
        assert [header.leader_epoch for header in headers(log, topic)] == [1]
        assert log.topic("u").partition(0).epoch == 1

    def test_a_folder_from_before_epochs_were_counted(self, log: Log) -> None:
        """All that it holds is marked with 0."""
        log.topic()
        log.restart(clean=True)
        journal = Journal(log.files, CATALOG)
        journal.rewrite([entry for entry in journal.entries if b"epoch" not in entry])
        again(log)
        assert log.broker.epoch == 1

    @pytest.mark.parametrize("damage", ["gone", "torn"])
    def test_a_catalog_that_may_not_know_the_last_start(self, log: Log, damage: str) -> None:
        for _ in range(3):
            log.restart(clean=True)
        log.topic()
        log.restart(clean=True)
        size = log.files.open(CATALOG).size()
        if damage == "gone":
            log.files.remove(CATALOG)
        else:
            log.files.open(CATALOG).pwrite([b"?"], size // 2)
        again(log)
        assert log.broker.epoch == NOW // 60_000
        again(log)
        assert log.broker.epoch == NOW // 60_000 + 1

    @pytest.mark.parametrize("epoch", [-1, EPOCHS_MAX, 10**30])
    def test_what_cannot_be_an_epoch_is_left_out(self, log: Log, epoch: int) -> None:
        log.restart(clean=True)
        log.store.catalog.begin_epoch(epoch)
        log.restart(clean=True)
        assert log.broker.epoch == 2

    def test_a_catalog_that_is_written_anew_still_counts(self, log: Log) -> None:
        for _ in range(3):
            log.restart(clean=True)
        catalog = log.store.catalog
        catalog._journal.rewrite(catalog._live())
        log.restart(clean=True)
        assert log.broker.epoch == 4

    def test_a_start_that_finds_no_room_is_made(self) -> None:
        files = FaultyFiles()
        log = Log(files)
        log.topic()
        log.restart(clean=True)
        files.capacity = 0
        log.restart(clean=False)
        assert log.broker.epoch == 2


def again_with_topic(log: Log) -> Topic:
    log.topic()
    return again(log)


class TestEnds:
    def test_an_end_that_was_lost(self, log: Log) -> None:
        topic = log.topic(config={"penstock.durability": "os"})
        log.append(topic, b"a", b"b")
        log.append(topic, b"c", b"d")
        log.commit()
        path = topic.partition(0).folder / f"{0:020d}.log"
        log.files.open(path).truncate(log.files.open(path).size() // 2)
        topic = again(log, clean=False)
        assert ends(topic, 0, 1) == [EpochEnd(0, 2), EpochEnd(1, 2)]
        log.append(topic, b"e", b"f", b"g")
        log.commit()
        assert ends(topic, 0, 1) == [EpochEnd(0, 2), EpochEnd(1, 5)]

    def test_topics_in_memory_lose_everything(self, log: Log) -> None:
        topic = log.topic(config={"penstock.durability": "memory"})
        log.append(topic, b"a", b"b")
        topic = again(log)
        assert ends(topic, 0, 1) == [EpochEnd(0, 0), EpochEnd(1, 0)]
        log.append(topic, b"c")
        assert ends(topic, 0, 1) == [EpochEnd(0, 0), EpochEnd(1, 1)]

    def test_epochs_that_are_none(self, log: Log) -> None:
        assert ends(again_with_topic(log), -1, 2, 99) == [None, None, None]

    def test_only_what_is_durable(self, log: Log) -> None:
        topic = again_with_topic(log)
        log.append(topic, b"a")
        assert ends(topic, 0, 1) == [EpochEnd(0, 0), EpochEnd(1, 0)]
        log.commit()
        assert ends(topic, 0, 1) == [EpochEnd(0, 0), EpochEnd(1, 1)]

    def test_epochs_whose_records_are_gone(self, log: Log) -> None:
        topic = log.topic()
        log.append(topic, b"a", b"b")
        topic = again(log)
        log.append(topic, b"c")
        log.commit()
        log.broker.delete_records(topic.partition(0), 2)
        log.commit()
        topic = again(log)
        log.clock.advance(1)
        log.broker.keep_retention()
        log.commit()
        assert ends(topic, 0, 1) == [EpochEnd(0, 2), EpochEnd(1, 3)]

    @pytest.mark.parametrize("seed", range(20))
    def test_any_history(self, log: Log, seed: int) -> None:
        """Beside a walk over all batches: many segments, many epochs in one, and none in some starts."""
        choice = Random(seed)
        topic = log.topic(config=SMALL)
        for _ in range(choice.randint(2, 12)):
            for _ in range(choice.choice([0, 0, 1, 3, 20])):
                log.append(topic, *[b"v" * choice.randint(0, 90)] * choice.randint(1, 5))
                log.commit()
            topic = again(log, clean=choice.random() < 0.5)
        written = headers(log, topic)
        end = topic.partition(0).end_offset
        for epoch in range(log.broker.epoch):
            before = [one for one in written if one.leader_epoch <= epoch]
            after = [one.base_offset for one in written if one.leader_epoch > epoch]
            last = before[-1].leader_epoch if before else epoch
            assert end_of_epoch(topic.partition(0), epoch) == (last, min(after, default=end))

    def test_compaction_keeps_them(self, log: Log) -> None:
        topic = log.topic(config=COMPACT)
        for _ in range(3):
            for number in range(8):
                log.put(topic, (b"k", b"%d" % number))
                log.commit()
            topic = again(log)
        known = ends(topic, 0, 1, 2)
        assert known == [EpochEnd(0, 8), EpochEnd(1, 16), EpochEnd(2, 24)]
        log.compact()
        assert len(headers(log, topic)) < 24
        assert ends(topic, 0, 1, 2) == known

    def test_damage_is_no_end(self, log: Log) -> None:
        """A consumer would believe that it has read what is lost, and begin anew."""
        topic = log.topic()
        for _ in range(4):
            log.append(topic, b"v" * 10)
        log.commit()
        topic = again(log)
        partition = topic.partition(0)
        size = partition.active.size // 4
        partition.active.file.pwrite([b"\0" * 20], 2 * size)
        with pytest.raises(DamagedLogError, match=r"ends at 2.*penstock log verify"):
            end_of_epoch(partition, 0)
        partition.active.file.pwrite([b"\0" * 20], 0)
        with pytest.raises(DamagedLogError, match="no batch at byte 0"):
            end_of_epoch(partition, 0)


def test_a_batch_of_many_offsets(log: Log) -> None:
    """The search goes by offsets, of which there may be billions."""
    topic = log.topic()
    grow(log.broker, topic, 2**31)
    log.commit()
    topic = again(log)
    assert ends(topic, 0) == [EpochEnd(0, 2**31)]
