"""JSON to typed columns: many values at once, by polars.

A block in which one value does not fit is cut in halves until that value stands alone: the parser that
reads the good ones also says which ones are bad, and why.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import UsageError
from penstock.spark.options import READ
from penstock.spark.values.decoded import REASON_LENGTH_MAX, Decoded, Malformed

_PLAIN: Final[dict[type[DataType], Any]] = {
    BooleanType: pl.Boolean,
    # Narrower ones the parser does not know; Arrow narrows them, and refuses what is too large.
    ByteType: pl.Int32,
    ShortType: pl.Int32,
    IntegerType: pl.Int32,
    LongType: pl.Int64,
    FloatType: pl.Float32,
    DoubleType: pl.Float64,
    StringType: pl.String,
}
# JSON has no such types: they are read as text, and Arrow reads the text.
_FROM_TEXT: Final = (TimestampType, TimestampNTZType, DateType, DecimalType)


class JsonValues:
    """Reads values into the fields of a schema.

    Raises:
        UsageError: it has a type that cannot be read from JSON here.
    """

    def __init__(self, fields: Sequence[StructField]) -> None:
        self._fields = fields
        self._schema = {one.name: _polars_type(one.name, one.dataType) for one in fields}
        self._types = {one.name: to_arrow_type(one.dataType, timezone="UTC") for one in fields}

    def decode(self, text: memoryview, ends: memoryview, rows: int) -> Decoded:
        """Read so many lines of text, each of which ends where the next number of ends says."""
        pieces: list[dict[str, pa.Array]] = []
        malformed: list[Malformed] = []
        waiting = [(0, rows)]
        while waiting:
            first, end = waiting.pop()
            try:
                pieces.append(self._parse(text[ends[first] : ends[end]], end - first))
            except (pl.exceptions.PolarsError, pa.ArrowInvalid) as error:
                if end - first == 1:
                    malformed.append(Malformed(first, _reason(error)))
                    pieces.append(self._nothing())
                else:
                    middle = (first + end) // 2
                    waiting += [(middle, end), (first, middle)]
        return Decoded(self._joined(pieces), malformed)

    def _parse(self, text: memoryview, rows: int) -> dict[str, pa.Array]:
        if not self._schema or not rows:
            return {name: pa.nulls(rows, kind) for name, kind in self._types.items()}
        table = pl.read_ndjson(io.BytesIO(text), schema=self._schema)
        if table.height != rows:
            # Empty lines are skipped by the parser.
            raise pa.ArrowInvalid("there is nothing in it")
        found = table.to_arrow(compat_level=pl.CompatLevel.oldest())
        return {
            name: _converted(found.column(name).combine_chunks(), kind)
            for name, kind in self._types.items()
        }

    def _nothing(self) -> dict[str, pa.Array]:
        return {name: pa.nulls(1, kind) for name, kind in self._types.items()}

    def _joined(self, pieces: list[dict[str, pa.Array]]) -> dict[str, pa.Array]:
        if len(pieces) == 1:
            return pieces[0]
        return {name: pa.concat_arrays([piece[name] for piece in pieces]) for name in self._types}


def _polars_type(path: str, kind: DataType) -> Any:
    if type(kind) in _PLAIN:
        return _PLAIN[type(kind)]
    if isinstance(kind, _FROM_TEXT):
        return pl.String
    if isinstance(kind, ArrayType):
        return pl.List(_polars_type(path, kind.elementType))
    if isinstance(kind, StructType):
        return pl.Struct(
            {one.name: _polars_type(f"{path}.{one.name}", one.dataType) for one in kind}
        )
    cause = f"{path} is {kind.simpleString()}, which is not read from JSON"
    raise UsageError(READ, cause, "declare it STRING and take it apart with from_json")


def _converted(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type == kind:
        return column
    if pa.types.is_timestamp(kind) and pa.types.is_large_string(column.type):
        return _timestamps(column, kind)
    return column.cast(kind)


def _timestamps(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """ISO 8601 with or without a zone; without one it is UTC."""
    try:
        return column.cast(pa.timestamp("us", tz="UTC")).cast(kind)
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us")).cast(kind)


def _reason(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0][:REASON_LENGTH_MAX] if text else type(error).__name__
