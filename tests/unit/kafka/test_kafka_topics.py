"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from kafka.protocol.admin import CreatePartitionsRequest, DeleteTopicsRequest
from tests.clients.admin_requests import create_partitions, create_topics, delete_topic
from tests.unit.kafka.exchange import Exchange, answer, versions

from penstock.broker.errors import UnknownTopicError
from penstock.broker.topic_config import SETTINGS
from penstock.kafka.errors import Code


def codes(results: Sequence[Any]) -> list[int]:
    return [result.error_code for result in results]


class TestCreate:
    @pytest.mark.parametrize("version", versions(19))
    def test_created(self, exchange: Exchange, version: int) -> None:
        request = create_topics("a", partitions=3, configs={"retention.ms": "60000"})
        slot = exchange.begin(request, version)
        assert slot.data is None, "answered before it is durable"
        exchange.drain()
        (result,) = answer(request, version, slot).topics
        assert (result.name, result.error_code, result.error_message) == ("a", Code.NONE, None)
        exchange.open()
        topic = exchange.broker.topic("a")
        assert len(topic.partitions) == 3
        assert topic.config.overrides == {"retention.ms": "60000"}
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            sources = {config.name: config.config_source for config in result.configs}
            assert sources == {name: 1 if name == "retention.ms" else 5 for name in SETTINGS}
            values = {config.name: config.value for config in result.configs}
            assert values["retention.ms"] == "60000"
        if version >= 7:
            assert result.topic_id == topic.entry.id

    @pytest.mark.parametrize("version", versions(19))
    def test_only_checked(self, exchange: Exchange, version: int) -> None:
        slot = exchange.begin(request := create_topics("a", validate_only=True), version)
        (result,) = answer(request, version, slot).topics
        assert result.error_code == Code.NONE
        if version >= 5:
            assert result.num_partitions == 1
            assert len(result.configs) == len(SETTINGS)
        if version >= 7:
            assert result.topic_id is None
        assert exchange.broker.topics() == []

    @pytest.mark.parametrize("version", versions(19))
    def test_exists(self, exchange: Exchange, version: int) -> None:
        exchange.topic("a")
        old, new = exchange.send(create_topics("a", "b"), version).topics
        assert (old.error_code, new.error_code) == (Code.TOPIC_ALREADY_EXISTS, Code.NONE)
        assert "exists" in old.error_message

    def test_existing_is_said_first(self, exchange: Exchange) -> None:
        """Tools that make sure of a topic pass over this code, and over no other."""
        exchange.topic("a")
        results = exchange.send_highest(create_topics("a", replication_factor=3)).topics
        assert codes(results) == [Code.TOPIC_ALREADY_EXISTS]

    def test_defaults(self, exchange: Exchange) -> None:
        request = create_topics("a", partitions=-1, replication_factor=-1)
        (result,) = exchange.send_highest(request).topics
        assert (result.num_partitions, result.replication_factor) == (1, 1)

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"partitions": 0}, Code.INVALID_PARTITIONS),
            ({"partitions": -2}, Code.INVALID_PARTITIONS),
            ({"partitions": 1_000_000}, Code.POLICY_VIOLATION),
            ({"replication_factor": 0}, Code.INVALID_REPLICATION_FACTOR),
            ({"replication_factor": 3}, Code.INVALID_REPLICATION_FACTOR),
            ({"configs": {"no.such": "1"}}, Code.INVALID_CONFIG),
            ({"configs": {"retention.ms": "soon"}}, Code.INVALID_CONFIG),
            ({"configs": {"retention.ms": None}}, Code.INVALID_CONFIG),
        ],
    )
    @pytest.mark.parametrize("validate_only", [False, True])
    def test_refused(
        self, exchange: Exchange, fields: dict[str, Any], code: Code, validate_only: bool
    ) -> None:
        request = create_topics("a", **fields, validate_only=validate_only)
        (result,) = exchange.send_highest(request).topics
        assert result.error_code == code
        assert result.error_message
        assert exchange.broker.topics() == []

    @pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 250])
    def test_bad_names(self, exchange: Exchange, name: str) -> None:
        results = exchange.send_highest(create_topics(name)).topics
        assert codes(results) == [Code.INVALID_TOPIC_EXCEPTION]

    def test_assigned_by_hand(self, exchange: Exchange) -> None:
        request = create_topics(
            "a", partitions=-1, replication_factor=-1, assignments={1: [1], 0: [1]}
        )
        (result,) = exchange.send_highest(request).topics
        assert (result.error_code, result.num_partitions) == (Code.NONE, 2)

    @pytest.mark.parametrize(
        ("partitions", "assignments", "code"),
        [
            (-1, {0: [2]}, Code.INVALID_REPLICA_ASSIGNMENT),
            (-1, {0: [1, 2]}, Code.INVALID_REPLICA_ASSIGNMENT),
            (-1, {0: []}, Code.INVALID_REPLICA_ASSIGNMENT),
            (-1, {1: [1]}, Code.INVALID_REPLICA_ASSIGNMENT),
            (1, {0: [1]}, Code.INVALID_REQUEST),
        ],
    )
    def test_assigned_badly(
        self, exchange: Exchange, partitions: int, assignments: dict[int, list[int]], code: Code
    ) -> None:
        request = create_topics(
            "a", partitions=partitions, replication_factor=-1, assignments=assignments
        )
        assert codes(exchange.send_highest(request).topics) == [code]

    def test_named_twice(self, exchange: Exchange) -> None:
        results = exchange.send_highest(create_topics("a", "b", "a")).topics
        assert {r.name: r.error_code for r in results} == {
            "a": Code.INVALID_REQUEST,
            "b": Code.NONE,
        }
        assert [topic.name for topic in exchange.broker.topics()] == ["b"]

    def test_not_durable(self, exchange: Exchange) -> None:
        exchange.files.fail("sync", errno.EIO, sticky=True)
        good, bad = exchange.send_highest(create_topics("a", "a b")).topics
        assert (good.error_code, bad.error_code) == (
            Code.KAFKA_STORAGE_ERROR,
            Code.INVALID_TOPIC_EXCEPTION,
        )
        assert "durable" in good.error_message

    def test_no_room(self, exchange: Exchange) -> None:
        exchange.files.fail("make_folder", errno.ENOSPC)
        results = exchange.send_highest(create_topics("a")).topics
        assert codes(results) == [Code.KAFKA_STORAGE_ERROR]


