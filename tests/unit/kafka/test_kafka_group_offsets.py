"""OffsetCommit, OffsetFetch and OffsetDelete in every version, through the table."""

from __future__ import annotations

import errno
from typing import Any
from uuid import UUID, uuid4

import pytest
from kafka.protocol.consumer import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from tests.unit.kafka.exchange import DATA, NOW, Exchange, answer, versions
from tests.unit.kafka.test_kafka_groups import begin_join, member

from penstock.broker.topic import Topic
from penstock.kafka.errors import Code
from penstock.limits import GIB, OFFSETS_RETENTION_MINUTES

COMMIT, FETCH, DELETE = 8, 9, 47
BY_ID = 10
DAY = 24 * 3600.0


def commit_request(
    topic: Topic | tuple[str, UUID],
    offsets: dict[int, int],
    *,
    member_id: str = "",
    generation: int = -1,
    metadata: str | None = "note",
) -> Any:
    name, topic_id = topic if isinstance(topic, tuple) else (topic.name, topic.entry.id)
    message = OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        message.OffsetCommitRequestPartition(
            partition_index=number,
            committed_offset=offset,
            committed_leader_epoch=3,
            committed_metadata=metadata,
        )
        for number, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id="crew",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[message(name=name, topic_id=topic_id, partitions=partitions)],
    )


def commit(exchange: Exchange, *args: Any, version: int = 10, **fields: Any) -> list[int]:
    """The codes of the partitions."""
    response = exchange.send(commit_request(*args, **fields), version)
    return [p.error_code for topic in response.topics for p in topic.partitions]


def fetch_request(version: int, *topics: Topic | tuple[str, UUID], everything: bool = False) -> Any:
    old = OffsetFetchRequest.OffsetFetchRequestTopic
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    kind = old if version < 8 else group.OffsetFetchRequestTopics
    named = [t if isinstance(t, tuple) else (t.name, t.entry.id) for t in topics]
    wanted = (
        None
        if everything
        else [
            kind(name=name, partition_indexes=[0, 1])
            if version < 8
            else kind(name=name, topic_id=topic_id, partition_indexes=[0, 1])
            for name, topic_id in named
        ]
    )
    if version < 8:
        return OffsetFetchRequest(group_id="crew", topics=wanted, require_stable=True)
    return OffsetFetchRequest(groups=[group(group_id="crew", topics=wanted)], require_stable=True)


def fetched(exchange: Exchange, version: int, *topics: Any, everything: bool = False) -> list[Any]:
    """Topics of the answer."""
    response = exchange.send(fetch_request(version, *topics, everything=everything), version)
    if version < 8:
        if version >= 2:
            assert response.error_code == Code.NONE
        return list(response.topics)
    (group,) = response.groups
    assert (group.group_id, group.error_code) == ("crew", Code.NONE)
    return list(group.topics)


def position(exchange: Exchange, topic: Topic, number: int = 0) -> int:
    (found,) = fetched(exchange, 10, topic)
    return int(found.partitions[number].committed_offset)


