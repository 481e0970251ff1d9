"""Requests that take long: others are answered in between, and what is answered is the same."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol import admin, consumer, producer
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from tests.clients.admin_requests import create_topics
from tests.unit.kafka.exchange import PEER, Exchange, Slot, answer

from penstock.kafka import cluster
from penstock.kafka.errors import Code
from penstock.kafka.pace import Pace
from penstock.limits import LARGE_REQUEST_BYTES_MIN, PIECE_SECONDS_MAX, REQUEST_VALUES_MAX
from penstock.testing.clock import ManualClock
from penstock.wire import codec
from penstock.wire.errors import MalformedRequestError

METADATA = 3
VERSION = 9
SMALL = ("a", "b", "c")
LARGE = tuple(f"topic-{number:04}" for number in range(LARGE_REQUEST_BYTES_MIN // 8))


class SlowClock(ManualClock):
    """Every look at it takes as long as a piece may: each item is a piece."""

    def monotonic(self) -> float:
        self.advance(PIECE_SECONDS_MAX)
        return super().monotonic()


class Slow(Exchange):
    """Where everything takes long, and the test says when something happens."""

    def open(self) -> None:
        super().open()
        self.turns: list[Callable[[], None]] = []
        self.thread: list[Callable[[], None]] = []
        self.context.pace = Pace(SlowClock(), self.turns.append, self._apart)

    def _apart(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        def work() -> None:
            job()
            done()

        self.thread.append(work)

    def turn(self) -> None:
        """One turn of the loop."""
        self.turns.pop(0)()

    def work(self) -> None:
        """One job of the thread."""
        self.thread.pop(0)()

    def drain(self) -> None:
        super().drain()
        while self.turns or self.thread:
            for waiting in (self.turns, self.thread):
                while waiting:
                    waiting.pop(0)()
            super().drain()


@pytest.fixture
def slow() -> Slow:
    return Slow()


def metadata(*names: str) -> Any:
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=[topic(name=name) for name in names], allow_auto_topic_creation=False
    )


def names(request: Any, slot: Slot) -> list[str]:
    return [topic.name for topic in answer(request, VERSION, slot).topics]


def is_answered_at_once(exchange: Exchange) -> bool:
    return exchange.begin(ApiVersionsRequest(), 0).data is not None


class TestPieces:
    def test_others_are_answered_between_them(self, slow: Slow) -> None:
        request = metadata(*SMALL)
        slot = slow.begin(request, VERSION)
        pieces = 0
        while slow.turns:
            assert slot.data is None
            assert slot.held == 1
            assert is_answered_at_once(slow)
            slow.turn()
            pieces += 1
        assert pieces >= 2 * len(SMALL)
        assert slot.held == 0, "the client's next request need not wait for the encoding"
        assert is_answered_at_once(slow)
        slow.work()
        assert names(request, slot) == list(SMALL)

    def test_what_is_quick_is_one_piece(self, exchange: Exchange) -> None:
        slot = exchange.begin(metadata(*SMALL), VERSION)
        assert slot.data is not None
        assert slot.held == 0

    def test_requests_take_turns(self, slow: Slow) -> None:
        long, short = slow.begin(metadata(*SMALL), VERSION), slow.begin(metadata("a"), VERSION)
        while short.held:
            slow.turn()
        assert long.held == 1

    def test_one_piece_in_a_turn(self, slow: Slow) -> None:
        for _ in range(3):
            slow.begin(metadata(*SMALL), VERSION)
        for _ in range(5):
            assert len(slow.turns) == 1
            slow.turn()

    def test_a_failure_ends_the_connection(
        self, slow: Slow, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slot = slow.begin(metadata(*SMALL), VERSION)
        monkeypatch.setattr(cluster, "_missing", lambda *_: 1 / 0)
        slow.drain()
        assert isinstance(slot.failed, ZeroDivisionError)
        assert slot.held == 0

    def test_so_does_an_answer_that_cannot_be_encoded(
        self, slow: Slow, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slot = slow.begin(metadata(*SMALL), VERSION)
        monkeypatch.setattr(codec, "encode", lambda *_: 1 / 0)
        slow.drain()
        assert isinstance(slot.failed, ZeroDivisionError)


class TestLargeFrames:
    def test_they_are_decoded_apart(self, slow: Slow) -> None:
        request = metadata(*LARGE)
        slot = slow.begin(request, VERSION)
        assert not slow.turns
        assert slot.held == 1
        assert is_answered_at_once(slow)
        slow.work()
        assert slow.turns
        assert is_answered_at_once(slow)
        slow.drain()
        assert names(request, slot) == list(LARGE)
        assert slot.held == 0

    def test_one_is_handled_at_a_time(self, slow: Slow) -> None:
        first, second = slow.begin(metadata(*LARGE), VERSION), slow.begin(metadata(*LARGE), VERSION)
        slow.work()
        while first.held:
            assert not slow.thread, "the second is not decoded yet"
            slow.turn()
        assert second.data is None
        slow.drain()
        assert second.data is not None

    def test_whose_client_has_gone_is_not_handled(self, slow: Slow) -> None:
        slots = [slow.begin(create_topics(*LARGE), 5) for _ in range(3)]
        for slot in slots:
            assert slot.waiting is not None
            slot.waiting.abandon()
        slow.drain()
        assert [slot.data for slot in slots] == [None] * 3
        assert not slow.broker.topics()
        slot = slow.begin(metadata(*LARGE), VERSION)
        slow.drain()
        assert slot.data is not None, "those behind it are"

    def test_what_is_malformed_ends_the_connection(self, slow: Slow) -> None:
        frame = struct.pack(">hhih", METADATA, 1, 7, -1) + bytes([127] * LARGE_REQUEST_BYTES_MIN)
        slot = Slot()
        slow.dispatcher.handle(memoryview(frame), PEER, slot)
        slow.drain()
        assert isinstance(slot.failed, MalformedRequestError)
        assert slot.held == 0
        later = slow.begin(metadata(*LARGE), VERSION)
        slow.drain()
        assert later.data is not None, "others go on"

    def test_too_many_values_end_the_connection(self, slow: Slow) -> None:
        topic = consumer.OffsetFetchRequest.OffsetFetchRequestTopic
        numbers = list(range(REQUEST_VALUES_MAX))
        request = consumer.OffsetFetchRequest(
            group_id="g", topics=[topic(name="a", partition_indexes=numbers)]
        )
        slot = slow.begin(request, 1)
        slow.drain()
        assert "more than 500000 values" in str(slot.failed)

    def test_metadata_of_100_000_topics_is_not_too_much(self) -> None:
        request = metadata(*map(str, range(100_000)))
        body = memoryview(request.encode(version=8))
        assert len(codec.decode_bounded(MetadataRequest, body, 8).topics) == 100_000


BOTH = ["orders", "none"]
PLACES = [("orders", [0, 1, 9]), ("none", [0])]
"""Several of everything, of which some exists."""


def leaving() -> Any:
    member = consumer.LeaveGroupRequest.MemberIdentity
    members = [member(member_id=name, group_instance_id=None) for name in BOTH]
    return consumer.LeaveGroupRequest(group_id="g", members=members)


def list_offsets() -> Any:
    topic = consumer.ListOffsetsRequest.ListOffsetsTopic
    fields = {"current_leader_epoch": -1, "timestamp": -1}
    topics = [
        topic(
            name=name,
            partitions=[topic.ListOffsetsPartition(partition_index=n, **fields) for n in numbers],
        )
        for name, numbers in PLACES
    ]
    return consumer.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)


def epochs() -> Any:
    topic = consumer.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    fields = {"current_leader_epoch": -1, "leader_epoch": 0}
    topics = [
        topic(
            topic=name,
            partitions=[topic.OffsetForLeaderPartition(partition=n, **fields) for n in numbers],
        )
        for name, numbers in PLACES
    ]
    return consumer.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def offset_fetch() -> Any:
    topic = consumer.OffsetFetchRequest.OffsetFetchRequestTopic
    topics = [topic(name=name, partition_indexes=numbers) for name, numbers in PLACES]
    return consumer.OffsetFetchRequest(group_id="g", topics=topics)


def offset_commit() -> Any:
    """Large enough to be handled in pieces, by its metadata."""
    topic = consumer.OffsetCommitRequest.OffsetCommitRequestTopic
    item = topic.OffsetCommitRequestPartition
    fields = {
        "committed_offset": 0,
        "committed_leader_epoch": -1,
        "committed_metadata": "x" * 4000,
    }
    topics = [
        topic(name=name, partitions=[item(partition_index=n, **fields) for n in numbers])
        for name, numbers in PLACES
    ]
    return consumer.OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics
    )


def delete_records() -> Any:
    topic = admin.DeleteRecordsRequest.DeleteRecordsTopic
    item = topic.DeleteRecordsPartition
    topics = [
        topic(name=name, partitions=[item(partition_index=n, offset=0) for n in numbers])
        for name, numbers in PLACES
    ]
    return admin.DeleteRecordsRequest(topics=topics, timeout_ms=1)


def describe_configs() -> Any:
    resource = admin.DescribeConfigsRequest.DescribeConfigsResource
    resources = [
        resource(resource_type=2, resource_name=name, configuration_keys=None) for name in BOTH
    ]
    return admin.DescribeConfigsRequest(resources=resources)


def add_partitions() -> Any:
    topic = producer.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return producer.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic(name=name, partitions=numbers) for name, numbers in PLACES],
    )


REQUESTS: dict[str, tuple[Any, int]] = {
    "metadata": (metadata(*BOTH), VERSION),
    "metadata of all": (MetadataRequest(topics=None), VERSION),
    "coordinators": (FindCoordinatorRequest(key_type=0, coordinator_keys=BOTH), 4),
    "create": (create_topics("new", "orders", "new2"), 5),
    "delete": (admin.DeleteTopicsRequest(topic_names=BOTH, timeout_ms=1), 3),
    "describe groups": (admin.DescribeGroupsRequest(groups=BOTH), 4),
    "delete groups": (admin.DeleteGroupsRequest(groups_names=BOTH), 1),
    "leave": (leaving(), 3),
    "list offsets": (list_offsets(), 4),
    "epochs": (epochs(), 3),
    "fetch offsets": (offset_fetch(), 5),
    "commit": (offset_commit(), 6),
    "delete records": (delete_records(), 1),
    "describe configs": (describe_configs(), 2),
    "add partitions": (add_partitions(), 2),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_pieces_make_the_same_answer(name: str) -> None:
    request, version = REQUESTS[name]
    answers = []
    for exchange in (Exchange(), Slow()):
        exchange.topic("orders", partitions=2)
        slot = exchange.begin(request, version)
        if isinstance(exchange, Slow):
            assert slot.data is None, "it takes long"
        exchange.drain()
        found = answer(request, version, slot).to_dict()
        answers.append(_without_ids(found))
    assert answers[0] == answers[1]


def _without_ids(message: Any) -> Any:
    """What two brokers answer the same."""
    if isinstance(message, list):
        return [_without_ids(item) for item in message]
    if not isinstance(message, dict):
        return message
    kept = {key: value for key, value in message.items() if key not in ("topic_id", "cluster_id")}
    return {key: _without_ids(value) for key, value in kept.items()}


def test_topics_with_too_many_partitions_together_are_refused(exchange: Exchange) -> None:
    results = exchange.send(create_topics("a", "b", partitions=5_001), 5).topics
    assert [one.error_code for one in results] == [Code.POLICY_VIOLATION] * 2
    assert not exchange.broker.topics()
    results = exchange.send(create_topics("a", "b", partitions=5_000, validate_only=True), 5).topics
    assert [one.error_code for one in results] == [Code.NONE] * 2
