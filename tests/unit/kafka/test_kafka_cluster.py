"""Metadata, FindCoordinator, DescribeCluster and DescribeTopicPartitions."""

from __future__ import annotations

import errno
from typing import Any
from uuid import UUID, uuid4

import pytest
from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest
from tests.clients.admin_requests import describe_partitions, find_coordinator
from tests.unit.kafka.exchange import PEER, Exchange, answer, versions

from penstock.errors import DamagedLogError
from penstock.kafka.call import NODE_ID
from penstock.kafka.errors import Code

ADDRESS = (PEER.local_host, PEER.local_port)
TOPIC_OPERATIONS = {3, 4, 5, 6, 7, 8, 10, 11}
CLUSTER_OPERATIONS = {5, 7, 8, 9, 10, 11, 12}


def request(*names: str | UUID, create: bool = False, operations: bool = False) -> Any:
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=[
            topic(name=None, topic_id=name) if isinstance(name, UUID) else topic(name=name)
            for name in names
        ],
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=operations,
        include_topic_authorized_operations=operations,
    )


def everything(version: int) -> Any:
    return MetadataRequest(topics=None if version else [])


def damage(exchange: Exchange, name: str, number: int) -> None:
    partitions = exchange.broker.topic(name).partitions
    partitions[number] = DamagedLogError("open", "it is damaged")


