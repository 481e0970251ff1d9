"""When one JSON Schema may follow another: the new one must allow all that the old one allowed.

The names of the problems and the rules are those of Confluent's registry. One of them surprises: where
an object may hold properties that its schema does not name (which is so unless `additionalProperties`
says otherwise), a property cannot be added, as old documents may hold anything under its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

_ANNOTATIONS: Final = frozenset(
    ("$id", "$schema", "$comment", "$defs", "definitions", "title", "description", "default",
     "examples", "deprecated", "readOnly", "writeOnly")
)  # fmt: skip
_COMBINED: Final = ("allOf", "anyOf", "oneOf")
# A larger upper bound allows more, and so does a smaller lower one; none at all allows everything.
_UPPER: Final = (
    "maxLength", "maximum", "exclusiveMaximum", "maxItems", "maxProperties", "maxContains",
)  # fmt: skip
_LOWER: Final = (
    "minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties", "minContains",
)  # fmt: skip
# Keywords that may go, and may neither come nor change.
_FIXED: Final = ("pattern", "propertyNames", "contains", "if", "then", "else", "dependentSchemas")
_EVERY_TYPE: Final = frozenset(
    ("null", "boolean", "integer", "number", "string", "array", "object")
)


class Place(NamedTuple):
    """A schema, and what finds the schemas that it refers to."""

    schema: Any
    resolver: Any

    def at(self, schema: Any) -> Place:
        """A part of it."""
        return Place(schema, self.resolver)

    def followed(self) -> Place:
        """What it stands for, if it only refers to another."""
        place = self
        for _ in range(100):  # references that only refer to each other have no meaning
            schema = place.schema
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return place
            found = place.resolver.lookup(schema["$ref"])
            place = Place(found.contents, found.resolver)
        return place.at(True)


class Comparison:
    """Compares an old with a new schema, and collects what is wrong."""

    def __init__(self, above: frozenset[tuple[int, int]] = frozenset()) -> None:
        self.problems: list[str] = []
        self._above = above

    def compare(self, old: Place, new: Place, path: str) -> None:
        """Find what the old schema allows and the new one does not."""
        old, new = old.followed(), new.followed()
        pair = (id(old.schema), id(new.schema))
        if pair in self._above or _allows_everything(new.schema) or old.schema is False:
            return
        if new.schema is False:
            self._add("TYPE_CHANGED", path)
            return
        before = self._above
        self._above = before | {pair}
        if old.schema is True:
            old = old.at({})
        if not self._taken_apart(old, new, path):
            for rule, kind in _RULES:
                if kind is None or kind in _types(old.schema):
                    rule(self, old, new, path)
        self._above = before

    def _taken_apart(self, old: Place, new: Place, path: str) -> bool:
        """Compare part by part, where one of the two is nothing but a combination and one is none."""
        before, after = _combination(old), _combination(new)
        if before is not None and after is None and _is_pure(old.schema):
            if before.criterion == "allOf":
                # What all of them allow is allowed if one of them alone would be.
                parts = [p for p in before.parts if self.allows(p, new, path)] or before.parts
                self.compare(parts[0], new, path)
            else:
                for part in before.parts:
                    self.compare(part, new, path)
            return True
        if before is None and after is not None and _is_pure(new.schema):
            if len(after.parts) == 1:
                self.compare(old, after.parts[0], path)
                return True
            if isinstance(old.schema.get("type"), list):
                # Several types are another way to write anyOf.
                parts = [old.at(old.schema | {"type": name}) for name in old.schema["type"]]
                self.compare(old.at({"anyOf": [part.schema for part in parts]}), new, path)
                return True
        return False

    def allows(self, old: Place, new: Place, path: str) -> bool:
        """Whether a comparison finds nothing; what it finds is not kept."""
        trial = Comparison(self._above)
        trial.compare(old, new, path)
        return not trial.problems

    def _add(self, name: str, path: str) -> None:
        self.problems.append(f"{name} at {path}")

    # -- what every type has

    def _types(self, old: Place, new: Place, path: str) -> None:
        missing = _types(old.schema) - _types(new.schema)
        if "number" in _types(new.schema):
            missing -= {"integer"}
        if missing:
            narrowed = missing == {"number"} and "integer" in _types(new.schema)
            self._add("TYPE_NARROWED" if narrowed else "TYPE_CHANGED", path)

    def _values(self, old: Place, new: Place, path: str) -> None:
        allowed = _enum(new.schema)
        if allowed is None:
            return
        before = _enum(old.schema)
        if before is None:
            self._add("ENUM_ARRAY_ADDED", path)
        elif not all(value in allowed for value in before):
            self._add("ENUM_ARRAY_NARROWED", path)

    def _bounds(self, old: Place, new: Place, path: str) -> None:
        for names, word, sign in ((_UPPER, "DECREASED", 1), (_LOWER, "INCREASED", -1)):
            for name in names:
                before, after = _number(old.schema, name), _number(new.schema, name)
                if after is None:
                    continue
                if before is None:
                    self._add(f"{_upper(name)}_ADDED", f"{path}/{name}")
                elif after * sign < before * sign:
                    self._add(f"{_upper(name)}_{word}", f"{path}/{name}")

    def _multiple_of(self, old: Place, new: Place, path: str) -> None:
        before, after = _number(old.schema, "multipleOf"), _number(new.schema, "multipleOf")
        if after is None:
            return
        if before is None:
            self._add("MULTIPLE_OF_ADDED", f"{path}/multipleOf")
        elif before % after:
            self._add("MULTIPLE_OF_CHANGED", f"{path}/multipleOf")

    def _fixed(self, old: Place, new: Place, path: str) -> None:
        for name in _FIXED:
            if name not in new.schema:
                continue
            if name not in old.schema:
                self._add(f"{_upper(name)}_ADDED", f"{path}/{name}")
            elif new.schema[name] != old.schema[name]:
                self._add(f"{_upper(name)}_CHANGED", f"{path}/{name}")

    def _not(self, old: Place, new: Place, path: str) -> None:
        if "not" not in new.schema:
            return
        # What is excluded now must have been excluded before.
        excluded = old.at(old.schema["not"]) if "not" in old.schema else old.at(False)
        if not self.allows(new.at(new.schema["not"]), excluded, path):
            self._add("NOT_TYPE_EXTENDED", f"{path}/not")

    # -- objects

    def _required(self, old: Place, new: Place, path: str) -> None:
        before = old.schema.get("properties", {})
        was_required = old.schema.get("required", ())
        properties = new.schema.get("properties", {})
        for name in new.schema.get("required", ()):
            has_default = isinstance(properties.get(name), dict) and "default" in properties[name]
            if name in was_required or has_default:
                continue
            if name in properties and name not in before:
                continue  # it is new: told by _properties
            self._add("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}")

    def _properties(self, old: Place, new: Place, path: str) -> None:
        before = old.schema.get("properties", {})
        after = new.schema.get("properties", {})
        for name in (*before, *(n for n in after if n not in before)):
            where = f"{path}/properties/{name}"
            if name not in after:
                self._property_removed(old.at(before[name]), new, name, where)
            elif name not in before:
                self._property_added(old, new.at(after[name]), name, where)
                if name in new.schema.get("required", ()) and not _has_default(after[name]):
                    self._add("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", where)
            else:
                self.compare(old.at(before[name]), new.at(after[name]), where)

    def _property_removed(self, old: Place, model: Place, name: str, path: str) -> None:
        rest = _unnamed(model, name)
        if rest is False:
            if old.schema is not False:
                self._add("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
        elif not self.allows(old, model.at(rest), path):
            self._add("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)

    def _property_added(self, model: Place, new: Place, name: str, path: str) -> None:
        rest = _unnamed(model, name)
        if rest is True:
            if not _allows_everything(new.followed().schema):
                self._add("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", path)
        elif not self.allows(model.at(rest), new, path):
            self._add("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)

    def _additional_properties(self, old: Place, new: Place, path: str) -> None:
        self._additional("additionalProperties", old, new, path)

    def _additional(self, name: str, old: Place, new: Place, path: str) -> None:
        before, after = old.schema.get(name, True), new.schema.get(name, True)
        if before is False or _allows_everything(after):
            return
        if after is False:
            self._add(f"{_upper(name)}_REMOVED", f"{path}/{name}")
        elif _allows_everything(before):
            self._add(f"{_upper(name)}_NARROWED", f"{path}/{name}")
        else:
            self.compare(old.at(before), new.at(after), f"{path}/{name}")

    def _dependencies(self, old: Place, new: Place, path: str) -> None:
        for keyword in ("dependencies", "dependentRequired"):
            before = old.schema.get(keyword, {})
            for name, after in new.schema.get(keyword, {}).items():
                self._dependency(old, new, before.get(name), after, f"{path}/{keyword}/{name}")

    def _dependency(self, old: Place, new: Place, before: Any, after: Any, path: str) -> None:
        if isinstance(after, list):
            if not isinstance(before, list):
                self._add("DEPENDENCY_ARRAY_ADDED", path)
            elif not set(after) <= set(before):
                self._add("DEPENDENCY_ARRAY_EXTENDED", path)
        elif before is None or isinstance(before, list):
            self._add("DEPENDENCY_SCHEMA_ADDED", path)
        else:
            self.compare(old.at(before), new.at(after), path)

    # -- arrays

    def _items(self, old: Place, new: Place, path: str) -> None:
        before, rest_before = _tuple_of(old.schema)
        after, rest_after = _tuple_of(new.schema)
        for number in range(max(len(before), len(after))):
            was = before[number] if number < len(before) else rest_before
            now = after[number] if number < len(after) else rest_after
            where = f"{path}/items/{number}"
            if number < len(before) or number < len(after):
                if number >= len(before) and _allows_everything(was):
                    if not _allows_everything(now):
                        self._add("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", where)
                elif number >= len(after) and now is False and was is not False:
                    self._add("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", where)
                else:
                    self.compare(old.at(was), new.at(now), where)
        name = "additionalItems" if before or after else "items"
        self._additional(name, old.at({name: rest_before}), new.at({name: rest_after}), path)

    def _unique(self, old: Place, new: Place, path: str) -> None:
        if new.schema.get("uniqueItems") and not old.schema.get("uniqueItems"):
            self._add("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems")

    # -- combinations

    def _combinations(self, old: Place, new: Place, path: str) -> None:
        after = _combination(new)
        if after is None:
            return
        before = _combination(old)
        if before is None:
            self._combined_now(old, after, path)
            return
        if not _may_become(before, after):
            self._add("COMBINED_TYPE_CHANGED", path)
            return
        if after.criterion == "allOf" and len(after.parts) > len(before.parts):
            self._add("PRODUCT_TYPE_EXTENDED", path)
        if after.criterion != "allOf" and len(after.parts) < len(before.parts):
            self._add("SUM_TYPE_NARROWED", path)
        edges = [[self.allows(one, other, path) for other in after.parts] for one in before.parts]
        if _matching(edges) < min(len(before.parts), len(after.parts)):
            self._add("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path)

    def _combined_now(self, old: Place, new: Combination, path: str) -> None:
        found = [self.allows(old, part, path) for part in new.parts]
        if not (all(found) if new.criterion == "allOf" else any(found)):
            self._add("TYPE_CHANGED", path)


_Rule = Callable[[Comparison, Place, Place, str], None]
# Each with the type that it is about, if it is about one: what was no object needs no properties.
_RULES: Final[tuple[tuple[_Rule, str | None], ...]] = (
    (Comparison._types, None),
    (Comparison._values, None),
    (Comparison._bounds, None),
    (Comparison._multiple_of, None),
    (Comparison._fixed, None),
    (Comparison._not, None),
    (Comparison._required, "object"),
    (Comparison._properties, "object"),
    (Comparison._additional_properties, "object"),
    (Comparison._dependencies, "object"),
    (Comparison._items, "array"),
    (Comparison._unique, "array"),
    (Comparison._combinations, None),
)


class Combination(NamedTuple):
    """What stands under allOf, anyOf or oneOf."""

    criterion: str
    parts: list[Place]


def _combination(place: Place) -> Combination | None:
    for criterion in _COMBINED:
        parts: list[Any] = []
        for part in place.schema.get(criterion, ()):
            if part not in parts:
                parts.append(part)
        if parts:
            return Combination(criterion, [place.at(part) for part in parts])
    return None


def _is_pure(schema: dict[str, Any]) -> bool:
    """Whether a combination says nothing beside it."""
    return len(schema.keys() - _ANNOTATIONS) == 1


def _may_become(before: Combination, after: Combination) -> bool:
    """Whether one may follow: anyOf is the widest, and for a single part all three are the same."""
    if after.criterion in (before.criterion, "anyOf"):
        return True
    one = len(before.parts) == 1
    return one if after.criterion == "oneOf" else one and len(after.parts) == 1


def _matching(edges: Sequence[Sequence[bool]]) -> int:
    """How many of the left can be paired, each with another of the right (augmenting paths)."""
    paired: dict[int, int] = {}

    def pair(left: int, tried: set[int]) -> bool:
        for right, fits in enumerate(edges[left]):
            if fits and right not in tried:
                tried.add(right)
                if right not in paired or pair(paired[right], tried):
                    paired[right] = left
                    return True
        return False

    return sum(pair(left, set()) for left in range(len(edges)))


# -- reading a schema


def _allows_everything(schema: Any) -> bool:
    return schema is True or (isinstance(schema, dict) and not schema.keys() - _ANNOTATIONS)


def _types(schema: dict[str, Any]) -> frozenset[str]:
    types = schema.get("type")
    if types is None:
        return _EVERY_TYPE
    return frozenset((types,) if isinstance(types, str) else types)


def _enum(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found: list[Any] | None = schema.get("enum")
    return found


def _number(schema: dict[str, Any], name: str) -> float | None:
    value = schema.get(name)
    # Draft 4 wrote exclusiveMaximum as true or false, beside maximum.
    return None if isinstance(value, bool) or not isinstance(value, int | float) else value


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _unnamed(model: Place, name: str) -> Any:
    """What an object's schema says of a property that it does not name."""
    for pattern, schema in model.schema.get("patternProperties", {}).items():
        if _matches(pattern, name):
            return schema
    rest = model.schema.get("additionalProperties", True)
    if "patternProperties" not in model.schema and _allows_everything(rest):
        return True
    return rest if isinstance(rest, dict) else False


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False  # in the dialect of another language


def _tuple_of(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """Schemas of single items of an array, and of all others; both spellings of it."""
    if "prefixItems" in schema:
        return schema["prefixItems"], schema.get("items", True)
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return [], items


def _upper(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
