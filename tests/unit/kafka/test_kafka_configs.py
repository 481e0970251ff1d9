"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from tests.clients.admin_requests import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    alter_configs,
    change_configs,
    describe_configs,
)
from tests.unit.kafka.exchange import Exchange, answer, versions

from penstock.broker.broker_config import BROKER_SETTINGS
from penstock.broker.topic_config import SETTINGS
from penstock.kafka.errors import Code

DYNAMIC_TOPIC, DEFAULT = 1, 5


def described(response: Any) -> Any:
    (result,) = response.results
    return result


def outcome(response: Any) -> Any:
    (result,) = response.responses
    return result


class TestDescribe:
    @pytest.mark.parametrize("version", versions(32))
    def test_every_setting_of_a_topic(self, exchange: Exchange, version: int) -> None:
        exchange.topic("a", config={"retention.ms": "60000"})
        result = described(exchange.send(describe_configs("a"), version))
        assert (result.error_code, result.error_message) == (Code.NONE, "")
        assert (result.resource_type, result.resource_name) == (TOPIC, "a")
        entries = {entry.name: entry for entry in result.configs}
        assert set(entries) == set(SETTINGS)
        changed, untouched = entries["retention.ms"], entries["segment.bytes"]
        assert (changed.value, changed.config_source) == ("60000", DYNAMIC_TOPIC)
        assert (untouched.value, untouched.config_source) == (str(2**30), DEFAULT)
        for name, entry in entries.items():
            assert not entry.read_only
            assert not entry.is_sensitive
            assert entry.synonyms == []
            if version >= 3:
                assert entry.config_type == SETTINGS[name].kind.code
                assert entry.documentation is None

    @pytest.mark.parametrize("version", versions(32))
    def test_synonyms_and_documentation(self, exchange: Exchange, version: int) -> None:
        exchange.topic("a", config={"retention.ms": "60000"})
        request = describe_configs("a", keys=["retention.ms", "no.such"], everything=True)
        (entry,) = described(exchange.send(request, version)).configs
        assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
            ("retention.ms", "60000", DYNAMIC_TOPIC),
            ("log.retention.ms", str(7 * 24 * 3600 * 1000), DEFAULT),
        ]
        if version >= 3:
            assert entry.documentation == SETTINGS["retention.ms"].help

    @pytest.mark.parametrize("version", versions(32))
    @pytest.mark.parametrize("name", ["", "1"])
    def test_the_broker(self, exchange: Exchange, version: int, name: str) -> None:
        result = described(exchange.send(describe_configs(name, kind=BROKER), version))
        assert result.error_code == Code.NONE
        entries = {entry.name: entry for entry in result.configs}
        assert set(entries) == set(BROKER_SETTINGS)
        assert all(entry.read_only for entry in entries.values())
        values = {name: entry.value for name, entry in entries.items()}
        assert values["default.replication.factor"] == "1"  # Debezium asks for it
        assert values["message.max.bytes"] == SETTINGS["max.message.bytes"].default
        assert values["auto.create.topics.enable"] == "true"

    def test_no_keys_means_all(self, exchange: Exchange) -> None:
        exchange.topic("a")
        result = described(exchange.send_highest(describe_configs("a", keys=[])))
        assert len(result.configs) == len(SETTINGS)

    @pytest.mark.parametrize("version", versions(32))
    @pytest.mark.parametrize(
        ("name", "kind", "code"),
        [
            ("b", TOPIC, Code.UNKNOWN_TOPIC_OR_PARTITION),
            ("a b", TOPIC, Code.INVALID_TOPIC_EXCEPTION),
            ("2", BROKER, Code.INVALID_REQUEST),
            ("x", 0, Code.INVALID_REQUEST),
            ("x", 99, Code.INVALID_REQUEST),
        ],
    )
    def test_unknown(
        self, exchange: Exchange, version: int, name: str, kind: int, code: Code
    ) -> None:
        result = described(exchange.send(describe_configs(name, kind=kind), version))
        assert (result.error_code, result.configs) == (code, [])
        assert (result.resource_type, result.resource_name) == (kind, name)
        assert result.error_message


class TestAlter:
    @pytest.mark.parametrize("version", versions(33))
    def test_replaces_everything(self, exchange: Exchange, version: int) -> None:
        topic = exchange.topic("a", config={"retention.ms": "60000"})
        slot = exchange.begin(request := alter_configs("a", {"segment.bytes": "4096"}), version)
        assert slot.data is None, "answered before it is durable"
        exchange.drain()
        result = outcome(answer(request, version, slot))
        assert (result.error_code, result.error_message) == (Code.NONE, None)
        assert (result.resource_type, result.resource_name) == (TOPIC, "a")
        assert topic.partition(0).settings.segment_bytes == 4096
        exchange.open()
        assert exchange.broker.topic("a").config.overrides == {"segment.bytes": "4096"}

    @pytest.mark.parametrize("version", versions(33))
    def test_only_checked(self, exchange: Exchange, version: int) -> None:
        topic = exchange.topic("a")
        for value, code in (("4096", Code.NONE), ("small", Code.INVALID_CONFIG)):
            request = alter_configs("a", {"segment.bytes": value}, validate_only=True)
            assert outcome(exchange.send(request, version)).error_code == code
        assert topic.config.overrides == {}

    def test_null(self, exchange: Exchange) -> None:
        exchange.topic("a")
        result = outcome(exchange.send_highest(alter_configs("a", {"segment.bytes": None})))
        assert result.error_code == Code.INVALID_REQUEST

    def test_not_durable(self, exchange: Exchange) -> None:
        exchange.topic("a")
        exchange.files.fail("sync", errno.EIO, sticky=True)
        result = outcome(exchange.send_highest(alter_configs("a", {"segment.bytes": "4096"})))
        assert result.error_code == Code.KAFKA_STORAGE_ERROR