def delete_many(*wanted: tuple[str | None, UUID | None]) -> Any:
    state = DeleteTopicsRequest.DeleteTopicState
    return DeleteTopicsRequest(
        topics=[state(name=name, topic_id=topic_id) for name, topic_id in wanted],
        topic_names=[name for name, _ in wanted],
        timeout_ms=1000,
    )


class TestDelete:
    @pytest.mark.parametrize("version", versions(20))
    def test_by_name(self, exchange: Exchange, version: int) -> None:
        topic_id = exchange.topic("a").entry.id
        slot = exchange.begin(request := delete_topic("a"), version)
        assert slot.data is None, "answered before it is durable"
        exchange.drain()
        (result,) = answer(request, version, slot).responses
        assert (result.name, result.error_code) == ("a", Code.NONE)
        if version >= 6:
            assert result.topic_id == topic_id
        exchange.open()
        with pytest.raises(UnknownTopicError):
            exchange.broker.topic("a")

    @pytest.mark.parametrize("version", versions(20))
    def test_unknown(self, exchange: Exchange, version: int) -> None:
        (result,) = exchange.send(delete_topic("a"), version).responses
        assert (result.name, result.error_code) == ("a", Code.UNKNOWN_TOPIC_OR_PARTITION)
        if version >= 5:
            assert "does not exist" in result.error_message

    def test_by_id(self, exchange: Exchange) -> None:
        known, unknown = exchange.topic("a").entry.id, uuid4()
        request = delete_many((None, known), (None, unknown))
        gone, missing = exchange.send_highest(request).responses
        assert (gone.name, gone.topic_id, gone.error_code) == ("a", known, Code.NONE)
        assert (missing.name, missing.topic_id) == (None, unknown)
        assert missing.error_code == Code.UNKNOWN_TOPIC_ID

    def test_name_and_id_or_neither(self, exchange: Exchange) -> None:
        topic_id = exchange.topic("a").entry.id
        request = delete_many(("a", topic_id), (None, None))
        assert codes(exchange.send_highest(request).responses) == [Code.INVALID_REQUEST] * 2
        assert exchange.broker.topic("a")

    @pytest.mark.parametrize("version", [5, 6])
    def test_named_twice(self, exchange: Exchange, version: int) -> None:
        exchange.topic("a")
        request = delete_many(("a", None), ("a", None))
        assert codes(exchange.send(request, version).responses) == [Code.INVALID_REQUEST]
        assert exchange.broker.topic("a")

    def test_made_again(self, exchange: Exchange) -> None:
        first = exchange.topic("a").entry.id
        exchange.send_highest(delete_topic("a"))
        (result,) = exchange.send_highest(create_topics("a")).topics
        assert result.error_code == Code.NONE
        assert result.topic_id != first

    def test_not_durable(self, exchange: Exchange) -> None:
        exchange.topic("a")
        exchange.files.fail("sync", errno.EIO, sticky=True)
        results = exchange.send_highest(delete_topic("a")).responses
        assert codes(results) == [Code.KAFKA_STORAGE_ERROR]


