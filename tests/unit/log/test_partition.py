"""Appending, committing, reading, rolling, retaining: one partition over files in memory."""

from __future__ import annotations

import pytest
from tests.support.log import NOW, Log, values

from penstock.broker.errors import OutOfOrderSequenceError, ProducerFencedError
from penstock.log.reading import (
    OffsetOutOfRangeError,
    newest_by_time,
    offset_for_time,
    read,
)
from penstock.record.batch import parse

SMALL = {"segment.bytes": "1000", "index.interval.bytes": "100"}


def fill(log: Log, count: int = 60, config: dict[str, str] | None = None) -> None:
    topic = log.topic(config=config or SMALL)
    for number in range(count):
        log.append(topic, b"a%d" % number, b"b%d" % number, timestamp=NOW + number)
    log.commit()


def expected(count: int = 60) -> list[bytes]:
    return [prefix + b"%d" % number for number in range(count) for prefix in (b"a", b"b")]


def test_offsets_grow_by_one_per_record(log: Log) -> None:
    topic = log.topic()
    assert [log.append(topic, b"x"), log.append(topic, b"y", b"z"), log.append(topic, b"w")] == [
        0,
        1,
        3,
    ]


def test_readers_see_only_what_is_durable(log: Log) -> None:
    topic = log.topic()
    partition = topic.partition(0)
    log.append(topic, b"first")
    end_round = log.start_round()
    log.append(topic, b"second")
    assert partition.durable_offset == 0
    assert read(partition, 0, 1000) == b""
    with pytest.raises(OffsetOutOfRangeError):
        read(partition, 1, 1000)
    end_round()
    assert values(partition) == [b"first"]
    log.commit()
    assert values(partition) == [b"first", b"second"]


def test_a_topic_that_is_not_synced_is_read_at_once(log: Log) -> None:
    for durability in ("os", "memory"):
        topic = log.topic(durability, {"penstock.durability": durability})
        log.append(topic, b"x")
        assert values(topic.partition(0)) == [b"x"]


def test_callbacks_wait_for_the_round_that_covers_them(log: Log) -> None:
    topic = log.topic()
    done: list[str] = []
    log.append(topic, b"1")
    log.broker.commit.after(lambda: done.append("first"))
    end_round = log.start_round()
    log.append(topic, b"2")
    log.broker.commit.after(lambda: done.append("second"))
    end_round()
    assert done == ["first"]
    log.commit()
    assert done == ["first", "second"]


def test_rolled_segments_read_as_one_log(log: Log) -> None:
    fill(log)
    partition = log.broker.topic("t").partition(0)
    assert len(partition.segments) == 5
    assert values(partition) == expected()
    for offset in range(120):
        assert values(partition, offset) == expected()[offset:]


def test_a_read_starts_with_the_batch_that_holds_the_offset(log: Log) -> None:
    topic = log.topic()
    log.append(topic, b"a", b"b", b"c")
    log.append(topic, b"d")
    log.commit()
    assert parse(bytes(read(topic.partition(0), 1, 10_000))).base_offset == 0
    assert parse(bytes(read(topic.partition(0), 3, 10_000))).base_offset == 3


def test_the_first_batch_is_whole_however_small_the_limit(log: Log) -> None:
    topic = log.topic()
    log.append(topic, b"x" * 50_000)
    log.append(topic, b"y" * 50_000)
    log.commit()
    data = bytes(read(topic.partition(0), 0, 1))
    assert len(data) == parse(data).size


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_finds_everything(log: Log, clean: bool) -> None:
    fill(log)
    log.restart(clean=clean)
    partition = log.broker.topic("t").partition(0)
    assert values(partition) == expected()
    assert (partition.end_offset, partition.durable_offset) == (120, 120)
    log.append(log.broker.topic("t"), b"more")
    log.commit()
    assert values(partition) == [*expected(), b"more"]


