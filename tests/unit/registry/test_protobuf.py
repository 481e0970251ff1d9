"""Protobuf: what may follow what, and what is no schema."""

from __future__ import annotations

import base64
from typing import NamedTuple

import pytest

from penstock.registry import protobuf_schema
from penstock.registry.errors import InvalidSchemaError
from penstock.registry.protobuf_schema import ProtobufSchema


class Case(NamedTuple):
    """The problem of a new schema that is to read what the old one wrote, and the other way round."""

    name: str
    old: str
    new: str
    backward: str = ""
    forward: str = ""
    syntax: str = "proto3"


def m(body: str, name: str = "M") -> str:
    return f"message {name} {{ {body} }}"


CASES = [
    Case("same", m("string a = 1;"), m("string a = 1;")),
    Case("field added", m("string a = 1;"), m("string a = 1; int32 b = 2;")),
    Case("field renamed", m("string a = 1;"), m("string z = 1;")),
    Case("number changed", m("string a = 1;"), m("string a = 2;")),
    Case("int32 to int64", m("int32 a = 1;"), m("int64 a = 1;")),
    Case("int32 to bool", m("int32 a = 1;"), m("bool a = 1;")),
    Case("int32 to enum", m("int32 a = 1;"), m("enum E { X = 0; } E a = 1;")),
    Case("string to bytes", m("string a = 1;"), m("bytes a = 1;")),
    Case(
        "int32 to sint32",
        m("int32 a = 1;"),
        m("sint32 a = 1;"),
        *["FIELD_SCALAR_KIND_CHANGED at #/M/1"] * 2,
    ),
    Case(
        "int32 to string",
        m("int32 a = 1;"),
        m("string a = 1;"),
        *["FIELD_SCALAR_KIND_CHANGED at #/M/1"] * 2,
    ),
    Case("fixed32 to sfixed32", m("fixed32 a = 1;"), m("sfixed32 a = 1;")),
    Case(
        "float to double",
        m("float a = 1;"),
        m("double a = 1;"),
        *["FIELD_SCALAR_KIND_CHANGED at #/M/1"] * 2,
    ),
    Case(
        "scalar to message",
        m("int32 a = 1;") + m("int32 x = 1;", "N"),
        m("N a = 1;") + m("int32 x = 1;", "N"),
        *["FIELD_KIND_CHANGED at #/M/1"] * 2,
    ),
    Case(
        "other message",
        m("N a = 1;") + m("", "N") + m("", "O"),
        m("O a = 1;") + m("", "N") + m("", "O"),
        *["FIELD_NAMED_TYPE_CHANGED at #/M/1"] * 2,
    ),
    Case(
        "number repeated",
        m("int32 a = 1;"),
        m("repeated int32 a = 1;"),
        *["FIELD_NUMERIC_LABEL_CHANGED at #/M/1"] * 2,
    ),
    Case("string repeated", m("string a = 1;"), m("repeated string a = 1;")),
    Case("optional", m("int32 a = 1;"), m("optional int32 a = 1;")),
    Case("message added", m(""), m("") + m("", "N"), "", "MESSAGE_REMOVED at #/N"),
    Case("nested added", m(""), m("message N {}"), "", "MESSAGE_REMOVED at #/M/N"),
    Case("enum value added", "enum E { X = 0; }", "enum E { X = 0; Y = 1; }"),
    Case("enum added", m(""), m("") + "enum E { X = 0; }"),
    Case(
        "required added",
        m("optional string a = 1;"),
        m("optional string a = 1; required string b = 2;"),
        "REQUIRED_FIELD_ADDED at #/M/2",
        "REQUIRED_FIELD_REMOVED at #/M/2",
        "proto2",
    ),
    Case(
        "one field into a new oneof",
        m("string a = 1;"),
        m("oneof o { string a = 1; int32 b = 2; }"),
    ),
    Case(
        "two fields into a oneof",
        m("string a = 1; string b = 2;"),
        m("oneof o { string a = 1; string b = 2; }"),
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF at #/M/o",
    ),
    Case(
        "field into an old oneof",
        m("oneof o { string a = 1; } string b = 2;"),
        m("oneof o { string a = 1; string b = 2; }"),
        "FIELD_MOVED_TO_EXISTING_ONEOF at #/M/o",
        "ONEOF_FIELD_REMOVED at #/M/o/2",
    ),
    Case(
        "member added",
        m("oneof o { string a = 1; }"),
        m("oneof o { string a = 1; int32 b = 2; }"),
        "",
        "ONEOF_FIELD_REMOVED at #/M/o/2",
    ),
    Case(
        "type changed in a renamed oneof",
        m("oneof o { string a = 1; }"),
        m("oneof p { int32 a = 1; }"),
        *["FIELD_SCALAR_KIND_CHANGED at #/M/1"] * 2,
    ),
    Case("map value widened", m("map<string, int32> a = 1;"), m("map<string, int64> a = 1;")),
    Case(
        "map value changed",
        m("map<string, int32> a = 1;"),
        m("map<string, string> a = 1;"),
        *["FIELD_SCALAR_KIND_CHANGED at #/M/1"] * 2,
    ),
    Case(
        "map to number",
        m("map<string, int32> a = 1;"),
        m("int32 a = 1;"),
        *["FIELD_KIND_CHANGED at #/M/1"] * 2,
    ),
    Case(
        "package changed",
        "package a; " + m("N n = 1;") + m("", "N"),
        "package b; " + m("N n = 1;") + m("", "N"),
    ),
    Case("recursive", m("M next = 1;"), m("M next = 1; string a = 2;")),
]


