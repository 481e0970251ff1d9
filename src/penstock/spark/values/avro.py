"""Avro to typed columns, by fastavro: the one reader that is compiled, resolves schemas and is kept up.

What a value was written with is named by its first five bytes (Confluent's format) where there is a
registry, and is the user's own schema where there is none. What it is read as is the user's schema, or
the newest one, or as it was written: fields come by name, with the defaults of what they are read as.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final

import fastavro
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField

from penstock.client.schemas import Registry, Schema
from penstock.errors import NotFoundError, UsageError
from penstock.spark.options import READ
from penstock.spark.values.decoded import Decoded, UnreadableError, decode_each

_PREFIX: Final = Struct(">bI")


class AvroValues:
    """Reads values into the fields of a schema.

    Args:
        fields: the columns.
        registry: where the schemas are that values name; None if they name none.
        reader: the schema that values are read as, parsed; None for as they were written.
    """

    def __init__(
        self, fields: Sequence[StructField], registry: Registry | None, reader: Any
    ) -> None:
        self._types = {one.name: to_arrow_type(one.dataType, timezone="UTC") for one in fields}
        self._registry = registry
        self._reader = reader

    def decode(self, values: Iterable[bytes | None]) -> Decoded:
        """Read values, of which a null is a row of nulls."""
        return decode_each(values, self._read, self._types)

    def _read(self, value: bytes) -> dict[str, Any]:
        writer, start = self._reader, 0
        if self._registry is not None:
            writer, start = _writer(self._registry, value), _PREFIX.size
        # The same one twice would be compared with itself, for every value.
        reader = None if writer is self._reader else self._reader
        stream = io.BytesIO(value)
        stream.seek(start)
        try:
            row = fastavro.schemaless_reader(stream, writer, reader)
        except Exception as error:  # it has no error of its own for bytes that are not Avro
            raise UnreadableError(f"{type(error).__name__}: {error}") from error
        if left := len(value) - stream.tell():
            raise UnreadableError(f"{left} bytes are left over after the last field")
        if not isinstance(row, dict):
            raise UnreadableError("it is no record")
        return row


def _writer(registry: Registry, value: bytes) -> Any:
    if len(value) < _PREFIX.size or value[0]:
        raise UnreadableError("it does not begin with a zero and the id of a schema")
    _, number = _PREFIX.unpack_from(value)
    try:
        return _parsed(registry, number)
    except NotFoundError as error:
        raise UnreadableError(error.cause) from None


@functools.lru_cache(maxsize=1000)
def _parsed(registry: Registry, number: int) -> Any:
    found = registry.schema_of_id(number)
    if found.kind != "AVRO":
        raise UnreadableError(f"schema {number} is {found.kind}, not AVRO")
    return parse_registered(found)


@functools.lru_cache(maxsize=1000)
def parse_registered(schema: Schema) -> Any:
    """A schema as fastavro wants it, with what it refers to.

    Raises:
        UsageError: it cannot be read, or is not of records.
    """
    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            fastavro.parse_schema(json.loads(text), named_schemas=named)
        parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        cause = f"the schema of the values is none of Avro: {error!r}"
        raise UsageError(READ, cause, "write it in JSON, as in a file .avsc") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        cause = "the Avro schema is not of a record"
        raise UsageError(READ, cause, "set valueSchema to the record that values are")
    return parsed