def test_a_clean_restart_reads_no_segment_again(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    fill(log)
    caplog.set_level("INFO")
    log.restart(clean=True)
    assert "checked" not in caplog.text
    log.restart(clean=False)


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_after_a_restart(log: Log, clean: bool) -> None:
    topic = log.topic(config=SMALL)
    offsets = [
        log.append(topic, b"v", producer_id=9, producer_epoch=0, base_sequence=number)
        for number in range(40)
    ]
    log.commit()
    log.restart(clean=clean)
    topic = log.broker.topic("t")
    for number in (35, 36, 37, 38, 39):
        again = log.append(topic, b"v", producer_id=9, producer_epoch=0, base_sequence=number)
        assert again == offsets[number]
    with pytest.raises(OutOfOrderSequenceError):
        log.append(topic, b"v", producer_id=9, producer_epoch=0, base_sequence=41)
    assert log.append(topic, b"v", producer_id=9, producer_epoch=1, base_sequence=0) == 40
    with pytest.raises(ProducerFencedError):
        log.append(topic, b"v", producer_id=9, producer_epoch=0, base_sequence=40)


def test_time_look_ups_are_exact(log: Log) -> None:
    fill(log)
    partition = log.broker.topic("t").partition(0)
    for number in range(60):
        found = offset_for_time(partition, NOW + number)
        assert found == (number * 2, NOW + number)
    assert offset_for_time(partition, NOW + 60) is None
    assert newest_by_time(partition) == (118, NOW + 59)
    log.restart(clean=True)
    partition = log.broker.topic("t").partition(0)
    assert offset_for_time(partition, NOW + 31) == (62, NOW + 31)
    assert newest_by_time(partition) == (118, NOW + 59)


def test_retention_by_bytes_removes_whole_old_segments(log: Log) -> None:
    fill(log, config=SMALL | {"retention.bytes": "3000"})
    partition = log.broker.topic("t").partition(0)
    log.broker.keep_retention()
    log.commit()
    assert 2000 <= partition.size_bytes <= 3000 + 1000
    assert partition.start_offset > 0
    assert values(partition, partition.start_offset) == expected()[partition.start_offset :]
    with pytest.raises(OffsetOutOfRangeError):
        read(partition, 0, 1000)
    before = len(log.files.list(partition.folder))
    for job in log.background:
        job()
    assert len(log.files.list(partition.folder)) < before
    log.restart(clean=False)
    again = log.broker.topic("t").partition(0)
    assert again.start_offset == partition.start_offset


def test_retention_by_time_takes_the_active_segment_too(log: Log) -> None:
    fill(log, config=SMALL | {"retention.ms": "1000"})
    partition = log.broker.topic("t").partition(0)
    log.clock.advance(10.0)
    log.broker.keep_retention()
    log.commit()
    log.broker.keep_retention()
    log.commit()
    assert (partition.start_offset, partition.end_offset) == (120, 120)
    assert log.append(log.broker.topic("t"), b"next") == 120


def test_deleted_records_stay_deleted(log: Log) -> None:
    fill(log)
    partition = log.broker.topic("t").partition(0)
    assert log.broker.delete_records(partition, 37) == 37
    log.commit()
    assert values(partition, 37) == expected()[37:]
    log.restart(clean=False)
    partition = log.broker.topic("t").partition(0)
    assert partition.start_offset == 37
    with pytest.raises(OffsetOutOfRangeError):
        read(partition, 36, 1000)
    with pytest.raises(OffsetOutOfRangeError):
        log.broker.delete_records(partition, 500)
    assert log.broker.delete_records(partition, -1) == 120


def test_damaged_indexes_are_rebuilt(log: Log) -> None:
    fill(log)
    log.commit()
    log.broker.close()
    folder = log.broker.topic("t").partition(0).folder
    for name in log.files.list(folder):
        if name.endswith(("index", "timeindex")):
            file = log.files.open(folder / name)
            if file.size():
                file.pwrite([b"\xff"], file.size() // 2)
    log.open()
    partition = log.broker.topic("t").partition(0)
    for offset in range(120):
        assert values(partition, offset) == expected()[offset:]
    assert offset_for_time(partition, NOW + 31) == (62, NOW + 31)


def test_lost_checkpoints_and_indexes_cost_time_only(log: Log) -> None:
    fill(log)
    log.broker.close()
    folder = log.broker.topic("t").partition(0).folder
    for name in log.files.list(folder):
        if name.endswith(("index", "checkpoint")):
            log.files.remove(folder / name)
    log.open()
    assert values(log.broker.topic("t").partition(0)) == expected()
