"""Fetch and ListOffsets in all their corners, with exact answers."""

from __future__ import annotations

import uuid

import pytest
from kafka.protocol.metadata import MetadataRequest
from tests.clients.admin_requests import delete_records, delete_topic, offset_for_epoch
from tests.clients.brokers import Broker
from tests.clients.contract import Code, MakeTopic, Record, numbered
from tests.clients.wire import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NAMED_FETCH,
    Wire,
    build_batch,
    fetch_request,
    list_offsets_request,
    produce_request,
    read_batches,
)

pytestmark = pytest.mark.compat

EARLIEST_LOCAL, LATEST_TIERED = -4, -5
BATCH = 10


@pytest.fixture
def thirty(wire: Wire, topic: str) -> str:
    """Three batches of ten records."""
    for _ in range(3):
        wire.write(topic, numbered(BATCH))
    return topic


class TestFetch:
    @pytest.mark.parametrize("offset", [0, 5, 10, 19, 29])
    def test_whole_batch_that_holds_the_offset(self, wire: Wire, thirty: str, offset: int) -> None:
        answer = wire.fetch(thirty, offset)
        batches = read_batches(answer.records)
        assert answer.error_code == Code.NONE
        assert batches[0].base == offset - offset % BATCH
        assert batches[-1].last == 29
        assert (answer.high_watermark, answer.last_stable_offset) == (30, 30)
        assert answer.log_start_offset == 0

    def test_at_the_end_there_is_nothing(self, wire: Wire, thirty: str) -> None:
        answer = wire.fetch(thirty, 30, max_wait_ms=0)
        assert (answer.error_code, answer.high_watermark) == (Code.NONE, 30)
        assert not answer.records

    @pytest.mark.parametrize("offset", [31, -1, 1 << 40])
    def test_out_of_range(self, wire: Wire, thirty: str, offset: int) -> None:
        answer = wire.fetch(thirty, offset)
        assert answer.error_code == Code.OFFSET_OUT_OF_RANGE
        assert not answer.records

    def test_below_the_start(self, wire: Wire, thirty: str) -> None:
        wire.call(delete_records(thirty, 15))
        assert wire.fetch(thirty, 14).error_code == Code.OFFSET_OUT_OF_RANGE
        answer = wire.fetch(thirty, 15)
        assert (answer.error_code, answer.log_start_offset) == (Code.NONE, 15)
        assert read_batches(answer.records)[0].base == 10

    def test_size_limit_of_a_partition(self, wire: Wire, thirty: str) -> None:
        size = len(build_batch(numbered(BATCH)))
        for limit, batches in ((0, 1), (1, 1), (size, 1), (2 * size, 2), (2 * size + 30, 2)):
            answer = wire.fetch(thirty, 0, partition_max_bytes=limit)
            assert [batch.base for batch in read_batches(answer.records)] == [0, 10][:batches]

    @pytest.mark.parametrize("limit", [0, 1])
    def test_size_limit_of_the_answer(self, wire: Wire, make_topic: MakeTopic, limit: int) -> None:
        topic = make_topic(partitions=3)
        for partition in range(3):
            wire.write(topic, numbered(BATCH), partition=partition)
        request = fetch_request(topic, {0: 0, 1: 0, 2: 0}, max_bytes=limit)
        (answer,) = wire.call(request, NAMED_FETCH).responses
        sizes = [len(read_batches(one.records)) for one in answer.partitions if one.records]
        assert sizes == [1]
        assert {one.error_code for one in answer.partitions} == {Code.NONE}

    def test_unknown_topic_and_partition(self, wire: Wire, topic: str) -> None:
        assert wire.fetch(f"{topic}-not", 0).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        missing = wire.fetch(topic, 0, partition=7)
        assert missing.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_unknown_partition_by_topic_id(self, wire: Wire, topic: str) -> None:
        request = fetch_request("", {7: 0}, topic_id=wire.metadata(topic).topic_id)
        (partition,) = wire.call(request).responses[0].partitions
        assert partition.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_unknown_topic_id(self, wire: Wire) -> None:
        request = fetch_request("", {0: 0}, topic_id=uuid.uuid4())
        answer = wire.call(request)
        assert answer.error_code == Code.NONE
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == Code.UNKNOWN_TOPIC_ID

    def test_leader_epochs(self, wire: Wire, thirty: str) -> None:
        epoch = wire.metadata(thirty).partitions[0].leader_epoch
        assert wire.fetch(thirty, 0, leader_epoch=epoch).error_code == Code.NONE
        newer = wire.fetch(thirty, 0, leader_epoch=epoch + 1)
        assert newer.error_code == Code.UNKNOWN_LEADER_EPOCH
        (topic,) = wire.call(offset_for_epoch(thirty, epoch, current=epoch)).topics
        (answer,) = topic.partitions
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, epoch, 30)

    def test_waits_until_there_is_enough(self, broker: Broker, wire: Wire, topic: str) -> None:
        size = len(build_batch(numbered(BATCH)))
        request = fetch_request(topic, {0: 0}, min_bytes=2 * size, max_wait_ms=30_000)
        wire.send(request, NAMED_FETCH)
        with broker.wire() as other:
            for _ in range(2):
                other.write(topic, numbered(BATCH))
        (partition,) = wire.receive(request).responses[0].partitions
        assert [batch.base for batch in read_batches(partition.records)] == [0, 10]

    def test_an_error_does_not_wait(self, wire: Wire, thirty: str) -> None:
        answer = wire.fetch(thirty, 99, min_bytes=1 << 20, max_wait_ms=600_000)
        assert answer.error_code == Code.OFFSET_OUT_OF_RANGE

    def test_a_waiting_fetch_holds_up_only_its_connection(
        self, broker: Broker, wire: Wire, topic: str
    ) -> None:
        waiting = fetch_request(topic, {0: 0}, max_wait_ms=30_000)
        asking = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        wire.send(waiting, NAMED_FETCH)
        wire.send(asking, 12)
        with broker.wire() as other:
            other.write(topic, numbered(1))
        assert wire.receive(waiting).responses[0].partitions[0].high_watermark == 1
        assert len(wire.receive(asking).brokers) == 1

    def test_deleting_the_topic_ends_the_wait(self, broker: Broker, wire: Wire, topic: str) -> None:
        waiting = fetch_request(topic, {0: 0}, max_wait_ms=2_000)
        wire.send(waiting, NAMED_FETCH)
        with broker.wire() as other:
            other.call(delete_topic(topic))
        (partition,) = wire.receive(waiting).responses[0].partitions
        assert not partition.records


