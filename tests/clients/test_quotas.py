"""Quotas by client id: set with Kafka's own tool, felt by ordinary clients."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest
from tests.clients.brokers import Broker
from tests.clients.contract import eventually
from tests.clients.wire import Wire
from tools.kafka import java_tool

RATE, SIZE, COUNT = 1_000_000, 10_000, 300
SECONDS_MAX = 60.0


def set_quota(wire: Wire, client_id: str, **rates: float | None) -> None:
    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type="client-id", entity_name=client_id)],
                ops=[
                    entry.OpData(key=key, value=rate or 0.0, remove=rate is None)
                    for key, rate in rates.items()
                ],
            )
        ],
        validate_only=False,
    )
    (answer,) = wire.call(request).entries
    assert answer.error_code == 0, answer


def quotas(wire: Wire, client_id: str) -> dict[str, float]:
    part = DescribeClientQuotasRequest.ComponentData
    component = part(entity_type="client-id", match_type=0, match=client_id)
    request = DescribeClientQuotasRequest(components=[component], strict=True)
    answer = wire.call(request)
    assert answer.error_code == 0
    return {one.key: one.value for entry in answer.entries for one in entry.values}


@pytest.fixture
def client_id(wire: Wire) -> Iterator[str]:
    name = f"client-{uuid.uuid4().hex[:8]}"
    yield name
    set_quota(wire, name, producer_byte_rate=None, consumer_byte_rate=None)


def produce(broker: Broker, topic: str, client_id: str) -> tuple[float, list[Any]]:
    """How long it took, and the times that the client was told to rest."""
    throttled: list[Any] = []
    config = {"bootstrap.servers": broker.bootstrap, "client.id": client_id, "linger.ms": 5}
    producer = Producer(config | {"throttle_cb": throttled.append, "batch.size": 100_000})
    began = time.monotonic()
    for _ in range(COUNT):
        producer.produce(topic, b"x" * SIZE, partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    return time.monotonic() - began, throttled


def consume(broker: Broker, topic: str, client_id: str) -> tuple[float, list[Any]]:
    throttled: list[Any] = []
    config: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "client.id": client_id}
    config |= {"group.id": "x", "throttle_cb": throttled.append, "enable.auto.commit": False}
    consumer = Consumer(config)
    began = time.monotonic()
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while len(found) < COUNT and time.monotonic() - began < SECONDS_MAX:
        found += consumer.consume(COUNT - len(found), 0.5)
    took = time.monotonic() - began
    consumer.close()
    assert [message.offset() for message in found] == list(range(COUNT))
    return took, throttled


def test_set_and_shown(wire: Wire, client_id: str) -> None:
    assert quotas(wire, client_id) == {}
    set_quota(wire, client_id, producer_byte_rate=1000.0, consumer_byte_rate=2000.0)
    eventually(lambda: len(quotas(wire, client_id)) == 2 or None, "quotas")
    set_quota(wire, client_id, producer_byte_rate=None)
    eventually(lambda: quotas(wire, client_id) == {"consumer_byte_rate": 2000.0} or None, "quotas")


def test_slowed_down(broker: Broker, wire: Wire, topic: str, client_id: str) -> None:
    if broker.name == "kafka":
        pytest.skip("a Kafka lets the first ten seconds' worth through at once")
    expected = COUNT * SIZE / RATE - 1  # the first second's worth is free
    set_quota(wire, client_id, producer_byte_rate=RATE)
    took, throttled = produce(broker, topic, client_id)
    # The last batch is acknowledged before its rest.
    assert expected - 0.5 < took < expected + 10
    assert throttled
    set_quota(wire, client_id, producer_byte_rate=None, consumer_byte_rate=RATE)
    took, throttled = consume(broker, topic, client_id)
    assert expected - 1.1 < took < expected + 10
    assert throttled


def test_others_are_not(broker: Broker, wire: Wire, topic: str, client_id: str) -> None:
    set_quota(wire, client_id, producer_byte_rate=1.0, consumer_byte_rate=1.0)
    assert produce(broker, topic, "somebody-else")[1] == []
    assert consume(broker, topic, "somebody-else")[1] == []


@pytest.mark.compat
def test_kafkas_tool(broker: Broker, wire: Wire, client_id: str) -> None:
    command = ("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap)
    entity = ("--entity-type", "clients", "--entity-name", client_id)
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048"
    java_tool(*command, "--alter", *entity, "--add-config", rates)
    found = eventually(lambda: quotas(wire, client_id) or None, "quotas")
    assert found == {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0}
    shown = java_tool(*command, "--describe", *entity).stdout
    assert f"Quota configs for client-id '{client_id}' are" in shown
    assert "producer_byte_rate=1024.0" in shown
