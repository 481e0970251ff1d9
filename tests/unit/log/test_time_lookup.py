"""Searching by time through batches whose records are not what their header says: clients write both."""

from __future__ import annotations

import struct

import pytest
from tests.support.log import NOW, Log
from tools.fuzz.mutate import fix_batch_checksum

from penstock.broker.topic import Topic
from penstock.log.reading import TimedOffset, newest_by_time, offset_for_time
from penstock.record.compression import compress
from penstock.record.encode import NewRecord, encode


def store(log: Log, topic: Topic, batch: bytearray) -> None:
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    fix_batch_checksum(batch)
    log.broker.appender.append(topic, topic.partition(0), batch)
    log.commit()


def good(log: Log, topic: Topic, *times: int) -> None:
    store(log, topic, encode([NewRecord(b"v", timestamp=time) for time in times]))


@pytest.fixture
def topic(log: Log) -> Topic:
    topic = log.topic()
    good(log, topic, NOW, NOW + 1, NOW + 2)
    return topic


def test_the_first_record_of_a_time(log: Log, topic: Topic) -> None:
    good(log, topic, NOW + 5, NOW + 3)
    partition = topic.partition(0)
    assert offset_for_time(partition, NOW + 2) == TimedOffset(2, NOW + 2)
    assert offset_for_time(partition, NOW + 3) == TimedOffset(3, NOW + 5)
    assert offset_for_time(partition, NOW + 6) is None
    assert newest_by_time(partition) == TimedOffset(3, NOW + 5)


def test_records_that_were_deleted_do_not_count(log: Log, topic: Topic) -> None:
    good(log, topic, NOW + 9, NOW + 1)
    good(log, topic, NOW + 9)
    partition = topic.partition(0)
    log.broker.delete_records(partition, 4)
    log.commit()
    assert offset_for_time(partition, NOW + 5) == TimedOffset(5, NOW + 9)


def test_a_header_that_promises_too_much(log: Log, topic: Topic) -> None:
    """Otherwise every such batch of the log would be opened, and one search could take for ever."""
    batch = encode([NewRecord(b"v", timestamp=NOW + 3)] * 2)
    struct.pack_into(">q", batch, 35, NOW + 1000)
    store(log, topic, batch)
    good(log, topic, NOW + 2000)
    partition = topic.partition(0)
    assert offset_for_time(partition, NOW + 500) == TimedOffset(3, NOW + 1000)
    assert offset_for_time(partition, NOW + 1500) == TimedOffset(5, NOW + 2000)


@pytest.mark.parametrize("codec", [0, 4])
def test_records_that_are_garbage(log: Log, topic: Topic, codec: int) -> None:
    batch = encode([NewRecord(b"v", timestamp=NOW + 3)], codec=codec)
    batch[61:] = b"garbage"
    store(log, topic, batch)
    partition = topic.partition(0)
    assert offset_for_time(partition, NOW + 3) == TimedOffset(3, NOW + 3)
    assert newest_by_time(partition) == TimedOffset(3, NOW + 3)


def test_offsets_outside_of_the_batch(log: Log, topic: Topic) -> None:
    batch = encode([NewRecord(b"v", timestamp=NOW + 3)])
    assert batch[64] == 0  # length, attributes, time, then the offset
    batch[64] = 0x7E
    store(log, topic, batch)
    assert offset_for_time(topic.partition(0), NOW + 3) == TimedOffset(3, NOW + 3)


def test_more_records_than_are_opened(log: Log, topic: Topic) -> None:
    """Seven hundred bytes unpack to a million records, which took two seconds."""
    count = 1_000_000
    one = bytes(encode([NewRecord(None)])[61:])
    batch = encode([NewRecord(None, timestamp=NOW + 3)], codec=4)
    batch[61:] = compress(4, one * count)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    store(log, topic, batch)
    partition = topic.partition(0)
    assert offset_for_time(partition, NOW + 3) == TimedOffset(3, NOW + 3)
    assert newest_by_time(partition) == TimedOffset(3, NOW + 3)
