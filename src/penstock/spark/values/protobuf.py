"""Protobuf to typed columns, by Google's own library, whose parser is written in C.

What a value was written with is named by its first bytes (Confluent's format: a zero, the id of a
schema, and which of its messages) where there is a registry. It is read as the user's schema if there is
one: in Protobuf numbers of fields are what old and new have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, Final

from google.protobuf.message import DecodeError
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField

from penstock.client.schemas import Registry
from penstock.errors import NotFoundError
from penstock.spark.values.decoded import Decoded, UnreadableError, decode_each
from penstock.spark.values.protobuf_schema import TIMESTAMP, WRAPPERS, compiled

_PREFIX: Final = Struct(">bI")
_DEPTH_MAX: Final = 100  # as deep as Protobuf itself nests


class ProtobufValues:
    """Reads values into the fields of a schema.

    Args:
        fields: the columns.
        registry: where the schemas are that values name; None if they name none.
        reader: the message that values are read as; None for as they were written.
        any_name: whether values of messages with other names are read as that one, too.
    """

    def __init__(
        self,
        fields: Sequence[StructField],
        registry: Registry | None,
        reader: Any,
        *,
        any_name: bool,
    ) -> None:
        self._any_name = any_name
        self._types = {one.name: to_arrow_type(one.dataType, timezone="UTC") for one in fields}
        self._registry = registry
        self._reader = reader
        self._getters: dict[Any, dict[str, Callable[[Any], Any]]] = {}

    def decode(self, values: Iterable[bytes | None]) -> Decoded:
        """Read values, of which a null is a row of nulls."""
        return decode_each(values, self._read, self._types)

    def _read(self, value: bytes) -> dict[str, Any]:
        kind, start = self._reader, 0
        if self._registry is not None:
            written, start = _written(self._registry, value)
            kind = kind or written
            names = [one.DESCRIPTOR.full_name for one in (written, kind)]
            if names[0] != names[1] and not self._any_name:
                raise UnreadableError(f"it is a {names[0]}, not a {names[1]}")
        try:
            message = kind.FromString(value[start:])
        except DecodeError as error:
            raise UnreadableError(str(error)) from None
        return {name: get(message) for name, get in self._getters_of(kind).items()}

    def _getters_of(self, kind: Any) -> dict[str, Callable[[Any], Any]]:
        if kind not in self._getters:
            known = kind.DESCRIPTOR.fields_by_name
            self._getters[kind] = {n: _getter(known[n]) for n in self._types if n in known}
        return self._getters[kind]


def _written(registry: Registry, value: bytes) -> tuple[Any, int]:
    """The message that a value was written as, and where it begins."""
    if len(value) < _PREFIX.size or value[0]:
        raise UnreadableError("it does not begin with a zero and the id of a schema")
    _, number = _PREFIX.unpack_from(value)
    try:
        schema = registry.schema_of_id(number)
    except NotFoundError as error:
        raise UnreadableError(error.cause) from None
    if schema.kind != "PROTOBUF":
        raise UnreadableError(f"schema {number} is {schema.kind}, not PROTOBUF")
    try:
        path, start = _indexes(value)
        return compiled(schema).at(path), start
    except IndexError:
        raise UnreadableError(f"schema {number} has no message that it names") from None


def _indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    count, at = _varint(value, _PREFIX.size)
    if not 0 <= count <= _DEPTH_MAX:
        raise IndexError(count)
    found = []
    for _ in range(count):
        index, at = _varint(value, at)
        if index < 0:
            raise IndexError(index)
        found.append(index)
    return tuple(found) or (0,), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and where it ends; IndexError where the value ends first."""
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (found >> 1) ^ -(found & 1), at
        shift += 7


def _getter(field: Any) -> Callable[[Any], Any]:
    """What takes a field out of a message, as Arrow wants it."""
    name, message = field.name, field.message_type
    if message is not None and message.GetOptions().map_entry:
        item = _cell(message.fields_by_name["value"])
        return lambda one: {key: item(value) for key, value in getattr(one, name).items()}
    cell = _cell(field)
    if field.is_repeated:
        return lambda one: [cell(value) for value in getattr(one, name)]
    if field.has_presence:
        return lambda one: cell(getattr(one, name)) if one.HasField(name) else None
    return lambda one: cell(getattr(one, name))


def _cell(field: Any) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        names = {one.number: one.name for one in field.enum_type.values}
        return lambda value: names.get(value, str(value))
    if field.message_type is None:
        return lambda value: value
    if field.message_type.full_name == TIMESTAMP:
        return _moment
    if field.message_type.full_name in WRAPPERS:
        return lambda value: value.value
    getters: dict[str, Callable[[Any], Any]] = {}

    def struct(value: Any) -> dict[str, Any]:
        if not getters:  # on first use: a message may contain itself
            getters.update({one.name: _getter(one) for one in value.DESCRIPTOR.fields})
        return {name: get(value) for name, get in getters.items()}

    return struct


def _moment(value: Any) -> int:
    """Microseconds since 1970, which is what Spark's timestamps are."""
    seconds: int = value.seconds
    return seconds * 1_000_000 + int(value.nanos) // 1000
