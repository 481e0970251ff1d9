"""The first half of windows, on the rows as they come: which windows have a row, and who is late.

It knows no state. Rows of tumbling, hopping and sliding windows are added up before they are sent to the
keeper of their key; late ones, and those of sessions, go as they are.
"""

from __future__ import annotations

from typing import Final

import polars as pl
import pyarrow as pa

from penstock.spark.windows import fixed_windows
from penstock.spark.windows.columns import END, LATE, ROW, START
from penstock.spark.windows.kinds import Fixed, Sessions, Sliding
from penstock.spark.windows.parts import make
from penstock.spark.windows.plan import Plan

_AT: Final = "_at"
_TIME: Final = "_time"


def panes(plan: Plan, table: pa.Table, mark_us: int) -> pa.Table:
    """Rows as panes.

    Args:
        plan: the query.
        table: the rows.
        mark_us: the watermark.
    """
    rows = _timed(plan, table)
    limit = mark_us - plan.corrections_us
    bounded = _bounded(plan, rows)
    late = bounded[_TIME].is_null() | (bounded.select(plan.closes_us()).to_series() <= limit)
    if isinstance(plan.window, Sessions):
        # Who is late depends on the sessions that are there; only the keeper knows.
        return _as_they_are(plan, table, bounded, late=bounded[_TIME].is_null())
    alone = _as_they_are(plan, table, bounded.filter(late), late=late.filter(late))
    return pa.concat_tables([_added_up(plan, rows.filter(~late), limit), alone])


def _timed(plan: Plan, table: pa.Table) -> pl.DataFrame:
    rows = pl.DataFrame(pl.from_arrow(table.select(plan.columns))).with_row_index(_AT)
    return rows.with_columns(pl.col(plan.time).dt.cast_time_unit("us").cast(pl.Int64).alias(_TIME))


def _bounded(plan: Plan, rows: pl.DataFrame) -> pl.DataFrame:
    """With the last of the windows of each row."""
    time = pl.col(_TIME)
    match plan.window:
        case Fixed(size_us) as window:
            start = fixed_windows.newest_start(window, time)
            return rows.with_columns(start.alias(START), (start + size_us).alias(END))
        case Sliding(size_us):
            return rows.with_columns((time - size_us).alias(START), time.alias(END))
        case Sessions(gap_us):
            return rows.with_columns(time.alias(START), (time + gap_us).alias(END))


def _added_up(plan: Plan, rows: pl.DataFrame, limit: int) -> pa.Table:
    if isinstance(plan.window, Fixed):
        spread = fixed_windows.with_windows(plan.window, rows, _TIME)
        spread = spread.filter(plan.closes_us() > limit)
    else:
        spread = _bounded(plan, rows)
    made = make(spread, [*plan.ids, END], plan.parts)
    return to_arrow(made.with_columns(pl.lit(value=False).alias(LATE)), plan.pane_schema)


def _as_they_are(plan: Plan, table: pa.Table, rows: pl.DataFrame, late: pl.Series) -> pa.Table:
    known = to_arrow(rows.with_columns(late.alias(LATE)), plan.pane_schema)
    whole = table.take(rows[_AT].to_arrow()).cast(plan.rows).combine_chunks()
    fields = [column.combine_chunks() for column in whole.columns]
    structs = pa.StructArray.from_arrays(fields, fields=list(plan.rows))
    return known.set_column(known.schema.get_field_index(ROW), plan.pane_schema.field(ROW), structs)


def to_arrow(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """A frame in the shape that Spark was told of; columns it does not have are null."""
    found = frame.select(name for name in schema.names if name in frame.columns).to_arrow()
    columns = [
        found.column(field.name).cast(field.type)
        if field.name in found.column_names
        else pa.nulls(len(frame), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
