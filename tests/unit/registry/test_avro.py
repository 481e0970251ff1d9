"""Avro: what may follow what, and what is no schema."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from penstock.registry import avro_schema
from penstock.registry.errors import InvalidSchemaError


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind} | more


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)} | more


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols)} | more


class Case(NamedTuple):
    """Whether the new schema reads what the old one wrote, and the other way round."""

    name: str
    old: Any
    new: Any
    backward: bool
    forward: bool


A = field("a", "string")
CASES = [
    Case("same", record(A), record(A), True, True),
    Case("field without default added", record(A), record(A, field("b", "int")), False, True),
    Case(
        "field with default added", record(A), record(A, field("b", "int", default=0)), True, True
    ),
    Case(
        "optional field added",
        record(A),
        record(A, field("b", ["null", "int"], default=None)),
        True,
        True,
    ),
    Case("field removed", record(A, field("b", "int")), record(A), True, False),
    Case(
        "field with default removed", record(A, field("b", "int", default=1)), record(A), True, True
    ),
    Case("field renamed", record(A), record(field("c", "string")), False, False),
    Case(
        "field renamed with alias",
        record(A),
        record(field("c", "string", aliases=["a"])),
        True,
        False,
    ),
    Case("record renamed", record(A), record(A, name="Q"), False, False),
    Case("record renamed with alias", record(A), record(A, name="Q", aliases=["R"]), True, False),
    Case("int to long", "int", "long", True, False),
    Case("int to float", "int", "float", True, False),
    Case("long to double", "long", "double", True, False),
    Case("float to double", "float", "double", True, False),
    Case("string to bytes", "string", "bytes", True, True),
    Case("int to string", "int", "string", False, False),
    Case("type to union with it", "int", ["null", "int"], True, False),
    Case("union to one of it", ["null", "int"], "int", False, True),
    Case("union extended", ["null", "int"], ["null", "int", "string"], True, False),
    Case("union reordered", ["null", "int"], ["int", "null"], True, True),
    Case("symbol added", enum("X"), enum("X", "Y"), True, False),
    Case(
        "symbol added with default", enum("X", default="X"), enum("X", "Y", default="X"), True, True
    ),
    Case("symbol removed", enum("X", "Y"), enum("X"), False, True),
    Case(
        "items widened",
        {"type": "array", "items": "int"},
        {"type": "array", "items": "long"},
        True,
        False,
    ),
    Case(
        "values changed",
        {"type": "map", "values": "int"},
        {"type": "map", "values": "string"},
        False,
        False,
    ),
    Case(
        "fixed resized",
        {"type": "fixed", "name": "F", "size": 4},
        {"type": "fixed", "name": "F", "size": 8},
        False,
        False,
    ),
    Case(
        "nested field added without default",
        record(field("in", record(A, name="In"))),
        record(field("in", record(A, field("b", "int"), name="In"))),
        False,
        True,
    ),
    Case(
        "recursive",
        record(field("next", ["null", "R"], default=None)),
        record(field("next", ["null", "R"], default=None), field("b", "int", default=0)),
        True,
        True,
    ),
    Case(
        "array to map",
        {"type": "array", "items": "int"},
        {"type": "map", "values": "int"},
        *[False] * 2,
    ),
]


def parsed(value: Any) -> avro_schema.AvroSchema:
    return avro_schema.parse(json.dumps(value), {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_may_follow_what(case: Case) -> None:
    old, new = parsed(case.old), parsed(case.new)
    assert bool(new.cannot_read(old)) is not case.backward, new.cannot_read(old)
    assert bool(old.cannot_read(new)) is not case.forward, old.cannot_read(new)


def test_a_problem_names_its_place() -> None:
    (problem,) = parsed(record(A, field("b", "int"))).cannot_read(parsed(record(A)))
    assert problem == "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1: b"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]x",
        '"unknown"',
        "null",
        "3",
        '{"type": "record", "fields": []}',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "R", "fields": [{"name": "a"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "x"}]}',
        '{"type": "record", "name": "1R", "fields": []}',
        '{"type": "enum", "name": "E", "symbols": ["A", "A"]}',
        '{"type": "array"}',
        "[" * 5_000 + "]" * 5_000,
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        avro_schema.parse(text, {})


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("null", None),
        ("boolean", True),
        ("long", 3),
        ("double", 1),
        ("bytes", "\u00ff"),
        (enum("X"), "X"),
        ({"type": "array", "items": "int"}, [1]),
        ({"type": "map", "values": "int"}, {"a": 1}),
        (record(A, name="In"), {"a": "x"}),
        (record(field("a", "int", default=1), name="In"), {}),
        (["null", "int"], None),
    ],
)
def test_defaults_that_fit(kind: Any, default: Any) -> None:
    parsed(record(field("f", kind, default=default)))


@pytest.mark.parametrize(
    ("kind", "default"),
    [("int", True), ("int", 1.5), ("string", 1), (enum("X"), "Y"), (["null", "int"], "x")],
)
def test_defaults_that_do_not(kind: Any, default: Any) -> None:
    with pytest.raises(InvalidSchemaError, match="default of field f"):
        parsed(record(field("f", kind, default=default)))


def test_spelling_does_not_matter_for_identity() -> None:
    one = avro_schema.parse('{"type": "record", "name": "R", "fields": []}', {})
    other = avro_schema.parse('{"fields":[],"name":"R","type":"record"}', {})
    assert one.identity == other.identity
    assert one.text != other.text
    assert one.normalized() == other.normalized() == '{"type":"record","name":"R","fields":[]}'
    assert parsed({"type": "int"}).normalized() == '"int"'


def test_references_are_known_by_their_names() -> None:
    money = json.dumps(record(A, name="Money", namespace="shop"))
    order = avro_schema.parse(json.dumps(record(field("m", "shop.Money"))), {"shop.Money": money})
    assert "shop.Money" in order.text
    assert '"namespace":"shop"' in order.formatted("resolved")
    with pytest.raises(InvalidSchemaError):
        parsed(record(field("m", "shop.Money")))
