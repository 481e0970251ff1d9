"""Protobuf values as confluent-kafka writes them, with Penstock's registry, to typed columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.types import IntegerType, StringType
from tests.contract.test_avro_values import coded_values, decode, options

from penstock.client.schemas import Schema
from penstock.errors import UsageError
from penstock.spark.values.protobuf_schema import compiled
from penstock.testing import RunningBroker, broker

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Other { int32 n = 1; }
message Order {
  enum Kind { NONE = 0; BOOK = 1; }
  message Line { string item = 1; optional int32 count = 2; }
  string user = 1;
  int64 amount = 2;
  uint64 huge = 3;
  bytes raw = 4;
  Kind kind = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.StringValue note = 7;
  repeated Line lines = 8;
  map<string, int32> counts = 9;
  optional double price = 10;
}
"""
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(http=True) as started:
        yield started


def message(name: str, text: str = ORDER) -> Any:
    return compiled(Schema("PROTOBUF", text, ())).named(name)


def order() -> Any:
    made = message("Order")(user="a", amount=-5, huge=2**64 - 1, raw=b"\xff", kind=1)
    made.at.FromDatetime(AT)
    made.lines.add(item="x", count=2)
    made.lines.add(item="y")
    made.counts["k"] = 7
    return made


def written(running: RunningBroker, topic: str, made: Any) -> bytes:
    with SchemaRegistryClient({"url": running.http}) as client:
        write = ProtobufSerializer(type(made), client)
        value = write(made, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(value, bytes)
    return value


def protobuf(running: RunningBroker, topic: str, **more: str) -> Any:
    return options(running, topic, valueFormat="protobuf", **more)


def test_every_type(running: RunningBroker) -> None:
    value = written(running, "types", order())
    chosen = protobuf(running, "types", valueMessage="Order")
    assert coded_values(chosen).columns().simpleString() == (
        "struct<user:string,amount:bigint,huge:decimal(20,0),raw:binary,kind:string,at:timestamp,"
        "note:string,lines:array<struct<item:string,count:int>>,counts:map<string,int>,price:double>"
    )
    decoded = decode(chosen, [value, None])
    assert decoded.malformed == []
    assert {name: column.to_pylist()[0] for name, column in decoded.columns.items()} == {
        "user": "a",
        "amount": -5,
        "huge": Decimal(2**64 - 1),
        "raw": b"\xff",
        "kind": "BOOK",
        "at": AT,
        "note": None,
        "lines": [{"item": "x", "count": 2}, {"item": "y", "count": None}],
        "counts": [("k", 7)],
        "price": None,
    }
    assert all(column.to_pylist()[1] is None for column in decoded.columns.values())


def test_a_value_names_its_message_and_is_read_as_the_users(running: RunningBroker) -> None:
    values = [written(running, "named", order()), written(running, "named", message("Other")(n=3))]
    two = protobuf(running, "named,types")
    decoded = decode(two, [*values], user=StringType(), n=IntegerType())
    assert decoded.columns["user"].to_pylist() == ["a", None]
    assert decoded.columns["n"].to_pylist() == [None, 3]
    one = decode(protobuf(running, "named", valueMessage="Order"), [*values], user=StringType())
    assert [bad.reason for bad in one.malformed] == ["it is a shop.Other, not a shop.Order"]
    own = 'syntax = "proto3"; message Buyer { string name = 1; string town = 99; }'
    renamed = decode(protobuf(running, "named", valueSchema=own), values[:1])
    assert {n: c.to_pylist() for n, c in renamed.columns.items()} == {"name": ["a"], "town": [""]}


def test_what_is_malformed_stands_alone(running: RunningBroker) -> None:
    good = written(running, "bad", order())
    broken = [b"{}", good[:-1], good[:5], good[:5] + b"\x02\x63" + good[7:], b"\0\0\1\0\0\0abc"]
    decoded = decode(protobuf(running, "bad"), [good, *broken, good], user=StringType())
    assert decoded.columns["user"].to_pylist() == ["a", *[None] * 5, "a"]
    assert [one.row for one in decoded.malformed] == [1, 2, 3, 4, 5]


def test_a_schema_that_cannot_be_read_is_said(running: RunningBroker) -> None:
    with pytest.raises(UsageError, match="protoc cannot read the Protobuf schema"):
        coded_values(protobuf(running, "x", valueSchema="message {"))
    with pytest.raises(UsageError, match="set valueMessage to one of Other, Order"):
        coded_values(protobuf(running, "x", valueSchema=ORDER, valueMessage="None"))
    with pytest.raises(UsageError, match="set valueFormat to protobuf"):
        coded_values(options(running, "types"))
    with pytest.raises(UsageError, match="has several messages; set valueMessage"):
        coded_values(protobuf(running, "types")).columns()
    itself = 'syntax = "proto3"; message Tree { Tree left = 1; }'
    with pytest.raises(UsageError, match="Tree contains itself"):
        coded_values(protobuf(running, "x", valueSchema=itself)).columns()
