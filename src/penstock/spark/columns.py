"""Makes the columns that Spark gets out of batches of records.

Without a schema these are the columns of Spark's own Kafka source. With one, the fields of the values
are, beside what it names of the record itself: `_key`, `_value`, `_topic`, `_partition`, `_offset`,
`_timestamp`, `_error`. A value that does not fit the schema is a row with nothing but these, if there
is an `_error` to say so; it is also reported to whoever reads, or an error. It is never dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.client.batches import OpenBatch
from penstock.client.cluster import Place
from penstock.errors import PenstockError, UsageError
from penstock.record.batch import APPEND_TIME_FLAG
from penstock.record.columns import ByteColumn, Columns
from penstock.record.decode import records_of
from penstock.spark.options import READ, Fate, SourceOptions, ValueFormat
from penstock.spark.values.coded import CodedValues
from penstock.spark.values.decoded import Decoded, Malformed
from penstock.spark.values.json import JsonValues

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_RAW: Final = (
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
)
_HEADERS_FIELD: Final = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)
# What a schema may say of the record itself, and as which types.
_ABOUT: Final[dict[str, tuple[DataType, ...]]] = {
    "_key": (BinaryType(), StringType()),
    "_value": (BinaryType(), StringType()),
    "_topic": (StringType(),),
    "_partition": (IntegerType(), LongType()),
    "_offset": (LongType(),),
    "_timestamp": (TimestampType(),),
    "_error": (StringType(),),
}
ERROR: Final = "_error"
_VALUE: Final = "_value"


class MalformedRecordError(PenstockError):
    """A value that does not fit the schema, and nowhere to put it."""


class BadRecord(NamedTuple):
    """A record whose value does not fit the schema."""

    offset: int
    reason: str


class Made(NamedTuple):
    """Rows, and what is wrong with some of their records."""

    rows: pa.RecordBatch
    malformed: list[BadRecord]


def own_schema(options: SourceOptions) -> StructType:
    """The columns where the user gives none.

    Raises:
        UsageError: nothing says what they are.
    """
    coded = CodedValues.of(options)
    return raw_schema(headers=options.headers) if coded is None else coded.columns()


def raw_schema(*, headers: bool) -> StructType:
    """The columns of Spark's own Kafka source."""
    fields = [StructField(name, kind) for name, kind in _RAW]
    return StructType([*fields, _HEADERS_FIELD] if headers else fields)


@dataclass
class RowPlan:
    """How rows are made; sent to the tasks."""

    schema: StructType
    raw: bool
    headers: bool
    malformed: Fate
    coded: CodedValues | None
    """None: values are JSON, or taken as they are."""

    @classmethod
    def of(cls, options: SourceOptions, schema: StructType) -> RowPlan:
        """What options and a schema ask for.

        Raises:
            UsageError: they do not go together.
        """
        plain = raw_schema(headers=options.headers)
        raw = options.value_format is ValueFormat.RAW or (
            options.value_format is None and schema == plain
        )
        if raw and schema != plain:
            cause = "valueFormat is raw, but there is a schema"
            raise UsageError(READ, cause, "set valueFormat to json, or leave the schema out")
        coded = CodedValues.of(options)
        if not raw:
            _check_about(schema)
        if not raw and coded is None:
            JsonValues(_value_fields(schema))  # says now what it cannot do
        return cls(
            schema=schema,
            raw=raw,
            headers=options.headers,
            malformed=_fate(options, schema, raw),
            coded=coded,
        )

    def record_batch(
        self, place: Place, batches: Sequence[OpenBatch], start: int, end: int
    ) -> Made:
        """The rows of some batches, of the offsets from start up to, but not including, end.

        Raises:
            MalformedRecordError: a value does not fit the schema, and the user wants to stop then.
        """
        rows = sum(batch.header.record_count for batch in batches)
        size = sum(len(batch.records) for batch in batches)
        columns = Columns(rows, size, lines=not self.raw and self.coded is None)
        kinds: list[tuple[int, int]] = []
        for header, records in batches:
            before = columns.rows
            columns.add(header, records, start, end)
            kinds.append((columns.rows - before, int(bool(header.attributes & APPEND_TIME_FLAG))))
        if self.raw:
            return Made(self._raw(place, columns, kinds, batches, (start, end)), [])
        exact = columns
        if self.coded is None and _VALUE in self.schema.fieldNames():
            # In lines of text there are no breaks any more, and a null is an empty object.
            exact = Columns(rows, size, lines=False)
            for header, records in batches:
                exact.add(header, records, start, end)
        return self._typed(place, columns, exact)

    def _raw(
        self,
        place: Place,
        columns: Columns,
        kinds: list[tuple[int, int]],
        batches: Sequence[OpenBatch],
        within: tuple[int, int],
    ) -> pa.RecordBatch:
        about = _About(place, columns, columns)
        found = [about.make(f"_{name}", pa_type(kind)) for name, kind in _RAW[:-1]]
        repeated = [kind for count, kind in kinds for _ in range(count)]
        found.append(pa.array(repeated, pa.int32()))
        if self.headers:
            found.append(_headers(batches, *within))
        return pa.RecordBatch.from_arrays(found, names=self.schema.fieldNames())

    def _decoded(self, columns: Columns) -> Decoded:
        fields, values = _value_fields(self.schema), columns.values
        if self.coded is not None:
            return self.coded.decoder(fields)(_bytes(values, columns.rows).to_pylist())
        return JsonValues(fields).decode(
            memoryview(values.data)[: values.used], memoryview(values.ends).cast("i"), columns.rows
        )

    def _typed(self, place: Place, columns: Columns, exact: Columns) -> Made:
        decoded = self._decoded(columns)
        about = _About(place, columns, exact, decoded.malformed)
        bad = [BadRecord(about.offset_of(one.row), one.reason) for one in decoded.malformed]
        if bad and self.malformed is Fate.FAIL:
            raise _nowhere(place, bad[0])
        found = [
            about.make(field.name, pa_type(field.dataType))
            if field.name in _ABOUT
            else decoded.columns[field.name]
            for field in self.schema
        ]
        rows = pa.RecordBatch.from_arrays(found, names=self.schema.fieldNames())
        if bad and ERROR not in self.schema.fieldNames():
            wrong = {one.row for one in decoded.malformed}
            rows = rows.take(pa.array([row for row in range(columns.rows) if row not in wrong]))
        return Made(rows, bad)


