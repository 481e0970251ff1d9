"""Writes the batches of a query to a materialized view, each of them exactly once.

The driver writes the rows of a batch, its number and the input that the view reflects with it in one
transaction of the view's database. See penstock.views.store for what a version is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from penstock.clock import Clock, SystemClock
from penstock.errors import UsageError
from penstock.spark.batch import announced, is_timed, position_at, watermark_at
from penstock.spark.sinks.replays import was_written
from penstock.spark.view_inputs import Beginning, inputs_of
from penstock.views.changes import CHANGELOG_COLUMNS, Changes
from penstock.views.kinds import Kind
from penstock.views.store import open_store
from penstock.views.version import Column, Commit, Shape, State, Version

_NESTED: Final = (StructType, ArrayType, MapType, VariantType)
_KINDS: Final[tuple[tuple[tuple[type[DataType], ...], Kind], ...]] = (
    ((BooleanType,), Kind.BOOLEAN),
    ((IntegralType,), Kind.INTEGER),
    ((FloatType, DoubleType), Kind.REAL),
    ((StringType,), Kind.TEXT),  # and its subclasses of fixed and limited length
    ((TimestampType, TimestampNTZType), Kind.TIMESTAMP),
    ((DateType,), Kind.DATE),
    ((DecimalType,), Kind.DECIMAL),
    ((BinaryType,), Kind.BINARY),
    (_NESTED, Kind.JSON),
)


class ViewSink:
    """See the module; `penstock.spark.materialize` is the short way to use it.

    Args:
        store: sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE.
        view: its name.
        key: columns that name a row: one that comes again replaces the one that is there.
        order_by: columns that say which row of a key is the last where a batch has several.
        clock: what the time of a batch is taken from.
    """

    def __init__(
        self,
        store: str,
        view: str,
        *,
        key: Sequence[str],
        order_by: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self._store = open_store(store)
        self._view = view
        self._key = tuple(key)
        self._order_by = tuple(order_by)
        self._clock = clock or SystemClock()
        self._operation = f"cannot keep view {view}"
        self._version: Version | None = None
        self._beginning: Beginning | None = None

    @property
    def name(self) -> str:
        """What tells it from other sinks of the same query."""
        return f"view:{self._view}"

    @property
    def version(self) -> int:
        """The version that is written to; known once it was prepared."""
        assert self._version is not None, "prepare comes first"
        return self._version.number

    def prepare(self, frame: DataFrame) -> None:
        """Say before a query starts what would stop it, and settle which version it writes to.

        Raises:
            UsageError: the columns do not fit.
            ConflictError: the view holds something else, or cannot be built from its beginning.
        """
        shape = self._shape(frame)
        known = [one for one in self._store.versions() if one.view == self._view]
        known = [one for one in known if one.state is not State.RETIRED]
        if not known or known[-1].last is None:
            current = next((one for one in known if one.state is State.CURRENT), None)
            self._beginning = Beginning(self._operation, inputs_of(frame))
            wanted = None if current is None else current.begins
            self._beginning.check(replaces=current is not None, wanted=wanted)
        begins = None if self._beginning is None else self._beginning.position
        self._version = self._store.begin(self._view, shape, begins)

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Write one batch, or find that it has been written."""
        version = self._version
        assert version is not None, "prepare comes first"
        assert version.shape is not None
        written = self._store.has_written(version, query_id, batch_id)
        if was_written(batch_id if written else None, batch_id, self._operation):
            return
        shape = version.shape
        changes = Changes(self._operation, batch.columns, shape.names, shape.key, self._order_by)
        changes.add(_rows(batch))
        if batch_id == 0 and self._beginning is not None:
            self._beginning.check_again()
        checkpoint = announced(batch.sparkSession.sparkContext)
        commit = Commit(
            query_id,
            batch_id,
            position_at(checkpoint, batch_id),
            watermark_at(checkpoint, batch_id),
            self._clock.wall_ms(),
            is_timed(checkpoint, batch_id),
        )
        self._store.write(version, commit, changes.upserts(), changes.deletes())

    def _shape(self, frame: DataFrame) -> Shape:
        if not self._key:
            raise UsageError(self._operation, "it has no key", "name the columns of key=[...]")
        for name in (*self._key, *self._order_by):
            if name not in frame.columns:
                remedy = f"there are {', '.join(frame.columns)}"
                raise UsageError(self._operation, f"there is no column {name}", remedy)
        columns = tuple(
            Column(one.name, self._kind(one.name, one.dataType))
            for one in frame.schema
            if one.name not in CHANGELOG_COLUMNS
        )
        shape = Shape(columns, self._key)
        nested = [name for name in self._key if shape.kind(name) is Kind.JSON]
        if nested:
            cause = f"{nested[0]}, of the key, is a nested value"
            raise UsageError(self._operation, cause, "take single fields of it")
        return shape

    def _kind(self, name: str, given: DataType) -> Kind:
        for kinds, kind in _KINDS:
            if isinstance(given, kinds):
                return kind
        cause = f"column {name} is of type {given.simpleString()}"
        raise UsageError(self._operation, cause, "cast it to another")


def _rows(batch: DataFrame) -> Iterator[tuple[Any, ...]]:
    nested = [one.name for one in batch.schema if isinstance(one.dataType, _NESTED)]
    for name in nested:
        batch = batch.withColumn(name, sql.to_json(name))
    for part in batch.toArrow().to_batches():
        columns: Iterable[list[Any]] = (column.to_pylist() for column in part.columns)
        yield from zip(*columns, strict=True)
