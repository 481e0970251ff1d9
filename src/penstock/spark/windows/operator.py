"""`windows(frame, ...)`: the two halves of windows as a query of Spark's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.spark.batch import Times, current_batch
from penstock.spark.state import keyed
from penstock.spark.windows.aggregates import Aggregate
from penstock.spark.windows.keeping import keep, output_schema
from penstock.spark.windows.kinds import Fixed, Window, duration_us
from penstock.spark.windows.panes import panes
from penstock.spark.windows.plan import EARLY, FINAL, NEVER_US, Plan, check

Batches = Iterator[pa.RecordBatch]


def windows(
    frame: DataFrame,
    *,
    time: str,
    window: Window,
    aggregates: Mapping[str, Aggregate],
    by: Sequence[str] = (),
    emit: str = FINAL,
    corrections: str = "0 seconds",
    name: str = "windows",
) -> DataFrame:
    """Aggregates of windows, as the outputs `results` and `late` of one DataFrame.

    Write a stream with `write_stream` and a `RoutedSink`. Over a DataFrame that is not a stream it gives
    the results of all rows that have a time.

    Args:
        frame: rows, of a source that was given an eventTimeColumn if `time` is one.
        time: the column of the event time; `_timestamp` for the time at which records were written.
        window: tumbling, hopping, sliding or sessions.
        aggregates: for each column of the results what it is, such as {"orders": count()}.
        by: columns whose values have windows of their own.
        emit: `final` gives a window when the watermark has passed its end, `early` at every change.
        corrections: for how long after that a window still takes rows, and is given again with them.
        name: what the state is called; it must be different for each operator of a query, and stay.

    Raises:
        UsageError: it makes no sense.
    """
    rows = to_arrow_schema(frame.schema, timezone="UTC")
    check(rows, time, by, window, aggregates, emit)
    kept_us = duration_us("corrections", corrections, least=0)
    plan = Plan(rows, time, tuple(by), window, dict(aggregates), emit, kept_us)
    if not frame.isStreaming:
        return _at_once(frame, plan)
    given = frame.mapInArrow(_each(plan, _mark_now), _spark(plan.pane_schema))

    def fold(state: pa.Table, rows: pa.Table, times: Times) -> tuple[pa.Table, pa.Table]:
        return keep(plan, state, rows.cast(plan.pane_schema), _mark(times))

    return keyed(
        given,
        by=_key(plan),
        function=fold,
        state=StructType([one for one in _spark(plan.state_schema) if one.name not in _key(plan)]),
        output=_spark(output_schema(plan)),
        name=name,
    )


def _at_once(frame: DataFrame, plan: Plan) -> DataFrame:
    """A batch: all rows are there, so that all windows are complete."""
    plan = replace(plan, emit=EARLY)

    def keep_all(batches: Batches) -> Batches:
        given = pa.Table.from_batches([*batches], plan.pane_schema)
        _, out = keep(plan, plan.state_schema.empty_table(), given, NEVER_US)
        yield from out.to_batches()

    given = frame.mapInArrow(_each(plan, lambda: NEVER_US), _spark(plan.pane_schema))
    return given.repartition(*_key(plan)).mapInArrow(keep_all, _spark(output_schema(plan)))


def _key(plan: Plan) -> list[str]:
    """What is kept together: windows that cannot touch each other live apart."""
    return plan.ids if isinstance(plan.window, Fixed) else list(plan.by)


def _each(plan: Plan, mark: Callable[[], int]) -> Callable[[Batches], Batches]:
    def cut(batches: Batches) -> Batches:
        mark_us = mark()
        for batch in batches:
            table = pa.Table.from_batches([batch]).cast(plan.rows)
            yield from panes(plan, table, mark_us).to_batches()

    return cut


def _mark_now() -> int:
    return _mark(current_batch().times())


def _mark(times: Times) -> int:
    return NEVER_US if times.now_ms is None else times.now_ms * 1000


def _spark(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)
