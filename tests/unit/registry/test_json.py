"""JSON Schema: what may follow what, and what is no schema."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from penstock.registry import json_schema
from penstock.registry.errors import InvalidSchemaError


class Case(NamedTuple):
    """The problem of a new schema that is to allow what the old one did, and the other way round."""

    name: str
    old: Any
    new: Any
    backward: str = ""
    forward: str = ""


STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}


def opened(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties}
    return made | ({"required": list(required)} if required else {})


def closed(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    return opened(required, **properties) | {"additionalProperties": False}


def partly(kind: Any, /, **properties: Any) -> dict[str, Any]:
    return opened(**properties) | {"additionalProperties": kind}


def array(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items} | more


CASES = [
    Case("same", opened(a=STRING), opened(a=STRING)),
    Case("described", STRING, STRING | {"title": "T", "description": "d"}),
    Case("type changed", STRING, INTEGER, "TYPE_CHANGED at #", "TYPE_CHANGED at #"),
    Case("integer to number", INTEGER, NUMBER, "", "TYPE_NARROWED at #"),
    Case("type to list with it", STRING, {"type": ["string", "null"]}, "", "TYPE_CHANGED at #"),
    Case("nothing said to string", {}, STRING, "TYPE_CHANGED at #", ""),
    Case("to false", STRING, False, "TYPE_CHANGED at #", ""),
    # Objects.
    Case(
        "property added to open",
        opened(a=STRING),
        opened(a=STRING, b=INTEGER),
        "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at #/properties/b",
        "",
    ),
    Case("property without schema added to open", opened(), opened(a=True)),
    Case(
        "property added to closed",
        closed(a=STRING),
        closed(a=STRING, b=INTEGER),
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/properties/b",
    ),
    Case(
        "required property added to closed",
        closed(a=STRING),
        closed(("b",), a=STRING, b=INTEGER),
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL at #/properties/b",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/properties/b",
    ),
    Case(
        "required property with default added to closed",
        closed(a=STRING),
        closed(("b",), a=STRING, b=INTEGER | {"default": 0}),
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/properties/b",
    ),
    Case(
        "property added that fits the rest",
        partly(STRING, a=STRING),
        partly(STRING, a=STRING, b=STRING),
    ),
    Case(
        "property added that does not fit the rest",
        partly(STRING, a=STRING),
        partly(STRING, a=STRING, b=INTEGER),
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at #/properties/b",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at #/properties/b",
    ),
    Case(
        "property added that fits a pattern",
        closed() | {"patternProperties": {"^x_": STRING}},
        closed(x_a=STRING) | {"patternProperties": {"^x_": STRING}},
    ),
    Case(
        "required",
        opened(a=STRING),
        opened(("a",), a=STRING),
        "REQUIRED_ATTRIBUTE_ADDED at #/required/a",
        "",
    ),
    Case("required with default", opened(a=STRING), opened(("a",), a=STRING | {"default": ""})),
    Case("closed", opened(), closed(), "ADDITIONAL_PROPERTIES_REMOVED at #/additionalProperties"),
    Case(
        "rest narrowed",
        opened(),
        partly(STRING),
        "ADDITIONAL_PROPERTIES_NARROWED at #/additionalProperties",
    ),
    Case(
        "property changed deep inside",
        opened(a=opened(b=STRING)),
        opened(a=opened(b=INTEGER)),
        *["TYPE_CHANGED at #/properties/a/properties/b"] * 2,
    ),
    Case(
        "dependency",
        opened(),
        opened() | {"dependencies": {"a": ["b"]}},
        "DEPENDENCY_ARRAY_ADDED at #/dependencies/a",
    ),
    Case(
        "dependency grows",
        opened() | {"dependencies": {"a": ["b"]}},
        opened() | {"dependencies": {"a": ["b", "c"]}},
        "DEPENDENCY_ARRAY_EXTENDED at #/dependencies/a",
    ),
    # Values.
    Case(
        "longer",
        STRING | {"maxLength": 3},
        STRING | {"maxLength": 5},
        "",
        "MAX_LENGTH_DECREASED at #/maxLength",
    ),
    Case("bounded", STRING, STRING | {"minLength": 1}, "MIN_LENGTH_ADDED at #/minLength", ""),
    Case(
        "minimum lower",
        NUMBER | {"minimum": 3},
        NUMBER | {"minimum": 1},
        "",
        "MINIMUM_INCREASED at #/minimum",
    ),
    Case(
        "exclusive maximum",
        NUMBER | {"exclusiveMaximum": 3},
        NUMBER | {"exclusiveMaximum": 1},
        "EXCLUSIVE_MAXIMUM_DECREASED at #/exclusiveMaximum",
        "",
    ),
    Case(
        "divisor",
        INTEGER | {"multipleOf": 6},
        INTEGER | {"multipleOf": 3},
        "",
        "MULTIPLE_OF_CHANGED at #/multipleOf",
    ),
    Case(
        "pattern",
        STRING | {"pattern": "a"},
        STRING | {"pattern": "b"},
        *["PATTERN_CHANGED at #/pattern"] * 2,
    ),
    Case("pattern added", STRING, STRING | {"pattern": "b"}, "PATTERN_ADDED at #/pattern", ""),
    Case("enum grows", {"enum": [1]}, {"enum": [1, 2]}, "", "ENUM_ARRAY_NARROWED at #"),
    Case("enum added", STRING, STRING | {"enum": ["a"]}, "ENUM_ARRAY_ADDED at #", ""),
    Case("const to enum", {"const": 1}, {"enum": [1, 2]}, "", "ENUM_ARRAY_NARROWED at #"),
    Case(
        "not",
        {"not": {"type": ["string", "null"]}},
        {"not": STRING},
        "",
        "NOT_TYPE_EXTENDED at #/not",
    ),
    # Arrays.
    Case("items changed", array(STRING), array(INTEGER), *["TYPE_CHANGED at #/items"] * 2),
    Case("items named", {"type": "array"}, array(STRING), "ITEMS_NARROWED at #/items", ""),
    Case(
        "unique",
        array(STRING),
        array(STRING, uniqueItems=True),
        "UNIQUE_ITEMS_ADDED at #/uniqueItems",
        "",
    ),
    Case(
        "more items",
        array(STRING, maxItems=1),
        array(STRING, maxItems=2),
        "",
        "MAX_ITEMS_DECREASED at #/maxItems",
    ),
    Case(
        "tuple grows, open",
        array([STRING]),
        array([STRING, INTEGER]),
        "ITEM_ADDED_TO_OPEN_CONTENT_MODEL at #/items/1",
        "",
    ),
    Case(
        "tuple grows, closed",
        array([STRING], additionalItems=False),
        array([STRING, INTEGER], additionalItems=False),
        "",
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/items/1",
    ),
    # Combinations.
    Case(
        "alternative added",
        {"oneOf": [STRING]},
        {"oneOf": [NUMBER, STRING]},
        "",
        "SUM_TYPE_NARROWED at #",
    ),
    Case(
        "alternative removed",
        {"oneOf": [NUMBER, STRING, {"type": "null"}]},
        {"oneOf": [STRING, NUMBER]},
        "SUM_TYPE_NARROWED at #",
        "",
    ),
    Case(
        "condition added",
        {"allOf": [STRING, {"maxLength": 5}]},
        {"allOf": [STRING, {"maxLength": 5}, {"minLength": 1}]},
        "PRODUCT_TYPE_EXTENDED at #",
        "",
    ),
    Case("reordered", {"anyOf": [STRING, NUMBER]}, {"anyOf": [NUMBER, STRING]}),
    Case(
        "alternative changed",
        {"anyOf": [STRING, NUMBER]},
        {"anyOf": [STRING, {"type": "boolean"}]},
        *["COMBINED_TYPE_SUBSCHEMAS_CHANGED at #"] * 2,
    ),
    Case(
        "one of to any of",
        {"oneOf": [STRING, NUMBER]},
        {"anyOf": [STRING, NUMBER]},
        "",
        "COMBINED_TYPE_CHANGED at #",
    ),
    Case("single to alternatives", STRING, {"anyOf": [NUMBER, STRING]}, "", "TYPE_CHANGED at #"),
    Case("alternatives of one", {"oneOf": [STRING]}, STRING),
    Case("all of one, any of one", {"allOf": [STRING]}, {"anyOf": [STRING]}),
    Case("alternatives as types", {"anyOf": [STRING, NUMBER]}, {"type": ["string", "number"]}),
    Case("nullable", {"type": ["null", "string"]}, {"anyOf": [{"type": "null"}, STRING]}),
    Case(
        "condition dropped",
        {"allOf": [STRING, {"maxLength": 5}]},
        {"allOf": [STRING]},
        "",
        "PRODUCT_TYPE_EXTENDED at #",
    ),
    Case(
        "one condition kept", {"allOf": [STRING, {"maxLength": 5}]}, STRING, "", "TYPE_CHANGED at #"
    ),
    Case(
        "recursive alternatives",
        {"type": ["object", "null"], "properties": {"next": {"$ref": "#"}}},
        {"anyOf": [{"type": "null"}, opened(next={"$ref": "#"})]},
    ),
    # References.
    Case(
        "through a definition",
        {"definitions": {"s": STRING}} | opened(a={"$ref": "#/definitions/s"}),
        opened(a=INTEGER),
        *["TYPE_CHANGED at #/properties/a"] * 2,
    ),
    Case(
        "recursive",
        closed(next={"$ref": "#"}),
        closed(next={"$ref": "#"}, a=STRING),
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/properties/a",
    ),
]


def parsed(value: Any, **references: str) -> json_schema.JsonSchema:
    return json_schema.parse(json.dumps(value), references)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_may_follow_what(case: Case) -> None:
    old, new = parsed(case.old), parsed(case.new)
    assert new.cannot_read(old) == ([case.backward] if case.backward else [])
    assert old.cannot_read(new) == ([case.forward] if case.forward else [])


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "3",
        '"string"',
        '{"type": "strng"}',
        '{"minLength": -1}',
        '{"properties": []}',
        '{"$ref": "#/definitions/missing"}',
        '{"$ref": "other.json"}',
        '{"not": ' * 5_000 + "{}" + "}" * 5_000,
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        json_schema.parse(text, {})


def test_references_lead_to_other_schemas() -> None:
    order = opened(price={"$ref": "money.json"})
    old = json_schema.parse(json.dumps(order), {"money.json": json.dumps(opened(cents=INTEGER))})
    new = json_schema.parse(json.dumps(order), {"money.json": json.dumps(opened(cents=STRING))})
    assert new.cannot_read(old) == ["TYPE_CHANGED at #/properties/price/properties/cents"]


def test_a_pattern_of_another_dialect_is_not_an_accident() -> None:
    model = closed() | {"patternProperties": {"\\p{L}(": STRING}}
    assert parsed(model | {"properties": {"a": STRING}}).cannot_read(parsed(model)) == []


def test_spelling_does_not_matter_for_identity() -> None:
    one = json_schema.parse('{"type": "string", "maxLength": 1}', {})
    other = json_schema.parse('{"maxLength":1,"type":"string"}', {})
    assert one.identity == other.identity
    assert (one.text, one.normalized()) == (
        '{"type":"string","maxLength":1}',
        '{"maxLength":1,"type":"string"}',
    )