class TestMetadata:
    @pytest.mark.parametrize("version", versions(3))
    def test_one_topic(self, exchange: Exchange, version: int) -> None:
        topic = exchange.topic("orders", 2)
        response = exchange.send(request("orders"), version)
        (node,) = response.brokers
        assert (node.node_id, node.host, node.port) == (NODE_ID, *ADDRESS)
        if version >= 1:
            assert response.controller_id == NODE_ID
        if version >= 2:
            assert response.cluster_id == exchange.broker.cluster_id
        (described,) = response.topics
        assert (described.error_code, described.name) == (Code.NONE, "orders")
        if version >= 10:
            assert described.topic_id == topic.entry.id
        assert [p.partition_index for p in described.partitions] == [0, 1]
        for partition in described.partitions:
            assert (partition.error_code, partition.leader_id) == (Code.NONE, NODE_ID)
            assert partition.replica_nodes == partition.isr_nodes == [NODE_ID]
            if version >= 7:
                assert partition.leader_epoch == 0
        if version >= 7:
            exchange.open()
            (described,) = exchange.send(request("orders"), version).topics
            assert [partition.leader_epoch for partition in described.partitions] == [1, 1]

    @pytest.mark.parametrize("version", versions(3))
    def test_all_topics(self, exchange: Exchange, version: int) -> None:
        for name in ("b", "a"):
            exchange.topic(name)
        response = exchange.send(everything(version), version)
        assert [topic.name for topic in response.topics] == ["a", "b"]

    @pytest.mark.parametrize("version", range(1, 14))
    def test_no_topics(self, exchange: Exchange, version: int) -> None:
        exchange.topic()
        response = exchange.send(request(), version)
        assert (len(response.brokers), response.topics) == (1, [])

    @pytest.mark.parametrize("version", versions(3))
    def test_a_topic_is_made_when_it_is_asked_for(self, exchange: Exchange, version: int) -> None:
        slot = exchange.begin(asked := request("new", create=True), version)
        assert slot.data is None, "answered before it is durable"
        exchange.drain()
        (topic,) = answer(asked, version, slot).topics
        assert (topic.error_code, len(topic.partitions)) == (Code.NONE, 1)
        exchange.open()
        assert exchange.broker.topic("new")

    @pytest.mark.parametrize("version", range(4, 14))
    def test_or_not_made(self, exchange: Exchange, version: int) -> None:
        (topic,) = exchange.send(request("new"), version).topics
        assert (topic.error_code, topic.name) == (Code.UNKNOWN_TOPIC_OR_PARTITION, "new")
        assert exchange.broker.topics() == []

    @pytest.mark.parametrize("name", ["", ".", "a b", "x" * 250, "ü"])
    @pytest.mark.parametrize("create", [False, True])
    def test_names_that_cannot_be(self, exchange: Exchange, name: str, create: bool) -> None:
        (topic,) = exchange.send_highest(request(name, create=create)).topics
        assert topic.error_code == Code.INVALID_TOPIC_EXCEPTION

    def test_a_topic_named_twice_is_made_and_told_once(self, exchange: Exchange) -> None:
        (topic,) = exchange.send_highest(request("new", "new", create=True)).topics
        assert topic.error_code == Code.NONE

    def test_a_new_topic_that_is_not_durable(self, exchange: Exchange) -> None:
        exchange.topic("old")
        exchange.files.fail("sync", errno.EIO, sticky=True)
        old, new = exchange.send_highest(request("old", "new", create=True)).topics
        assert (old.error_code, new.error_code) == (Code.NONE, Code.KAFKA_STORAGE_ERROR)
        assert new.partitions == []

    def test_a_new_topic_that_finds_no_room(self, exchange: Exchange) -> None:
        exchange.files.fail("make_folder", errno.ENOSPC)
        (topic,) = exchange.send_highest(request("new", create=True)).topics
        assert topic.error_code == Code.KAFKA_STORAGE_ERROR

    @pytest.mark.parametrize("version", [10, 11, 12, 13])
    def test_by_id(self, exchange: Exchange, version: int) -> None:
        known, unknown = exchange.topic().entry.id, uuid4()
        found, missing = exchange.send(request(known, unknown), version).topics
        assert (found.name, found.topic_id) == ("orders", known)
        assert (missing.error_code, missing.topic_id) == (Code.UNKNOWN_TOPIC_ID, unknown)
        assert missing.name == (None if version >= 12 else "")

    @pytest.mark.parametrize("version", versions(3))
    def test_a_damaged_partition_has_no_leader(self, exchange: Exchange, version: int) -> None:
        exchange.topic("orders", 2)
        damage(exchange, "orders", 0)
        (topic,) = exchange.send(request("orders"), version).topics
        damaged, whole = topic.partitions
        assert topic.error_code == whole.error_code == Code.NONE
        assert (damaged.error_code, damaged.leader_id) == (Code.LEADER_NOT_AVAILABLE, -1)
        assert (damaged.replica_nodes, damaged.isr_nodes) == ([NODE_ID], [])
        if version >= 5:
            assert (damaged.offline_replicas, whole.offline_replicas) == ([NODE_ID], [])

    @pytest.mark.parametrize("version", range(8, 14))
    @pytest.mark.parametrize("wanted", [False, True])
    def test_operations(self, exchange: Exchange, version: int, wanted: bool) -> None:
        exchange.topic()
        response = exchange.send(
            MetadataRequest(
                topics=None,
                allow_auto_topic_creation=True,
                include_cluster_authorized_operations=wanted and version <= 10,
                include_topic_authorized_operations=wanted,
            ),
            version,
        )
        (topic,) = response.topics
        assert topic.authorized_operations == (TOPIC_OPERATIONS if wanted else None)
        if version <= 10:
            assert response.authorized_operations == (CLUSTER_OPERATIONS if wanted else None)

    def test_the_advertised_address(self) -> None:
        exchange = Exchange(advertised=("kafka.example", 1234))
        (node,) = exchange.send_highest(request()).brokers
        assert (node.host, node.port) == ("kafka.example", 1234)


class TestDescribeCluster:
    @pytest.mark.parametrize("version", versions(60))
    @pytest.mark.parametrize("operations", [False, True])
    def test_one_node(self, exchange: Exchange, version: int, operations: bool) -> None:
        response = exchange.send(
            DescribeClusterRequest(
                include_cluster_authorized_operations=operations, endpoint_type=1
            ),
            version,
        )
        (node,) = response.brokers
        assert (node.broker_id, node.host, node.port) == (NODE_ID, *ADDRESS)
        assert (response.error_code, response.controller_id) == (Code.NONE, NODE_ID)
        assert response.cluster_id == exchange.broker.cluster_id
        assert response.authorized_operations == (CLUSTER_OPERATIONS if operations else None)

    @pytest.mark.parametrize("version", [1, 2])
    @pytest.mark.parametrize(
        ("kind", "code"),
        [(2, Code.MISMATCHED_ENDPOINT_TYPE), (3, Code.UNSUPPORTED_ENDPOINT_TYPE)],
    )
    def test_no_controllers(self, exchange: Exchange, version: int, kind: int, code: Code) -> None:
        response = exchange.send(DescribeClusterRequest(endpoint_type=kind), version)
        assert (response.error_code, response.brokers) == (code, [])
        assert response.error_message