class _About:
    """The columns that say something of the record itself, each made when it is asked for."""

    def __init__(
        self,
        place: Place,
        columns: Columns,
        exact: Columns,
        malformed: Sequence[Malformed] = (),
    ) -> None:
        self._place = place
        self._columns = columns
        self._malformed = malformed
        self._makers: dict[str, Callable[[], Any]] = {
            "_key": lambda: _bytes(columns.keys, columns.rows),
            _VALUE: lambda: _bytes(exact.values, exact.rows),
            "_topic": lambda: pa.repeat(place.topic, columns.rows),
            "_partition": lambda: pa.repeat(place.partition, columns.rows),
            "_offset": lambda: _int64(columns.offsets, columns.rows),
            "_timestamp": lambda: _int64(columns.timestamps, columns.rows).view(
                pa.timestamp("ms", tz="UTC")
            ),
            ERROR: self._errors,
        }

    def make(self, name: str, kind: pa.DataType) -> pa.Array:
        """A column of a type that _ABOUT allows."""
        made = self._makers[name]()
        if made.type == kind:
            return made
        return _text(made) if pa.types.is_binary(made.type) else made.cast(kind, safe=False)

    def offset_of(self, row: int) -> int:
        """The offset of a row."""
        return memoryview(self._columns.offsets).cast("q")[row]

    def _errors(self) -> pa.Array:
        said: list[str | None] = [None] * self._columns.rows
        for one in self._malformed:
            said[one.row] = one.reason
        return pa.array(said, pa.string())


def pa_type(kind: DataType) -> pa.DataType:
    """Arrow's type for one of Spark's."""
    return to_arrow_type(kind, timezone="UTC")


def _value_fields(schema: StructType) -> list[StructField]:
    return [field for field in schema if field.name not in _ABOUT]


def _check_about(schema: StructType) -> None:
    for field in schema:
        allowed = _ABOUT.get(field.name)
        if allowed is not None and field.dataType not in allowed:
            wanted = " or ".join(kind.simpleString() for kind in allowed)
            cause = f"{field.name} is declared as {field.dataType.simpleString()}"
            raise UsageError(READ, cause, f"it says something of the record: declare it {wanted}")


def _int64(buffer: bytearray, rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(buffer)])


def _bytes(column: ByteColumn, rows: int) -> pa.Array:
    buffers = [column.valid, column.ends, memoryview(column.data)[: column.used]]
    return pa.Array.from_buffers(pa.binary(), rows, [pa.py_buffer(one) for one in buffers])


def _text(column: pa.Array) -> pa.Array:
    """Bytes as text; what is no UTF-8 is replaced by a sign that says so."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        found = [
            None if one is None else one.decode(errors="replace") for one in column.to_pylist()
        ]
        return pa.array(found, pa.string())


def _headers(batches: Sequence[OpenBatch], start: int, end: int) -> pa.Array:
    found = [
        [{"key": key, "value": value} for key, value in record.headers]
        for batch in batches
        for record in records_of(batch.header, batch.records)
        if start <= record.offset < end
    ]
    return pa.array(found, _HEADERS)


def _fate(options: SourceOptions, schema: StructType, raw: bool) -> Fate:
    named = ERROR in schema.fieldNames()
    chosen = options.malformed
    if chosen is None:
        return Fate.COLUMN if named else Fate.FAIL
    if raw:
        cause = f"malformed is {chosen.value}, but every value is taken as it is"
        raise UsageError(READ, cause, "give a schema, or leave malformed out")
    if chosen is Fate.COLUMN and not named:
        cause = f"malformed is column, but the schema has no {ERROR}"
        raise UsageError(READ, cause, f"add the column {ERROR} STRING to the schema")
    return chosen


def _nowhere(place: Place, malformed: BadRecord) -> MalformedRecordError:
    return MalformedRecordError(
        f"cannot read {place}",
        f"the value at offset {malformed.offset} does not fit the schema: {malformed.reason}",
        f"to get such records as rows, add the column {ERROR} STRING to the schema; "
        "to get them as records, set malformed to topic:NAME",
    )