class TestCommit:
    @pytest.mark.parametrize("version", versions(COMMIT))
    def test_without_members(self, exchange: Exchange, version: int) -> None:
        topic = exchange.topic("orders", 2)
        request = commit_request(topic, {0: 7, 1: 8})
        slot = exchange.begin(request, version)
        assert slot.data is None, "answered before it was durable"
        exchange.drain()
        (result,) = answer(request, version, slot).topics
        if version >= BY_ID:
            assert result.topic_id == topic.entry.id
        else:
            assert result.name == "orders"
        assert [(p.partition_index, p.error_code) for p in result.partitions] == [(0, 0), (1, 0)]
        assert position(exchange, topic, 1) == 8

    def test_only_one_that_moves_on_is_answered_before_it_is_durable(
        self, exchange: Exchange
    ) -> None:
        topic = exchange.topic("orders", 2)
        version = versions(COMMIT)[-1]
        commit(exchange, topic, {0: 5, 1: 5})
        for offsets, at_once in (({0: 6, 1: 5}, True), ({1: 4}, False), ({0: 7, 1: 4}, True)):
            slot = exchange.begin(commit_request(topic, offsets), version)
            assert (slot.data is not None) == at_once, offsets
            exchange.drain()
            assert slot.data is not None
        assert [position(exchange, topic, number) for number in (0, 1)] == [7, 4]

    @pytest.mark.parametrize("version", versions(COMMIT))
    def test_by_a_member(self, exchange: Exchange, version: int) -> None:
        topic = exchange.topic()
        known = member(exchange)

        def code(member_id: str, generation: int) -> int:
            (code,) = commit(
                exchange, topic, {0: 1}, version=version, member_id=member_id, generation=generation
            )
            return code

        assert code(known, 1) == Code.NONE
        assert code(known, 2) == Code.ILLEGAL_GENERATION
        assert code("x", 1) == Code.UNKNOWN_MEMBER_ID
        assert code("", -1) == Code.UNKNOWN_MEMBER_ID
        begin_join(exchange)
        assert code(known, 1) == Code.NONE

    @pytest.mark.parametrize("version", versions(COMMIT))
    def test_a_generation_of_a_group_that_is_not_there(
        self, exchange: Exchange, version: int
    ) -> None:
        topic = exchange.topic()
        codes = commit(exchange, topic, {0: 1}, version=version, member_id="x", generation=3)
        assert codes == [Code.ILLEGAL_GENERATION]

    @pytest.mark.parametrize("version", versions(COMMIT))
    def test_unknown_partitions(self, exchange: Exchange, version: int) -> None:
        topic = exchange.topic()
        codes = commit(exchange, topic, {0: 5, 1: 5, -1: 5}, version=version)
        unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [Code.NONE, unknown, unknown]
        assert position(exchange, topic) == 5
        codes = commit(exchange, ("none", uuid4()), {0: 5}, version=version)
        assert codes == [unknown if version < BY_ID else Code.UNKNOWN_TOPIC_ID]

    def test_metadata_has_a_limit(self, exchange: Exchange) -> None:
        topic = exchange.topic()
        assert commit(exchange, topic, {0: 1}, metadata="é" * 4096) == [Code.NONE]
        too_large = commit(exchange, topic, {0: 2}, metadata="é" * 4097)
        assert too_large == [Code.OFFSET_METADATA_TOO_LARGE]
        assert position(exchange, topic) == 1

    def test_a_failed_disk_is_told(self, exchange: Exchange) -> None:
        topic = exchange.topic()
        exchange.files.fail("pwrite", errno.EIO)
        assert commit(exchange, topic, {0: 1}) == [Code.COORDINATOR_NOT_AVAILABLE]
        assert position(exchange, topic) == -1
        assert commit(exchange, topic, {0: 2}) == [Code.NONE]

    def test_a_disk_too_full_for_records_takes_offsets(self, exchange: Exchange) -> None:
        """In the room that is kept for metadata: readers go on."""
        topic = exchange.topic()
        exchange.append(topic, NOW)  # the reserve is taken when somebody writes
        exchange.files.capacity = GIB
        exchange.files.capacity -= exchange.files.free_bytes(DATA)
        for offset in range(1, 20):
            assert commit(exchange, topic, {0: offset}) == [Code.NONE]
        assert exchange.store.space.full
        assert not exchange.files.exists(DATA / "reserve")

    def test_a_full_disk_is_told(self, exchange: Exchange) -> None:
        """With a code after which clients ask again."""
        topic = exchange.topic()
        exchange.store.space.found_full()
        exchange.files.capacity = 1
        assert commit(exchange, topic, {0: 1}) == [Code.COORDINATOR_NOT_AVAILABLE]

    def test_nothing_to_commit(self, exchange: Exchange) -> None:
        topic = exchange.topic()
        assert commit(exchange, topic, {}) == []