class TestSessions:
    """KIP-227: after the first, full answer only what changes is named."""

    @pytest.fixture
    def wide(self, make_topic: MakeTopic) -> str:
        return make_topic(partitions=3)

    def open(self, wire: Wire, topic: str) -> tuple[int, uuid.UUID]:
        identity = wire.metadata(topic).topic_id
        offsets = {0: 0, 1: 0, 2: 0}
        request = fetch_request(topic, offsets, topic_id=identity, session_epoch=0, max_wait_ms=0)
        answer = wire.call(request)
        assert answer.error_code == Code.NONE
        assert answer.session_id > 0
        assert sorted(one.partition_index for one in answer.responses[0].partitions) == [0, 1, 2]
        return answer.session_id, identity

    def test_only_what_changed(self, wire: Wire, wide: str) -> None:
        session, identity = self.open(wire, wide)
        quiet = fetch_request(
            wide, {}, session_id=session, session_epoch=1, topic_id=identity, max_wait_ms=0
        )
        assert wire.call(quiet).responses == []
        wire.write(wide, numbered(5), partition=1)
        busy = fetch_request(wide, {}, session_id=session, session_epoch=2, topic_id=identity)
        answer = wire.call(busy)
        assert (answer.error_code, answer.session_id) == (Code.NONE, session)
        (partition,) = answer.responses[0].partitions
        assert (partition.partition_index, partition.high_watermark) == (1, 5)
        assert read_batches(partition.records)[0].last == 4

    def test_position_moves_and_partition_is_forgotten(self, wire: Wire, wide: str) -> None:
        session, identity = self.open(wire, wide)
        for partition in range(3):
            wire.write(wide, numbered(5), partition=partition)
        request = fetch_request(
            wide,
            {1: 5},
            session_id=session,
            session_epoch=1,
            topic_id=identity,
            forgotten={wide: [2]},
        )
        (topic,) = wire.call(request).responses
        found = {one.partition_index: one for one in topic.partitions}
        assert sorted(found) == [0, 1]  # 1 has nothing to read, but its high watermark is news
        assert found[0].records
        assert (found[1].high_watermark, bool(found[1].records)) == (5, False)

    def test_wrong_epoch(self, wire: Wire, wide: str) -> None:
        session, identity = self.open(wire, wide)
        request = fetch_request(
            wide, {}, session_id=session, session_epoch=5, topic_id=identity, max_wait_ms=0
        )
        assert wire.call(request).error_code == Code.INVALID_FETCH_SESSION_EPOCH

    def test_unknown_session(self, wire: Wire) -> None:
        request = fetch_request("", {}, session_id=123_456_789, session_epoch=1, max_wait_ms=0)
        assert wire.call(request).error_code == Code.FETCH_SESSION_ID_NOT_FOUND

    def test_closed_session(self, wire: Wire, wide: str) -> None:
        session, identity = self.open(wire, wide)
        closing = fetch_request(
            wide, {}, session_id=session, session_epoch=-1, topic_id=identity, max_wait_ms=0
        )
        answer = wire.call(closing)
        assert (answer.error_code, answer.session_id) == (Code.NONE, 0)
        again = fetch_request(
            wide, {}, session_id=session, session_epoch=1, topic_id=identity, max_wait_ms=0
        )
        assert wire.call(again).error_code == Code.FETCH_SESSION_ID_NOT_FOUND

    def test_error_is_reported_again(self, wire: Wire, wide: str) -> None:
        identity = wire.metadata(wide).topic_id
        request = fetch_request(wide, {0: 99}, topic_id=identity, session_epoch=0)
        first = wire.call(request)
        again = fetch_request(
            wide, {}, session_id=first.session_id, session_epoch=1, topic_id=identity
        )
        for answer in (first, wire.call(again)):
            (partition,) = answer.responses[0].partitions
            assert partition.error_code == Code.OFFSET_OUT_OF_RANGE