class TestIncrementalAlter:
    @pytest.mark.parametrize("version", versions(44))
    def test_set_and_delete(self, exchange: Exchange, version: int) -> None:
        exchange.topic("a", config={"retention.ms": "60000", "segment.ms": "1000"})
        request = change_configs(
            "a", [("segment.bytes", SET, "4096"), ("retention.ms", DELETE, None)]
        )
        slot = exchange.begin(request, version)
        assert slot.data is None, "answered before it is durable"
        exchange.drain()
        assert outcome(answer(request, version, slot)).error_code == Code.NONE
        exchange.open()
        assert exchange.broker.topic("a").config.overrides == {
            "segment.bytes": "4096",
            "segment.ms": "1000",
        }

    @pytest.mark.parametrize("version", versions(44))
    def test_lists(self, exchange: Exchange, version: int) -> None:
        topic = exchange.topic("a")
        for operation, value, expected in (
            (APPEND, "delete", "delete"),
            (APPEND, "", "delete"),
            (APPEND, " compact ,", "delete,compact"),
            (SUBTRACT, "compact", "delete"),
            (SUBTRACT, "delete", ""),
            (SUBTRACT, "delete", ""),
            (APPEND, "delete", "delete"),
        ):
            request = change_configs("a", [("cleanup.policy", operation, value)])
            assert outcome(exchange.send(request, version)).error_code == Code.NONE
            assert topic.config.value("cleanup.policy") == expected

    @pytest.mark.parametrize("version", versions(44))
    def test_only_checked(self, exchange: Exchange, version: int) -> None:
        topic = exchange.topic("a")
        changes = [("segment.bytes", SET, "4096")]
        request = change_configs("a", changes, validate_only=True)
        assert outcome(exchange.send(request, version)).error_code == Code.NONE
        assert topic.config.overrides == {}

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ([("no.such", SET, "1")], Code.INVALID_CONFIG),
            ([("retention.ms", SET, "soon")], Code.INVALID_CONFIG),
            ([("retention.ms", APPEND, "1")], Code.INVALID_CONFIG),
            ([("no.such", SUBTRACT, "1")], Code.INVALID_CONFIG),
            ([("cleanup.policy", APPEND, "shred")], Code.INVALID_CONFIG),
            ([("penstock.durability", SET, "memory")], Code.INVALID_CONFIG),
            ([("retention.ms", SET, None)], Code.INVALID_REQUEST),
            ([("cleanup.policy", APPEND, None)], Code.INVALID_REQUEST),
            ([("retention.ms", 4, "1")], Code.INVALID_REQUEST),
            ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], Code.INVALID_REQUEST),
        ],
    )
    def test_refused(
        self, exchange: Exchange, changes: list[tuple[str, int, str | None]], code: Code
    ) -> None:
        topic = exchange.topic("a", config={"segment.ms": "1000"})
        result = outcome(exchange.send_highest(change_configs("a", changes)))
        assert result.error_code == code
        assert result.error_message
        assert topic.config.overrides == {"segment.ms": "1000"}

    def test_a_setting_that_is_not_set_can_be_deleted(self, exchange: Exchange) -> None:
        exchange.topic("a")
        result = outcome(exchange.send_highest(change_configs("a", [("no.such", DELETE, None)])))
        assert result.error_code == Code.NONE

    def test_so_can_one_of_the_broker(self, exchange: Exchange) -> None:
        changes = [("leader.replication.throttled.rate", DELETE, None)]
        request = change_configs("1", changes, kind=BROKER)
        assert outcome(exchange.send_highest(request)).error_code == Code.NONE

    def test_named_twice(self, exchange: Exchange) -> None:
        topic = exchange.topic("a")
        request = change_configs("a", [("segment.ms", SET, "1000")])
        request.resources = request.resources * 2
        assert outcome(exchange.send_highest(request)).error_code == Code.INVALID_REQUEST
        assert topic.config.overrides == {}


@pytest.mark.parametrize("change", [alter_configs, change_configs])
@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("b", TOPIC, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", TOPIC, Code.INVALID_TOPIC_EXCEPTION),
        ("1", BROKER, Code.INVALID_REQUEST),
        ("", BROKER, Code.INVALID_REQUEST),
        ("x", 8, Code.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_altered(
    exchange: Exchange, change: Any, name: str, kind: int, code: Code
) -> None:
    settings: Any = {"retention.ms": "1"}
    if change is change_configs:
        settings = [("retention.ms", SET, "1")]
    result = outcome(exchange.send_highest(change(name, settings, kind=kind)))
    assert (result.error_code, result.resource_type) == (code, kind)
    assert result.error_message
