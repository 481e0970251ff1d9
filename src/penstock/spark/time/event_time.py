"""The column that says when an event happened, and what tasks find in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType, TimestampType

from penstock.client.cluster import Place
from penstock.errors import UsageError
from penstock.spark.columns import RowPlan
from penstock.spark.options import READ, SourceOptions
from penstock.spark.time.reports import Report, ReportTo

_OF_THE_RECORD: Final = "_timestamp"


@dataclass(frozen=True, slots=True)
class EventColumn:
    """Where the time of a row is."""

    name: str
    hidden: bool
    """Read for its time only: the user's schema does not have it."""

    def newest_ms(self, rows: pa.RecordBatch) -> int | None:
        """The largest time, in whole milliseconds that it has reached; None: no row has one."""
        found: Any = pc.max(rows.column(self.name)).cast(pa.timestamp("us", tz="UTC")).value
        return None if found is None else int(found) // 1000

    def shown(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as the user wants them."""
        return rows.drop_columns([self.name]) if self.hidden else rows


def plan_rows(options: SourceOptions, schema: StructType) -> tuple[RowPlan, EventColumn | None]:
    """How rows are made, and where their time is; None: the user does not ask for time.

    Raises:
        UsageError: options and schema do not go together.
    """
    rows = RowPlan.of(options, schema)
    if options.event_time is None:
        return rows, None
    name = options.event_time.column
    if name == _OF_THE_RECORD and rows.raw:
        return rows, EventColumn("timestamp", hidden=False)
    if name == _OF_THE_RECORD and name not in schema.fieldNames():
        wider = StructType([*schema, StructField(name, TimestampType())])
        return RowPlan.of(options, wider), EventColumn(name, hidden=True)
    if name not in schema.fieldNames():
        cause = f"eventTimeColumn is '{name}', and the schema has no such column"
        remedy = f"name one of {', '.join(schema.fieldNames())}, or {_OF_THE_RECORD}"
        raise UsageError(READ, cause, remedy)
    kind = schema[name].dataType
    if kind != TimestampType():
        cause = f"eventTimeColumn is '{name}', which is declared as {kind.simpleString()}"
        raise UsageError(READ, cause, "declare it timestamp")
    return rows, EventColumn(name, hidden=False)


def newest_of(column: EventColumn, batches: Iterator[pa.RecordBatch]) -> int | None:
    """The largest time of all rows."""
    found = [column.newest_ms(rows) for rows in batches]
    return max((time_ms for time_ms in found if time_ms is not None), default=None)


def reported(
    column: EventColumn,
    to: ReportTo | None,
    within: tuple[Place, int, int],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Pass rows on, and report their largest time at the end of the range, if anybody listens."""
    newest: int | None = None
    for rows in batches:
        found = column.newest_ms(rows)
        if found is not None:
            newest = found if newest is None else max(newest, found)
        yield column.shown(rows)
    if to is not None:
        to.send(Report(*within, newest))
