"""Fetch: long poll, limits, sessions, cold reads; through the dispatcher, over files in memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest
from tests.unit.kafka.exchange import NOW, PEER, PEER_ELSEWHERE, Exchange, Slot, answer

from penstock.broker.quotas import CONSUME
from penstock.kafka.call import Peer
from penstock.kafka.errors import Code
from penstock.limits import (
    FETCH_BYTES_ENOUGH_HERE,
    FETCH_RECORDS_ENOUGH_HERE,
    TOPIC_NAME_CHARS_MAX,
)
from penstock.record.batch import HEADER_BYTES, TRANSACTIONAL_FLAG, BatchHeader, parse
from penstock.record.encode import NewRecord, encode
from penstock.wire.requests import parse_fetch

VERSION = 11


def fetch_request(*offsets: int, topic: str = "a", leader_epoch: int = -1, **fields: Any) -> Any:
    wanted = FetchRequest.FetchTopic
    fields = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "replica_id": -1} | fields
    partitions = [
        wanted.FetchPartition(
            partition=number,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=fields.get("max_bytes", 1 << 20),
        )
        for number, offset in enumerate(offsets)
    ]
    return FetchRequest(
        topics=[wanted(topic=topic, partitions=partitions)] if partitions else [],
        isolation_level=fields.pop("isolation_level", 0),
        session_id=fields.pop("session_id", 0),
        session_epoch=fields.pop("session_epoch", -1),
        forgotten_topics_data=[],
        rack_id="",
        **fields,
    )


# In records and in bytes, by a little.
ENOUGH_HERE = [
    bytes(FETCH_BYTES_ENOUGH_HERE // FETCH_RECORDS_ENOUGH_HERE)
] * FETCH_RECORDS_ENOUGH_HERE


def append(exchange: Exchange, partition: int, *values: bytes) -> None:
    topic = exchange.broker.topic("a")
    records = [NewRecord(value, timestamp=NOW) for value in values]
    exchange.broker.appender.append(topic, topic.partition(partition), encode(records))


def answered(slot: Slot, exchange: Exchange) -> Any:
    header = fetch_request(0)
    header.API_VERSION = VERSION
    header.with_header()
    return answer(header, VERSION, slot)


def records_of(response: Any) -> dict[int, int]:
    """Partition to the base offset of its first batch, for partitions with data."""
    found = {}
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.records:
                found[partition.partition_index] = parse(bytes(partition.records)).base_offset
    return found


@pytest.fixture
def topic(exchange: Exchange) -> Exchange:
    exchange.topic("a", partitions=3)
    return exchange


def test_a_fetch_waits_until_data_is_durable(topic: Exchange) -> None:
    slot = topic.begin(fetch_request(0, 0, 0), VERSION)
    assert slot.data is None
    append(topic, 1, b"x")
    assert slot.data is None, "appended is not durable"
    topic.drain()
    assert records_of(answered(slot, topic)) == {1: 0}


def test_one_round_answers_for_all_its_partitions(topic: Exchange) -> None:
    slot = topic.begin(fetch_request(0, 0, 0), VERSION)
    append(topic, 0, b"x")
    append(topic, 2, b"y")
    topic.drain()
    assert records_of(answered(slot, topic)) == {0: 0, 2: 0}


def test_a_fetch_waits_for_as_much_as_it_asked_for(topic: Exchange) -> None:
    slot = topic.begin(fetch_request(0, min_bytes=200), VERSION)
    append(topic, 0, b"x")
    topic.drain()
    assert slot.data is None
    append(topic, 0, b"y" * 200)
    topic.drain()
    assert records_of(answered(slot, topic)) == {0: 0}


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(0, Code.FENCED_LEADER_EPOCH), (1, Code.NONE), (2, Code.UNKNOWN_LEADER_EPOCH)],
)
def test_a_client_must_know_which_start_it_reads_from(
    topic: Exchange, epoch: int, code: Code
) -> None:
    append(topic, 1, b"x")
    topic.drain()
    topic.open()
    slot = topic.begin(fetch_request(0, 0, 0, leader_epoch=epoch), VERSION)
    response = answered(slot, topic)
    assert records_of(response) == ({1: 0} if code == Code.NONE else {})
    assert {one.error_code for one in response.responses[0].partitions} == {code}


def test_a_client_that_has_gone_leaves_nothing_behind(topic: Exchange) -> None:
    slot = topic.begin(fetch_request(0, 0, 0), VERSION)
    assert slot.waiting is not None
    slot.waiting.abandon()
    partitions = topic.broker.topic("a").whole_partitions()
    assert not topic.context.waiting_fetches
    assert not any(partition.watchers for partition in partitions)
    append(topic, 1, b"x")
    topic.drain()
    assert slot.data is None


def test_requests_leave_no_cycles_behind(topic: Exchange) -> None:
    gc.collect()
    gc.disable()
    try:
        for offset in range(50):
            slot = topic.begin(fetch_request(offset), VERSION)
            append(topic, 0, b"x")
            topic.drain()
            assert slot.data is not None
        del slot
        assert gc.collect() < 50
    finally:
        gc.enable()


def test_an_error_is_not_waited_with(topic: Exchange) -> None:
    slot = topic.begin(fetch_request(0, 99), VERSION)
    codes = [p.error_code for p in answered(slot, topic).responses[0].partitions]
    assert codes == [Code.NONE, Code.OFFSET_OUT_OF_RANGE]


def test_without_waiting_the_answer_may_be_empty(topic: Exchange) -> None:
    slot = topic.begin(fetch_request(0, max_wait_ms=0), VERSION)
    assert records_of(answered(slot, topic)) == {}


def test_the_limit_holds_for_all_but_the_first_batch(topic: Exchange) -> None:
    for partition in range(3):
        append(topic, partition, b"x" * 1000)
    topic.drain()
    slot = topic.begin(fetch_request(0, 0, 0, max_bytes=10), VERSION)
    assert records_of(answered(slot, topic)) == {0: 0}


def test_a_client_on_this_machine_gets_partition_after_partition(topic: Exchange) -> None:
    for partition in range(3):
        append(topic, partition, *ENOUGH_HERE)
    topic.drain()
    everything: dict[str, Any] = {"max_bytes": 4 * FETCH_BYTES_ENOUGH_HERE}
    first = topic.begin(fetch_request(0, 0, 0, session_epoch=0, **everything), VERSION)
    response = answered(first, topic)
    assert records_of(response) == {0: 0}
    more = {"session_id": response.session_id, **everything}
    second = topic.begin(fetch_request(session_epoch=1, **more), VERSION)
    assert records_of(answered(second, topic)) == {1: 0}
    elsewhere = topic.begin(fetch_request(0, 0, 0, **everything), VERSION, PEER_ELSEWHERE)
    assert records_of(answered(elsewhere, topic)) == {0: 0, 1: 0, 2: 0}


def test_a_client_on_this_machine_gets_large_records_of_several_partitions(topic: Exchange) -> None:
    """It has little to make of them, and would ask for them one partition at a time."""
    for partition in range(3):
        append(topic, partition, *[bytes(1000)] * 700)
    topic.drain()
    slot = topic.begin(fetch_request(0, 0, 0, max_bytes=1 << 24), VERSION)
    assert records_of(answered(slot, topic)) == {0: 0, 1: 0, 2: 0}


def test_a_client_without_a_session_reads_all_partitions_in_turn(topic: Exchange) -> None:
    """Also one that names them in the same order every time, and gets a part of them each time."""
    for partition in range(3):
        for _ in range(2):
            append(topic, partition, *ENOUGH_HERE)
    topic.drain()
    read: list[int] = []
    for _ in range(6):
        response = answered(topic.begin(fetch_request(0, 0, 0, max_bytes=1), VERSION), topic)
        read += records_of(response)
    assert read == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("peer", [PEER, PEER_ELSEWHERE])
def test_what_was_left_out_between_others_is_first_the_next_time(
    topic: Exchange, peer: Peer
) -> None:
    """A batch that is larger than its partition's limit is sent as the first of an answer only."""
    for partition, records in enumerate((100, 300, 100)):
        append(topic, partition, *[bytes(1000)] * records)
    topic.drain()
    seen: list[list[int]] = []
    for _ in range(3):
        request = fetch_request(0, 0, 0, max_bytes=1 << 20)
        for asked in request.topics[0].partitions:
            asked.partition_max_bytes = 200_000
        seen.append(sorted(records_of(answered(topic.begin(request, VERSION, peer), topic))))
    assert seen == [[0, 2], [0, 1, 2], [0, 2]]