class TestFindCoordinator:
    @pytest.mark.parametrize(
        ("kind", "version"), [*((0, v) for v in versions(10)), *((1, v) for v in range(1, 7))]
    )
    def test_groups_and_transactions(self, exchange: Exchange, kind: int, version: int) -> None:
        found = exchange.send(find_coordinator("group", kind=kind), version)
        if version >= 4:
            (found,) = found.coordinators
            assert found.key == "group"
        assert (found.error_code, found.node_id) == (Code.NONE, NODE_ID)
        assert (found.host, found.port) == ADDRESS

    @pytest.mark.parametrize("version", range(1, 7))
    @pytest.mark.parametrize("kind", [2, 9])
    def test_the_rest_is_not_there_yet(self, exchange: Exchange, version: int, kind: int) -> None:
        found = exchange.send(find_coordinator("key", kind=kind), version)
        if version >= 4:
            (found,) = found.coordinators
        assert found.error_code == Code.INVALID_REQUEST
        assert "not available" in found.error_message

    def test_many_at_once(self, exchange: Exchange) -> None:
        request = find_coordinator("a")
        request.coordinator_keys = ["a", "b"]
        assert [c.key for c in exchange.send_highest(request).coordinators] == ["a", "b"]


class TestDescribeTopicPartitions:
    def places(self, response: Any) -> list[tuple[str, int]]:
        return [(t.name, p.partition_index) for t in response.topics for p in t.partitions]

    def test_all(self, exchange: Exchange) -> None:
        ids = [exchange.topic(name, 2).entry.id for name in ("a", "b")]
        response = exchange.send(describe_partitions(), 0)
        assert self.places(response) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        assert [topic.topic_id for topic in response.topics] == ids
        assert response.next_cursor is None
        assert response.topics[0].topic_authorized_operations == sum(
            1 << operation for operation in TOPIC_OPERATIONS
        )
        partition = response.topics[0].partitions[0]
        assert (partition.leader_id, partition.leader_epoch) == (NODE_ID, 0)
        assert partition.eligible_leader_replicas == partition.last_known_elr == []

    @pytest.mark.parametrize("limit", range(1, 9))
    def test_page_by_page(self, exchange: Exchange, limit: int) -> None:
        for name, partitions in (("a", 3), ("b", 1), ("c", 3)):
            exchange.topic(name, partitions)
        seen: list[tuple[str, int]] = []
        cursor = None
        for _ in range(8):
            response = exchange.send(describe_partitions(limit=limit, cursor=cursor), 0)
            page = self.places(response)
            assert 1 <= len(page) <= limit
            seen += page
            if response.next_cursor is None:
                break
            cursor = response.next_cursor.topic_name, response.next_cursor.partition_index
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1), ("c", 2)]

    def test_names(self, exchange: Exchange) -> None:
        exchange.topic("b")
        response = exchange.send(describe_partitions("c", "b", "a b", "b"), 0)
        codes = {topic.name: topic.error_code for topic in response.topics}
        assert codes == {
            "a b": Code.INVALID_TOPIC_EXCEPTION,
            "b": Code.NONE,
            "c": Code.UNKNOWN_TOPIC_OR_PARTITION,
        }

    def test_a_cursor_behind_the_end(self, exchange: Exchange) -> None:
        exchange.topic("a", 2)
        exchange.topic("b")
        response = exchange.send(describe_partitions(cursor=("a", 5)), 0)
        assert self.places(response) == [("b", 0)]

    def test_a_cursor_at_a_topic_that_is_gone(self, exchange: Exchange) -> None:
        exchange.topic("c", 2)
        response = exchange.send(describe_partitions(cursor=("b", 1)), 0)
        assert self.places(response) == [("c", 0), ("c", 1)]

    def test_a_negative_cursor(self, exchange: Exchange) -> None:
        exchange.topic("a")
        response = exchange.send(describe_partitions(cursor=("a", -1)), 0)
        assert [topic.error_code for topic in response.topics] == [Code.INVALID_REQUEST]

    def test_a_damaged_partition(self, exchange: Exchange) -> None:
        exchange.topic("a", 2)
        damage(exchange, "a", 1)
        (topic,) = exchange.send(describe_partitions(), 0).topics
        assert [p.leader_id for p in topic.partitions] == [NODE_ID, -1]
