"""DeleteRecords."""

from __future__ import annotations

import errno

import pytest
from tests.clients.admin_requests import delete_records
from tests.unit.kafka.exchange import NOW, Exchange, answer, versions

from penstock.errors import DamagedLogError
from penstock.kafka.errors import Code


@pytest.fixture
def filled(exchange: Exchange) -> Exchange:
    """A topic with ten records."""
    topic = exchange.topic("a")
    for _ in range(5):
        exchange.append(topic, NOW, NOW)
    return exchange


@pytest.mark.parametrize("version", versions(21))
@pytest.mark.parametrize(("before", "start"), [(0, 0), (3, 3), (10, 10), (-1, 10)])
def test_deleted(filled: Exchange, version: int, before: int, start: int) -> None:
    slot = filled.begin(request := delete_records("a", before), version)
    assert slot.data is None, "answered before it is durable"
    filled.drain()
    (topic,) = answer(request, version, slot).topics
    (result,) = topic.partitions
    assert (topic.name, result.partition_index) == ("a", 0)
    assert (result.error_code, result.low_watermark) == (Code.NONE, start)
    filled.open()
    assert filled.broker.topic("a").partition(0).start_offset == start


def test_nothing_comes_back(filled: Exchange) -> None:
    filled.send_highest(delete_records("a", 7))
    (topic,) = filled.send_highest(delete_records("a", 3)).topics
    (result,) = topic.partitions
    assert (result.error_code, result.low_watermark) == (Code.NONE, 7)


@pytest.mark.parametrize(
    ("name", "partition", "before", "code"),
    [
        ("a", 0, 11, Code.OFFSET_OUT_OF_RANGE),
        ("a", 0, -2, Code.OFFSET_OUT_OF_RANGE),
        ("a", 1, 0, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", -1, 0, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", 0, 0, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_refused(filled: Exchange, name: str, partition: int, before: int, code: Code) -> None:
    (topic,) = filled.send_highest(delete_records(name, before, partition)).topics
    (result,) = topic.partitions
    assert (result.error_code, result.low_watermark) == (code, -1)


def test_damaged(filled: Exchange) -> None:
    filled.broker.topic("a").partitions[0] = DamagedLogError("open", "it is damaged")
    (topic,) = filled.send_highest(delete_records("a", 1)).topics
    assert topic.partitions[0].error_code == Code.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_not_answered_as_done_where_it_cannot_be_recorded(filled: Exchange, code: int) -> None:
    """After a crash they would be there again."""
    filled.files.fail("pwrite", code, sticky=True)
    (topic,) = filled.send_highest(delete_records("a", 7)).topics
    (result,) = topic.partitions
    assert (result.error_code, result.low_watermark) == (Code.KAFKA_STORAGE_ERROR, -1)


def test_done_when_there_is_room_again(filled: Exchange) -> None:
    filled.files.fail("pwrite", errno.ENOSPC, sticky=True)
    filled.send_highest(delete_records("a", 7))
    filled.files.heal()
    (topic,) = filled.send_highest(delete_records("a", 8)).topics
    (result,) = topic.partitions
    assert (result.error_code, result.low_watermark) == (Code.NONE, 8)
    filled.open()
    assert filled.broker.topic("a").partition(0).start_offset == 8


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC])
def test_done_where_no_new_journal_can_be_made(
    filled: Exchange, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr("penstock.log.positions._REWRITE_BYTES", 1)
    filled.files.fail("open", code, sticky=True)
    filled.files.fail("create", code, sticky=True)
    (topic,) = filled.send_highest(delete_records("a", 7)).topics
    (result,) = topic.partitions
    assert (result.error_code, result.low_watermark) == (Code.NONE, 7)
    filled.files.heal()
    filled.open()
    assert filled.broker.topic("a").partition(0).start_offset == 7


def test_what_could_not_be_recorded_is_with_what_comes_next(filled: Exchange) -> None:
    other = filled.topic("b")
    filled.append(other, NOW)
    filled.files.fail("pwrite", errno.ENOSPC, sticky=True)
    filled.send_highest(delete_records("a", 7))
    filled.files.heal()
    filled.send_highest(delete_records("b", 1))
    filled.open()
    assert filled.broker.topic("a").partition(0).start_offset == 7


def test_not_done_where_the_sync_of_its_records_failed(filled: Exchange) -> None:
    filled.append(filled.broker.topic("a"), NOW)
    filled.drain()
    filled.files.fail("sync", errno.EIO)
    (topic,) = filled.send_highest(delete_records("a", 7)).topics
    assert topic.partitions[0].error_code == Code.KAFKA_STORAGE_ERROR
