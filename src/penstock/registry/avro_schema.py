"""Avro schemas: Apache's library parses and compares them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import avro.compatibility
import avro.errors
import avro.name
import avro.schema

from penstock.registry.errors import InvalidSchemaError
from penstock.registry.kinds import Parsed

# The order in which Avro's own libraries write a schema's attributes.
_ORDER: Final = (
    "type", "name", "namespace", "doc", "aliases", "fields", "symbols", "items", "values", "size",
    "default", "order",
)  # fmt: skip


class AvroSchema:
    """See kinds.Parsed."""

    def __init__(self, value: Any, schema: Any, referenced: list[Any]) -> None:
        self._value = value
        self._schema = schema
        self._referenced = referenced

    @property
    def text(self) -> str:
        """The JSON as it was given, without spaces."""
        return _dump(self._value)

    @property
    def identity(self) -> Hashable:
        """The order of attributes carries no meaning."""
        return json.dumps(self._value, sort_keys=True)

    def normalized(self) -> str:
        """Attributes in Avro's order, primitive types by their names."""
        return _dump(_ordered(self._value))

    def formatted(self, form: str) -> str:
        """`resolved`: with what it refers to written out."""
        if form != "resolved" or not self._referenced:
            return self.text
        return _dump(self._schema.to_json())

    def cannot_read(self, writer: Parsed) -> list[str]:
        """Avro's own rules."""
        assert isinstance(writer, AvroSchema)
        checker = avro.compatibility.ReaderWriterCompatibilityChecker()
        result = checker.get_compatibility(self._schema, writer._schema)
        if result.compatibility is avro.compatibility.SchemaCompatibilityType.compatible:
            return []
        kinds = ", ".join(sorted({kind.value.upper() for kind in result.incompatibilities}))
        places = ", ".join(sorted(result.locations - {"/"})) or "/"
        return [f"{kinds} at {places}: {'; '.join(sorted(result.messages))}"]


def parse(text: str, references: Mapping[str, str]) -> AvroSchema:
    """See kinds.Kind."""
    names = avro.name.Names()
    try:
        with warnings.catch_warnings():
            # About logical types it does not know, which Avro says are to be ignored.
            warnings.simplefilter("ignore")
            referenced = [_make(json.loads(other), names) for other in references.values()]
            value = json.loads(text)
            schema = _make(value, names)
        _check_defaults(schema, set())
    except (avro.errors.AvroException, ValueError, TypeError, AttributeError) as error:
        raise InvalidSchemaError(f"Invalid schema: {error}") from error
    except RecursionError as error:
        raise InvalidSchemaError("Invalid schema: it is nested too deeply") from error
    return AvroSchema(value, schema, referenced)


def _make(value: Any, names: Any) -> Any:
    if isinstance(value, str) and names.has_name(value, None):
        return names.get_name(value, None)
    return avro.schema.make_avsc_object(value, names)


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _ordered(value: Any) -> Any:
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"type"} and isinstance(value["type"], str | list):
        return _ordered(value["type"])
    rank = {name: place for place, name in enumerate(_ORDER)}
    keys = sorted(value, key=lambda key: (rank.get(key, len(rank)), key))
    schemas = ("type", "fields", "items", "values")
    return {key: _ordered(value[key]) if key in schemas else value[key] for key in keys}


# -- defaults, which the library does not look at


def _check_defaults(schema: Any, seen: set[int]) -> None:
    if id(schema) in seen:
        return
    seen.add(id(schema))
    if schema.type in ("record", "error"):
        for field in schema.fields:
            if field.has_default and not _fits(field.type, field.default):
                raise InvalidSchemaError(
                    f"Invalid schema: the default of field {field.name} does not fit its type"
                )
            _check_defaults(field.type, seen)
    for part in _parts(schema):
        _check_defaults(part, seen)


def _parts(schema: Any) -> list[Any]:
    if schema.type == "union":
        return list(schema.schemas)
    if schema.type == "array":
        return [schema.items]
    return [schema.values] if schema.type == "map" else []


def _fits(schema: Any, value: Any) -> bool:
    return _FITS[schema.type](schema, value)


def _is_whole(_: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_: Any, value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(_: Any, value: Any) -> bool:
    return isinstance(value, str)


def _is_record(schema: Any, value: Any) -> bool:
    return isinstance(value, dict) and all(
        _fits(field.type, value[field.name]) if field.name in value else field.has_default
        for field in schema.fields
    )


_FITS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "null": lambda _, value: value is None,
    "boolean": lambda _, value: isinstance(value, bool),
    "int": _is_whole,
    "long": _is_whole,
    "float": _is_number,
    "double": _is_number,
    # Bytes are written as text, one character for each.
    "string": _is_text,
    "bytes": _is_text,
    "fixed": _is_text,
    "enum": lambda schema, value: value in schema.symbols,
    "array": lambda s, value: isinstance(value, list) and all(_fits(s.items, v) for v in value),
    "map": lambda s, value: (
        isinstance(value, dict) and all(_fits(s.values, v) for v in value.values())
    ),
    "record": _is_record,
    "error": _is_record,
    "union": lambda schema, value: any(_fits(branch, value) for branch in schema.schemas),
}
