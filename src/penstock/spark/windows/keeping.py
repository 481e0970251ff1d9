"""The second half of windows, where the state of a key is: a pure function of tables and the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.sinks.routing import OUTPUT
from penstock.spark.windows import fixed_windows, session_windows, sliding_windows
from penstock.spark.windows.changes import changes
from penstock.spark.windows.columns import DUE, END, LATE, ROW, START, WATERMARK
from penstock.spark.windows.folding import Folded
from penstock.spark.windows.kinds import Fixed, Sessions, Sliding
from penstock.spark.windows.panes import to_arrow
from penstock.spark.windows.plan import MOMENT, NEVER_US, Plan
from penstock.spark.windows.session_windows import AT

RESULTS: Final = "results"
LATE_ROWS: Final = "late"
_FOLDS: Final[dict[type, Callable[[Plan, pl.DataFrame, pl.DataFrame, int], Folded]]] = {
    Fixed: fixed_windows.fold,
    Sliding: sliding_windows.fold,
    Sessions: session_windows.fold,
}


def keep(plan: Plan, state: pa.Table, panes: pa.Table, mark_us: int) -> tuple[pa.Table, pa.Table]:
    """Fold panes into the windows of their keys.

    Args:
        plan: the query.
        state: the windows of the keys that panes are for, and those that are due.
        panes: from `panes`, in any order.
        mark_us: the watermark.

    Returns:
        The new windows of these keys, and the outputs.
    """
    known_late = panes.column(LATE)
    pending = panes.filter(pc.invert(known_late))
    folded = _FOLDS[type(plan.window)](
        plan, _frame(state.drop_columns([DUE])), _live(plan, pending), mark_us
    )
    stated = to_arrow(folded.kept.with_columns(plan.due_ms().alias(DUE)), plan.state_schema)
    told = changes(folded.before, folded.after, plan.ids)
    late = pa.concat_tables([panes.filter(known_late), pending.take(folded.late.to_arrow())])
    return stated, pa.concat_tables(
        [
            _output(plan, RESULTS, _results(plan, told, mark_us)),
            _output(plan, LATE_ROWS, _late(plan, late, mark_us)),
        ]
    )


def output_schema(plan: Plan) -> pa.Schema:
    """The outputs as one table (routing.py)."""
    structs = [(name, pa.struct(list(_schema(plan, name)))) for name in (RESULTS, LATE_ROWS)]
    return pa.schema([(OUTPUT, pa.string()), *structs])


def _schema(plan: Plan, output: str) -> pa.Schema:
    return plan.result_schema if output == RESULTS else plan.late_schema


def _frame(table: pa.Table) -> pl.DataFrame:
    """Times as whole microseconds."""
    frame = pl.DataFrame(pl.from_arrow(table))
    return frame.with_columns(pl.col(START, END).dt.cast_time_unit("us").cast(pl.Int64))


def _live(plan: Plan, pending: pa.Table) -> pl.DataFrame:
    frame = _frame(pending.drop_columns([ROW]))
    if not isinstance(plan.window, Sessions):
        return frame
    rows = pending.column(ROW)
    values = {name: pc.struct_field(rows, name) for name in plan.columns if name not in plan.by}
    more = pl.DataFrame(pl.from_arrow(pa.table(values)))
    return frame.select(*plan.by, START).hstack(more).with_row_index(AT)


def _mark(mark_us: int, rows: int) -> pa.Array:
    return pa.array([None if mark_us == NEVER_US else mark_us] * rows, pa.int64()).cast(MOMENT)


def _results(plan: Plan, told: pl.DataFrame, mark_us: int) -> pa.Table:
    found = to_arrow(told, plan.result_schema)
    at = found.schema.get_field_index(WATERMARK)
    return found.set_column(at, plan.result_schema.field(at), _mark(mark_us, len(found)))


def _late(plan: Plan, panes: pa.Table, mark_us: int) -> pa.Table:
    rows = panes.column(ROW).combine_chunks()
    row = [pc.struct_field(rows, at) for at in range(len(plan.rows))]
    mark = _mark(mark_us, len(panes))
    time = row[plan.rows.get_field_index(plan.time)].cast(MOMENT)
    # In milliseconds, upwards: what is late is late by something.
    behind = pc.subtract(mark, time).cast(pa.int64())
    late_by = pc.divide(pc.add(behind, 999), 1000)
    more = [panes.column(START), panes.column(END), late_by, mark]
    found = pa.Table.from_arrays([*row, *more], names=plan.late_schema.names)
    return found.cast(plan.late_schema)


def _output(plan: Plan, name: str, table: pa.Table) -> pa.Table:
    fields = [column.combine_chunks() for column in table.columns]
    columns = {
        OUTPUT: pa.array([name] * len(table), pa.string()),
        name: pa.StructArray.from_arrays(fields, fields=list(_schema(plan, name))),
    }
    schema = output_schema(plan)
    return pa.Table.from_arrays(
        [columns.get(field.name, pa.nulls(len(table), field.type)) for field in schema],
        schema=schema,
    )