def source(body: str, syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; {body}'


def parsed(body: str, syntax: str = "proto3") -> ProtobufSchema:
    return protobuf_schema.parse(source(body, syntax), {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_may_follow_what(case: Case) -> None:
    old, new = parsed(case.old, case.syntax), parsed(case.new, case.syntax)
    assert new.cannot_read(old) == ([case.backward] if case.backward else [])
    assert old.cannot_read(new) == ([case.forward] if case.forward else [])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (source(m("string a = 1")), 'default:1:45: Expected ";".'),
        (source(m("Nothing a = 1;")), '"Nothing" is not defined'),
        (source(m("string a = 1; string b = 1;")), "Field number 1 has already been used"),
        (source('import "other.proto"; ' + m("")), "other.proto"),
        ("no schema", "Expected top-level statement"),
        ("abcd", "Expected top-level statement"),
    ],
)
def test_what_is_no_schema(text: str, told: str) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        protobuf_schema.parse(text, {})
    assert told in str(caught.value)


def test_source_and_compiled_are_the_same_schema() -> None:
    schema = parsed(
        'package p; import "google/protobuf/timestamp.proto"; '
        + m("google.protobuf.Timestamp at = 1; optional int32 longer_name = 2;")
    )
    compiled = schema.formatted("serialized")
    again = protobuf_schema.parse(compiled, {})
    assert again.text == compiled
    assert again.identity == schema.identity
    assert again.formatted("serialized") == compiled
    assert again.cannot_read(schema) == []


def test_a_compiled_schema_with_a_hole_is_refused() -> None:
    money = source(m("int64 cents = 1;", "Money"))
    whole = protobuf_schema.parse(
        source('import "money.proto"; ' + m("Money m = 1;")), {"money.proto": money}
    )
    with pytest.raises(InvalidSchemaError, match=r"money\.proto"):
        protobuf_schema.parse(whole.formatted("serialized"), {})


def test_references() -> None:
    references = {"shop/money.proto": source("package shop; " + m("int64 cents = 1;", "Money"))}
    text = source('import "shop/money.proto"; ' + m("shop.Money m = 1;"))
    old = protobuf_schema.parse(text, references)
    wider = {"shop/money.proto": source("package shop; " + m("string cents = 1;", "Money"))}
    (problem,) = protobuf_schema.parse(text, wider).cannot_read(old)
    assert problem == "FIELD_SCALAR_KIND_CHANGED at #/Money/1"
    compiled = protobuf_schema.parse(references["shop/money.proto"], {}).formatted("serialized")
    both = protobuf_schema.parse(old.formatted("serialized"), {"shop/money.proto": compiled})
    assert both.identity == old.identity
    with pytest.raises(InvalidSchemaError, match="was registered compiled"):
        protobuf_schema.parse(text, {"shop/money.proto": compiled})


@pytest.mark.parametrize(
    "name", ["../evil.proto", "/tmp/evil.proto", "a/../../evil.proto", "", "a\0b"]
)
def test_a_reference_cannot_lead_out_of_its_folder(name: str) -> None:
    with pytest.raises(InvalidSchemaError, match="cannot be the name of a file"):
        protobuf_schema.parse(source(m("")), {name: source(m("", "N"))})


def test_base64_of_something_else() -> None:
    text = base64.b64encode(b"\x00\x01\x02").decode()
    with pytest.raises(InvalidSchemaError):
        protobuf_schema.parse(text, {})