class TestFetch:
    @pytest.mark.parametrize("version", versions(FETCH))
    def test_named(self, exchange: Exchange, version: int) -> None:
        topic = exchange.topic("orders", 2)
        commit(exchange, topic, {0: 7}, metadata="wörds")
        (found,) = fetched(exchange, version, topic)
        assert found.topic_id == topic.entry.id if version >= BY_ID else found.name == "orders"
        first, second = found.partitions
        assert (first.committed_offset, first.metadata) == (7, "wörds")
        assert (second.committed_offset, second.metadata) == (-1, "")
        assert first.error_code == second.error_code == Code.NONE
        if version >= 5:
            assert (first.committed_leader_epoch, second.committed_leader_epoch) == (3, -1)

    @pytest.mark.parametrize("version", [v for v in versions(FETCH) if v >= 2])
    def test_everything(self, exchange: Exchange, version: int) -> None:
        assert fetched(exchange, version, everything=True) == []
        first, second = exchange.topic("a"), exchange.topic("b", 2)
        commit(exchange, first, {0: 1})
        commit(exchange, second, {1: 2})
        found = fetched(exchange, version, everything=True)
        offsets = {
            (t.topic_id if version >= BY_ID else t.name): [
                (p.partition_index, p.committed_offset) for p in t.partitions
            ]
            for t in found
        }
        if version >= BY_ID:
            assert offsets == {first.entry.id: [(0, 1)], second.entry.id: [(1, 2)]}
        else:
            assert offsets == {"a": [(0, 1)], "b": [(1, 2)]}

    @pytest.mark.parametrize("version", versions(FETCH))
    def test_unknown_topics(self, exchange: Exchange, version: int) -> None:
        (found,) = fetched(exchange, version, ("none", uuid4()))
        expected = Code.UNKNOWN_TOPIC_ID if version >= BY_ID else Code.NONE
        assert [p.error_code for p in found.partitions] == [expected] * 2
        assert [p.committed_offset for p in found.partitions] == [-1, -1]

    @pytest.mark.parametrize("version", [8, 9, 10])
    def test_several_groups(self, exchange: Exchange, version: int) -> None:
        topic = exchange.topic()
        commit(exchange, topic, {0: 7})
        message = OffsetFetchRequest.OffsetFetchRequestGroup
        wanted = [message(group_id=name, topics=None) for name in ("crew", "none")]
        response = exchange.send(OffsetFetchRequest(groups=wanted), version)
        counts = {group.group_id: len(group.topics) for group in response.groups}
        assert counts == {"crew": 1, "none": 0}

    def test_null_metadata_comes_back_empty(self, exchange: Exchange) -> None:
        topic = exchange.topic()
        commit(exchange, topic, {0: 7}, metadata=None)
        (found,) = fetched(exchange, 10, topic)
        assert found.partitions[0].metadata == ""


