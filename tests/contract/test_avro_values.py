"""Avro values as confluent-kafka writes them, with Penstock's registry, to typed columns."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from penstock.client.schemas import Registry
from penstock.errors import NotFoundError, UnavailableError, UsageError
from penstock.spark.options import SourceOptions, parse_options
from penstock.spark.values.coded import CodedValues
from penstock.spark.values.decoded import Decoded
from penstock.testing import RunningBroker, broker

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
ALL: dict[str, tuple[Any, Any]] = {
    "flag": ("boolean", True),
    "small": ("int", -7),
    "large": ("long", 1 << 40),
    "half": ("double", 0.5),
    "raw": ("bytes", b"\x00\xff"),
    "text": ("string", "é"),
    "none": (["null", "string"], None),
    "kind": ({"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "B"),
    "at": ({"type": "long", "logicalType": "timestamp-millis"}, WHEN),
    "exactly": ({"type": "long", "logicalType": "timestamp-micros"}, WHEN),
    "day": (["null", {"type": "int", "logicalType": "date"}], date(2026, 1, 2)),
    "price": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        Decimal("12.34"),
    ),
    "id": ({"type": "string", "logicalType": "uuid"}, UUID(int=5)),
    "tags": ({"type": "array", "items": "string"}, ["a", "b"]),
    "counts": ({"type": "map", "values": "int"}, {"x": 1}),
    "inner": (
        {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "Kind"}]},
        {"n": "A"},
    ),
}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(http=True) as started:
        yield started


def schema_of(fields: dict[str, Any], defaults: dict[str, Any] | None = None) -> str:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    for one in listed:
        if defaults and one["name"] in defaults:
            one["default"] = defaults[one["name"]]
    return json.dumps({"type": "record", "name": "Order", "fields": listed})


def written(running: RunningBroker, topic: str, schema: str, row: dict[str, Any]) -> bytes:
    assert running.http is not None
    with SchemaRegistryClient({"url": running.http}) as client:
        value = AvroSerializer(client, schema)(row, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(value, bytes)
    return value


def options(running: RunningBroker, topic: str, **more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": running.bootstrap, "subscribe": topic, **more}
    url = {"schemaRegistryUrl": running.http or ""}
    return parse_options({"valueFormat": "avro", **url, **given}, streaming=True)


def decode(chosen: SourceOptions, values: Sequence[bytes | None], **columns: DataType) -> Decoded:
    coded = coded_values(chosen)
    declared = [StructField(name, kind) for name, kind in columns.items()]
    return coded.decoder(declared or list(coded.columns()))(values)


def coded_values(chosen: SourceOptions) -> CodedValues:
    """As they arrive in a task."""
    found = CodedValues.of(chosen)
    assert found is not None
    sent: CodedValues = pickle.loads(pickle.dumps(found))
    return sent


def test_every_type(running: RunningBroker) -> None:
    schema = schema_of({name: kind for name, (kind, _) in ALL.items()})
    row = {name: value for name, (_, value) in ALL.items()}
    value = written(running, "types", schema, row)
    chosen = options(running, "types")
    assert coded_values(chosen).columns().simpleString() == (
        "struct<flag:boolean,small:int,large:bigint,half:double,raw:binary,text:string,none:string,"
        "kind:string,at:timestamp,exactly:timestamp,day:date,price:decimal(9,2),id:string,"
        "tags:array<string>,counts:map<string,int>,inner:struct<n:string>>"
    )
    decoded = decode(chosen, [value, None])
    assert decoded.malformed == []
    found = {name: column.to_pylist() for name, column in decoded.columns.items()}
    expected = {**row, "id": str(row["id"]), "counts": [("x", 1)]}
    assert found == {name: [one, None] for name, one in expected.items()}


def test_old_and_new_values_are_read_as_the_newest_schema(running: RunningBroker) -> None:
    first = written(running, "grows", schema_of({"user": "string", "old": "int"}), U_OLD)
    grown = schema_of({"user": "string", "amount": "double"}, {"amount": 1.5})
    second = written(running, "grows", grown, {"user": "b", "amount": 2.5})
    decoded = decode(options(running, "grows"), [first, second])
    assert {name: column.to_pylist() for name, column in decoded.columns.items()} == {
        "user": ["a", "b"],
        "amount": [1.5, 2.5],
    }
    # A schema of the user's own goes before the newest; columns come by name.
    own = options(running, "grows", valueSchema=schema_of({"user": "string"}))
    only = decode(own, [first, second], user=StringType(), missing=IntegerType())
    assert only.columns["user"].to_pylist() == ["a", "b"]
    assert only.columns["missing"].to_pylist() == [None, None]


U_OLD = {"user": "a", "old": 1}


def test_schemas_that_refer_to_others(running: RunningBroker) -> None:
    assert running.http is not None
    part = json.dumps({"type": "record", "name": "Part", "fields": [{"name": "n", "type": "int"}]})
    with SchemaRegistryClient({"url": running.http}) as client:
        client.register_schema("parts", Schema(part, "AVRO"))
        whole = Schema(schema_of({"part": "Part"}), "AVRO", [SchemaReference("Part", "parts", 1)])
        client.register_schema("whole-value", whole)
        value = AvroSerializer(client, whole)(
            {"part": {"n": 3}}, SerializationContext("whole", MessageField.VALUE)
        )
    decoded = decode(
        options(running, "whole"), [value], part=StructType([StructField("n", IntegerType())])
    )
    assert decoded.columns["part"].to_pylist() == [{"n": 3}]


def test_what_is_malformed_stands_alone(running: RunningBroker) -> None:
    schema = schema_of({"user": "string", "old": "int"})
    good = written(running, "bad", schema, U_OLD)
    values = [good, b"{}", b"", good[:-1], good + b"x", b"\0\0\1\0\0abc", good]
    decoded = decode(options(running, "bad"), [*values], user=StringType(), old=IntegerType())
    assert decoded.columns["user"].to_pylist() == ["a", *[None] * 5, "a"]
    assert [one.row for one in decoded.malformed] == [1, 2, 3, 4, 5]
    reasons = [one.reason for one in decoded.malformed]
    assert reasons[0] == "it does not begin with a zero and the id of a schema"
    assert reasons[3] == "1 bytes are left over after the last field"
    assert "has no id 65536" in reasons[4]


def test_a_column_that_does_not_fit_is_malformed_only_where_it_does_not(
    running: RunningBroker,
) -> None:
    schema = schema_of({"n": "long"})
    values = [written(running, "wide", schema, {"n": n}) for n in (1, 1 << 40, 3)]
    decoded = decode(options(running, "wide"), [*values], n=IntegerType())
    assert decoded.columns["n"].to_pylist() == [1, None, 3]
    assert [(one.row, one.reason[:3]) for one in decoded.malformed] == [(1, "n: ")]


def test_without_a_registry_values_are_bare(running: RunningBroker) -> None:
    schema = schema_of({"user": "string", "old": "int"})
    bare = written(running, "bare", schema, U_OLD)[5:]
    chosen = options(running, "bare", schemaRegistryUrl="", valueSchema=schema)
    assert decode(chosen, [bare]).columns["old"].to_pylist() == [1]
    with pytest.raises(UsageError, match="set schemaRegistryUrl or valueSchema"):
        coded_values(options(running, "bare", schemaRegistryUrl=""))
    with pytest.raises(UsageError, match="the schema of the values is none of Avro"):
        coded_values(options(running, "bare", valueSchema="{"))


def test_a_registry_that_is_down_is_said_and_one_that_was_asked_is_not_needed(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.schemas._RETRY_SECONDS", 0.0)
    with pytest.raises(UnavailableError) as error:
        Registry("http://127.0.0.1:1", "alice:hunter2").schema_of_id(1)
    assert "the schema registry at http://127.0.0.1:1 does not answer" in str(error.value)
    assert "hunter2" not in str(error.value) + repr(Registry("http://h", "alice:hunter2"))
    with broker(http=True) as short:
        value = written(short, "kept", schema_of({"user": "string"}), {"user": "a"})
        coded = coded_values(options(short, "kept"))
        decode_them = coded.decoder(list(coded.columns()))
        with pytest.raises(NotFoundError):
            Registry(short.http or "").latest("nothing")
        decode_them([value])
    assert decode_them([value, value]).columns["user"].to_pylist() == ["a", "a"]