class TestCreatePartitions:
    @pytest.mark.parametrize("version", versions(37))
    def test_added(self, exchange: Exchange, version: int) -> None:
        exchange.topic("a", 2)
        slot = exchange.begin(request := create_partitions("a", 5), version)
        assert slot.data is None, "answered before it is durable"
        exchange.drain()
        (result,) = answer(request, version, slot).results
        assert (result.name, result.error_code, result.error_message) == ("a", Code.NONE, None)
        exchange.open()
        assert len(exchange.broker.topic("a").partitions) == 5

    @pytest.mark.parametrize("version", versions(37))
    def test_only_checked(self, exchange: Exchange, version: int) -> None:
        exchange.topic("a")
        results = exchange.send(create_partitions("a", 5, validate_only=True), version).results
        assert codes(results) == [Code.NONE]
        assert len(exchange.broker.topic("a").partitions) == 1

    @pytest.mark.parametrize(
        ("count", "assignments", "code"),
        [
            (2, None, Code.INVALID_PARTITIONS),
            (1, None, Code.INVALID_PARTITIONS),
            (0, None, Code.INVALID_PARTITIONS),
            (-1, None, Code.INVALID_PARTITIONS),
            (1_000_000, None, Code.INVALID_PARTITIONS),
            (4, [[1]], Code.INVALID_REPLICA_ASSIGNMENT),
            (3, [], Code.INVALID_REPLICA_ASSIGNMENT),
            (3, [[2]], Code.INVALID_REPLICA_ASSIGNMENT),
            (3, [[1, 2]], Code.INVALID_REPLICA_ASSIGNMENT),
        ],
    )
    @pytest.mark.parametrize("validate_only", [False, True])
    def test_refused(
        self,
        exchange: Exchange,
        count: int,
        assignments: list[list[int]] | None,
        code: Code,
        validate_only: bool,
    ) -> None:
        exchange.topic("a", 2)
        request = create_partitions(
            "a", count, assignments=assignments, validate_only=validate_only
        )
        (result,) = exchange.send_highest(request).results
        assert result.error_code == code
        assert result.error_message
        assert len(exchange.broker.topic("a").partitions) == 2

    def test_assigned_by_hand(self, exchange: Exchange) -> None:
        exchange.topic("a")
        request = create_partitions("a", 3, assignments=[[1], [1]])
        assert codes(exchange.send_highest(request).results) == [Code.NONE]
        assert len(exchange.broker.topic("a").partitions) == 3

    def test_unknown(self, exchange: Exchange) -> None:
        results = exchange.send_highest(create_partitions("a", 3)).results
        assert codes(results) == [Code.UNKNOWN_TOPIC_OR_PARTITION]

    def test_named_twice(self, exchange: Exchange) -> None:
        exchange.topic("a")
        wanted = CreatePartitionsRequest.CreatePartitionsTopic
        request = CreatePartitionsRequest(
            topics=[wanted(name="a", count=count, assignments=None) for count in (2, 3)],
            timeout_ms=1000,
            validate_only=False,
        )
        assert codes(exchange.send_highest(request).results) == [Code.INVALID_REQUEST]
        assert len(exchange.broker.topic("a").partitions) == 1

    def test_not_durable(self, exchange: Exchange) -> None:
        exchange.topic("a")
        exchange.files.fail("sync", errno.EIO, sticky=True)
        results = exchange.send_highest(create_partitions("a", 3)).results
        assert codes(results) == [Code.KAFKA_STORAGE_ERROR]