class TestLife:
    """How long offsets are kept."""

    def test_a_restart(self, exchange: Exchange) -> None:
        topic = exchange.grown_topic(7)
        known = member(exchange)
        commit(exchange, topic, {0: 7}, member_id=known, generation=1)
        exchange.open()
        assert position(exchange, topic) == 7
        (group,) = exchange.broker.groups.all()
        assert (group.name, group.state.value, group.protocol_type) == ("crew", "Empty", "consumer")
        codes = commit(exchange, topic, {0: 8}, member_id=known, generation=1)
        assert codes == [Code.UNKNOWN_MEMBER_ID]

    def test_a_deleted_topic(self, exchange: Exchange) -> None:
        topic = exchange.topic()
        commit(exchange, topic, {0: 7})
        exchange.begin(commit_request(topic, {0: 8}), 10)  # on its way when the topic goes
        exchange.broker.delete_topic(topic)
        exchange.drain()
        again = exchange.topic()
        assert position(exchange, again) == -1
        assert exchange.broker.groups.offsets("crew") == {}
        exchange.open()
        assert exchange.broker.groups.offsets("crew") == {}

    def test_seven_days_without_members(self, exchange: Exchange) -> None:
        topic = exchange.topic()
        known = member(exchange)
        commit(exchange, topic, {0: 7}, member_id=known, generation=1)
        exchange.timers.advance(10.0)  # its session ends
        exchange.drain()
        exchange.clock.advance(OFFSETS_RETENTION_MINUTES * 60 - 1)
        self.sweep(exchange)
        assert position(exchange, topic) == 7
        exchange.clock.advance(601)
        self.sweep(exchange)
        assert position(exchange, topic) == -1
        assert [group.name for group in exchange.broker.groups.all()] == ["crew"]
        exchange.clock.advance(601)
        self.sweep(exchange)
        assert exchange.broker.groups.all() == []

    def test_members_keep_offsets(self, exchange: Exchange) -> None:
        topic = exchange.topic()
        known = member(exchange)
        commit(exchange, topic, {0: 7}, member_id=known, generation=1)
        exchange.clock.advance(30 * DAY)
        self.sweep(exchange)
        assert position(exchange, topic) == 7

    def test_restarts_do_not_renew_them(self, exchange: Exchange) -> None:
        topic = exchange.topic()
        commit(exchange, topic, {0: 7})
        for _ in range(8):
            exchange.open()
            exchange.drain()
            exchange.clock.advance(DAY)
        self.sweep(exchange)
        assert position(exchange, topic) == -1

    def test_they_age_from_when_the_members_went(self, exchange: Exchange) -> None:
        topic = exchange.grown_topic(7)
        known = member(exchange)
        commit(exchange, topic, {0: 7}, member_id=known, generation=1)
        exchange.clock.advance(30 * DAY)
        exchange.open()
        exchange.drain()
        exchange.clock.advance(6 * DAY)
        self.sweep(exchange)
        assert position(exchange, topic) == 7

    def sweep(self, exchange: Exchange) -> None:
        exchange.broker.groups.expire()
        exchange.drain()


class TestDelete:
    def codes(self, exchange: Exchange, *names: str) -> tuple[int, dict[str, int]]:
        message = OffsetDeleteRequest.OffsetDeleteRequestTopic
        partition = message.OffsetDeleteRequestPartition(partition_index=0)
        topics = [message(name=name, partitions=[partition]) for name in names]
        response = exchange.send(OffsetDeleteRequest(group_id="crew", topics=topics), 0)
        codes = {t.name: t.partitions[0].error_code for t in response.topics}
        return response.error_code, codes

    def test_an_empty_group(self, exchange: Exchange) -> None:
        topic = exchange.topic()
        assert self.codes(exchange, "orders") == (Code.GROUP_ID_NOT_FOUND, {})
        commit(exchange, topic, {0: 7})
        unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
        assert self.codes(exchange, "orders", "none") == (0, {"orders": 0, "none": unknown})
        assert position(exchange, topic) == -1
        exchange.open()
        assert position(exchange, topic) == -1

    def test_topics_that_are_read(self, exchange: Exchange) -> None:
        exchange.topic("orders")
        other = exchange.topic("other")
        commit(exchange, other, {0: 1})
        member(exchange)
        subscribed = Code.GROUP_SUBSCRIBED_TO_TOPIC
        assert self.codes(exchange, "orders", "other") == (0, {"orders": subscribed, "other": 0})
        assert position(exchange, other) == -1

    def test_groups_that_are_not_of_consumers(self, exchange: Exchange) -> None:
        exchange.topic("orders")
        begin_join(exchange, protocol_type="connect")
        assert self.codes(exchange, "orders") == (Code.NON_EMPTY_GROUP, {})