@pytest.mark.parametrize("max_bytes", [1, 1000, 40_000, 1 << 20])
def test_aborted_transactions_are_told_as_far_as_the_records_go(
    topic: Exchange, max_bytes: int
) -> None:
    """All that are met, and few others: a reader far behind would be sent the same list each time."""
    partition = topic.broker.topic("a").partition(0)
    for number in range(1000):
        fields = {"producer_id": number % 7, "producer_epoch": 0, "base_sequence": number}
        batch = encode([NewRecord(b"v", timestamp=NOW)], attributes=TRANSACTIONAL_FLAG, **fields)
        partition.append(parse(batch), batch)
        topic.broker.appender.append_marker(partition, number % 7, 0, commit=False)
    topic.broker.commit.appended(partition)
    topic.drain()
    for start in (0, 1, 1001, 1998):
        request = fetch_request(start, isolation_level=1, max_bytes=max_bytes)
        found = answered(topic.begin(request, VERSION), topic).responses[0].partitions[0]
        told = {one.first_offset for one in found.aborted_transactions}
        met = {b.base_offset for b in whole_batches(found.records) if not b.is_control}
        assert met <= told
        assert len(told - met) < 100


@pytest.mark.parametrize("length", [-12, -(2**31), 0, 2**31 - 1])
def test_what_was_aborted_before_damage_is_told(topic: Exchange, length: int) -> None:
    """And nobody waits for a walk that does not get on."""
    partition = topic.broker.topic("a").partition(0)
    for number in range(2):
        fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": number}
        batch = encode([NewRecord(b"v", timestamp=NOW)], attributes=TRANSACTIONAL_FLAG, **fields)
        partition.append(parse(batch), batch)
        topic.broker.appender.append_marker(partition, 1, 0, commit=False)
    topic.broker.commit.appended(partition)
    topic.drain()
    segment = partition.segments[0]
    segment.file.pwrite([length.to_bytes(4, signed=True)], segment.size // 2 + 8)
    slot = topic.begin(fetch_request(0, isolation_level=1, max_bytes=1 << 20), VERSION)
    found = answered(slot, topic).responses[0].partitions[0]
    assert [one.first_offset for one in found.aborted_transactions][:1] == [0]


def test_the_owner_hears_of_damage_once(topic: Exchange, caplog: pytest.LogCaptureFixture) -> None:
    append(topic, 1, b"x")
    topic.drain()
    segment = topic.broker.topic("a").partition(1).segments[0]
    segment.file.pwrite([b"\xff" * 4], 8)
    for _ in range(3):
        slot = topic.begin(fetch_request(0, 0, 0), VERSION)
        codes = [one.error_code for one in answered(slot, topic).responses[0].partitions]
        assert codes == [Code.NONE, Code.KAFKA_STORAGE_ERROR, Code.NONE]
    (told,) = [record for record in caplog.records if record.name == "penstock.kafka.fetch"]
    assert "penstock log verify" in told.getMessage()


def whole_batches(data: bytes) -> Iterator[BatchHeader]:
    at = 0
    while at + HEADER_BYTES <= len(data) and at + parse(data, at).size <= len(data):
        yield parse(data, at)
        at += parse(data, at).size


def test_a_client_on_this_machine_gets_as_much_as_it_waits_for(topic: Exchange) -> None:
    for partition in range(3):
        append(topic, partition, *ENOUGH_HERE)
    topic.drain()
    enough = 2 * FETCH_BYTES_ENOUGH_HERE
    sizes: dict[str, Any] = {"max_bytes": 2 * enough, "min_bytes": enough}
    slot = topic.begin(fetch_request(0, 0, 0, **sizes), VERSION)
    assert records_of(answered(slot, topic)) == {0: 0, 1: 0}


@pytest.mark.parametrize("max_bytes", [10, 2000, 100_000])
def test_no_more_is_waited_for_than_an_answer_has_room_for(topic: Exchange, max_bytes: int) -> None:
    for partition in range(3):
        append(topic, partition, b"x" * 1000)
        append(topic, partition, b"x" * 1000)
    topic.drain()
    sizes: dict[str, Any] = {"max_bytes": max_bytes, "min_bytes": 100_000}
    slot = topic.begin(fetch_request(0, 0, 0, **sizes), VERSION)
    if max_bytes == 100_000:
        assert slot.data is None, "all that there is would have room"
    else:
        assert 0 in records_of(answered(slot, topic))


def test_a_fetch_that_waits_goes_on_when_there_is_as_much_as_has_room(topic: Exchange) -> None:
    slot = topic.begin(fetch_request(0, max_bytes=500, min_bytes=1000), VERSION)
    append(topic, 0, b"x" * 500)
    topic.drain()
    assert records_of(answered(slot, topic)) == {0: 0}


def test_a_quota_leaves_no_more_to_wait_for(topic: Exchange) -> None:
    topic.broker.quotas.change(None, {CONSUME: 1000.0})
    append(topic, 0, b"x" * 900)
    append(topic, 0, b"x" * 900)
    topic.drain()
    slot = topic.begin(fetch_request(0, min_bytes=5000), VERSION)
    assert records_of(answered(slot, topic)) == {0: 0}


def test_a_session_mentions_only_what_changed(topic: Exchange) -> None:
    first = answered(
        topic.begin(fetch_request(0, 0, 0, session_epoch=0, max_wait_ms=0), VERSION), topic
    )
    assert first.session_id > 0
    assert len(first.responses[0].partitions) == 3
    append(topic, 1, b"x")
    topic.drain()
    again = fetch_request(session_id=first.session_id, session_epoch=1)
    second = answered(topic.begin(again, VERSION), topic)
    assert [p.partition_index for p in second.responses[0].partitions] == [1]
    wrong = fetch_request(session_id=first.session_id, session_epoch=1)
    refused = answered(topic.begin(wrong, VERSION), topic)
    assert refused.error_code == Code.INVALID_FETCH_SESSION_EPOCH
    unknown = fetch_request(session_id=12345, session_epoch=1)
    refused = answered(topic.begin(unknown, VERSION), topic)
    assert refused.error_code == Code.FETCH_SESSION_ID_NOT_FOUND


def test_who_wants_more_than_a_session_may_have_is_served_without_one(
    topic: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way of a client: it is told that its session is gone, and makes full fetches from then on."""
    monkeypatch.setattr("penstock.kafka.fetch_session.FETCH_SESSION_PARTITIONS_MAX", 2)
    append(topic, 2, b"x")
    topic.drain()
    at_once: dict[str, Any] = {"max_wait_ms": 0}
    first = answered(topic.begin(fetch_request(0, 0, session_epoch=0, **at_once), VERSION), topic)
    assert first.session_id > 0
    grown = fetch_request(0, 0, 0, session_id=first.session_id, session_epoch=1, **at_once)
    refused = answered(topic.begin(grown, VERSION), topic)
    assert (refused.error_code, refused.session_id) == (Code.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert refused.responses == []
    assert len(topic.context.fetch_sessions) == 0
    for _ in range(2):
        everything = fetch_request(0, 0, 0, session_epoch=0, **at_once)
        full = answered(topic.begin(everything, VERSION), topic)
        assert (full.error_code, full.session_id) == (Code.NONE, 0)
        assert len(full.responses[0].partitions) == 3
        assert records_of(full) == {2: 0}


def test_cold_data_is_read_on_a_thread_and_then_answered(topic: Exchange) -> None:
    append(topic, 0, b"x")
    topic.drain()
    topic.files.cold = True
    slot = topic.begin(fetch_request(0), VERSION)
    # This file system stays cold, so that after a few tries the answer goes out without the data
    # rather than never; the client asks again.
    assert records_of(answered(slot, topic)) == {}


def test_only_names_that_a_topic_can_have_are_remembered() -> None:
    """Or a few hundred requests, each with a name of a megabyte, would take up a gigabyte for good."""
    for extra, remembered in ((0, True), (1, False)):
        name = "x" * (TOPIC_NAME_CHARS_MAX + extra)
        frame = memoryview(fetch_request(0, topic=name).encode(version=VERSION))
        first, again = (next(iter(parse_fetch(frame, VERSION).partitions)) for _ in range(2))
        assert first.topic.name == name
        assert (first.topic is again.topic) == remembered