class TestListOffsets:
    @pytest.fixture
    def timed(self, wire: Wire, topic: str) -> str:
        """Two batches whose times go up and down."""
        wire.write(topic, [Record(b"x", timestamp=1000 * n) for n in (5, 9, 7)])
        wire.write(topic, [Record(b"x", timestamp=1000 * n) for n in (8, 12, 12, 6)])
        return topic

    @pytest.mark.parametrize(
        ("timestamp", "offset", "found"),
        [
            (EARLIEST, 0, -1),
            (LATEST, 7, -1),
            (EARLIEST_LOCAL, 0, -1),
            (LATEST_TIERED, -1, -1),
            (MAX_TIMESTAMP, 4, 12_000),
            (0, 0, 5_000),
            (5_000, 0, 5_000),
            (5_001, 1, 9_000),
            (9_001, 4, 12_000),
            (12_001, -1, -1),
        ],
    )
    def test_every_kind(
        self, wire: Wire, timed: str, timestamp: int, offset: int, found: int
    ) -> None:
        answer = wire.list_offsets(timed, {0: timestamp})[0]
        assert (answer.error_code, answer.offset, answer.timestamp) == (Code.NONE, offset, found)

    @pytest.mark.parametrize("timestamp", [EARLIEST, LATEST])
    def test_empty(self, wire: Wire, topic: str, timestamp: int) -> None:
        answer = wire.list_offsets(topic, {0: timestamp})[0]
        assert (answer.error_code, answer.offset) == (Code.NONE, 0)

    @pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP, 0])
    def test_empty_has_no_times(self, wire: Wire, topic: str, timestamp: int) -> None:
        answer = wire.list_offsets(topic, {0: timestamp})[0]
        assert (answer.error_code, answer.offset, answer.timestamp) == (Code.NONE, -1, -1)

    def test_after_records_were_deleted(self, wire: Wire, timed: str) -> None:
        wire.call(delete_records(timed, 2))
        assert wire.offset(timed, EARLIEST) == 2
        assert wire.offset(timed, 5_000) == 2

    def test_unknown(self, wire: Wire, topic: str) -> None:
        missing = wire.list_offsets(topic, {3: LATEST})[3]
        assert missing.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        (unknown,) = wire.call(list_offsets_request(f"{topic}-not", {0: LATEST})).topics
        assert unknown.partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_compressed(self, wire: Wire, topic: str) -> None:
        records = [Record(b"y" * 50, timestamp=1000 * n) for n in range(1, 101)]
        wire.append(topic, build_batch(records, codec="lz4"))
        assert wire.offset(topic, 56_789) == 56
        assert wire.offset(topic, MAX_TIMESTAMP) == 99

    def test_time_of_the_log(self, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
        request = produce_request(topic, {0: build_batch([Record(b"x", timestamp=1)] * 3)})
        (answer,) = wire.call(request, 12).responses[0].partition_responses
        stamp = answer.log_append_time_ms
        assert stamp > 1_600_000_000_000
        first = wire.list_offsets(topic, {0: 1})[0]
        assert (first.offset, first.timestamp) == (0, stamp)
        newest = wire.list_offsets(topic, {0: MAX_TIMESTAMP})[0]
        assert (newest.offset, newest.timestamp) == (0, stamp)
