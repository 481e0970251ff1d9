"""Avro and Protobuf in Spark: the columns of the registry's schema, malformed values beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.clients.brokers import Broker
from tests.spark.test_source import run

from penstock.spark import read, read_stream
from penstock.testing import broker as penstock

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "user", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "amount", "type": "double", "default": 0.0},
        ],
    }
)


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The address of a schema registry: Penstock's, also beside a Kafka."""
    with penstock(http=True) as running:
        assert running.http is not None
        yield running.http


@pytest.fixture
def orders(broker: Broker, topic: str, registry: str) -> str:
    """A topic with 50 good orders and a bad one."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": registry}) as client:
        write = AvroSerializer(client, SCHEMA)
        for number in range(50):
            row = {"user": f"u{number % 3}", "at": 1000 * number, "amount": number / 2}
            producer.produce(topic, write(row, context))
    producer.produce(topic, b"nonsense")
    producer.flush()
    return topic


def test_columns_come_from_the_registry(
    spark: SparkSession, broker: Broker, registry: str, orders: str
) -> None:
    options = {"valueFormat": "avro", "schemaRegistryUrl": registry}
    frame = read(spark, broker.bootstrap, orders, **options)
    assert frame.schema.simpleString() == "struct<user:string,at:timestamp,amount:double>"
    with pytest.raises(PySparkException, match="the value at offset 50 does not fit the schema"):
        frame.count()


def test_a_stream_of_chosen_columns(
    spark: SparkSession, broker: Broker, registry: str, orders: str, tmp_path: Path
) -> None:
    frame = read_stream(
        spark,
        broker.bootstrap,
        orders,
        "amount double, user string, _value binary, _offset bigint, _error string",
        valueFormat="avro",
        schemaRegistryUrl=registry,
        startingOffsets="earliest",
    )
    rows, query = run(frame, tmp_path)
    assert sum(row.amount for row in rows if row._error is None) == sum(range(50)) / 2
    (bad,) = [row for row in rows if row._error is not None]
    assert (bytes(bad._value), bad._offset, bad.user) == (b"nonsense", 50, None)
    assert query.lastProgress["observedMetrics"][f"malformed {orders}"].records == 1


def test_protobuf(spark: SparkSession, broker: Broker, registry: str, topic: str) -> None:
    text = 'syntax = "proto3"; message Sale { string user = 1; int64 amount = 2; }'
    with SchemaRegistryClient({"url": registry}) as client:
        number = client.register_schema(f"{topic}-value", Schema(text, "PROTOBUF"))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    # A zero, the id, the first message; field 1 is "ab" and field 2 is 7.
    producer.produce(topic, b"\0" + number.to_bytes(4) + b"\0" + b"\x0a\x02ab\x10\x07")
    producer.flush()
    options = {"valueFormat": "protobuf", "schemaRegistryUrl": registry}
    frame = read(spark, broker.bootstrap, topic, **options)
    assert [tuple(row) for row in frame.collect()] == [("ab", 7)]
