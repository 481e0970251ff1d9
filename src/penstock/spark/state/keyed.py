"""`keyed`: state by key in a streaming query, by a plain function over Arrow tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from penstock.errors import UsageError
from penstock.spark.batch import Batch, Times, current_batch
from penstock.spark.state.bucket import RESERVED, Clock, has_version, open_bucket
from penstock.spark.state.naming import named
from penstock.spark.state.opened import Opened
from penstock.spark.state.operators import Function, Operator
from penstock.spark.state.packing import BUCKET, PACKED, Packing, unpacked
from penstock.spark.state.places import operator_place
from penstock.spark.state.runs import DUE
from penstock.spark.state.savepoints import begin
from penstock.spark.state.sorted_rows import HASH

TtlClock = Literal["event", "processing"]
_opened: Final = Opened()  # one for each worker process, which Spark uses for many tasks


def keyed(
    frame: DataFrame,
    *,
    by: Sequence[str],
    function: Function,
    state: str | StructType,
    output: str | StructType,
    name: str,
    buckets: int = 4,
    order_by: Sequence[str] = (),
    ttl: timedelta | None = None,
    ttl_clock: TtlClock = "event",
    start_from: str | None = None,
) -> DataFrame:
    """Keep state by key, and make rows out of it and of what arrives.

    In every batch the function is called once for each bucket of keys that has something to do:

        def function(state: pa.Table, rows: pa.Table, times: Times) -> tuple[pa.Table, pa.Table]

    `state` has all stored rows of the keys at hand: those that `rows` names and those that have a row
    whose `_due` (a bigint column of the state, in ms of event time, may be null) is at most
    `times.now_ms`, the watermark. A key may have any number of rows. The function returns all rows that
    these keys shall have from now on (a key that is left out is forgotten) and the output. It must be
    a pure function, so that a batch that is run again leaves the same.

    Args:
        frame: a streaming DataFrame; the query must be started by write_stream.
        by: the columns that are the key.
        function: see above.
        state: columns of the state beside the key, which comes first; as a schema or DDL.
        output: columns of the output.
        name: tells the state from others of the same query, which refuses two of one name; what is
            stored belongs to it.
        buckets: into how many parts keys are divided, each the work of one task. Fixed from the start.
        order_by: by which columns the rows of a call are sorted; without it they come in any order.
        ttl: after this time a key that no batch touched is forgotten, without a call.
        ttl_clock: event (the watermark) or processing (when the batch began).
        start_from: a savepoint, from which the state begins if the checkpoint has none yet.

    Raises:
        UsageError: columns are missing or have names that are used here.
    """
    wanted = StructType.fromDDL(state) if isinstance(state, str) else state
    made = StructType.fromDDL(output) if isinstance(output, str) else output
    _check(frame, by, wanted, order_by, name, ttl_clock)
    key = [StructField(column, frame.schema[column].dataType) for column in by]
    operator = Operator(
        name,
        tuple(by),
        function,
        to_arrow_schema(StructType([*key, *wanted.fields]), timezone="UTC"),
        to_arrow_schema(made, timezone="UTC"),
    )
    hashed = frame.withColumn(HASH, sql.xxhash64(*by))
    nullable = StructType([StructField(c.name, c.dataType) for c in hashed.schema])
    rows = to_arrow_schema(nullable, timezone="UTC")
    packed = hashed.mapInArrow(Packing(rows, buckets), PACKED)
    limit = None if ttl is None else int(ttl / timedelta(milliseconds=1))
    task = _Task(operator, rows, buckets, tuple(order_by), _Expiry(limit, ttl_clock), start_from)
    kept = packed.repartitionById(buckets, BUCKET).mapInArrow(task, made)
    return named(kept, name)


def _check(
    frame: DataFrame,
    by: Sequence[str],
    state: StructType,
    order_by: Sequence[str],
    name: str,
    ttl_clock: str,
) -> None:
    operation = f"cannot keep the state {name!r}"
    missing = [column for column in (*by, *order_by) if column not in frame.columns]
    if missing or not by:
        cause = f"there is no column {missing[0]}" if missing else "there is no key"
        raise UsageError(operation, cause, f"name columns of {', '.join(frame.columns)}")
    bad = [column for column in (*frame.columns, *state.names) if column in RESERVED]
    if bad or set(by) & set(state.names):
        cause = f"the name of the column {(bad or sorted(set(by) & set(state.names)))[0]} is taken"
        raise UsageError(operation, cause, "give it another name")
    if DUE in state.names and state[DUE].dataType != LongType():
        cause = f"the column {DUE} is {state[DUE].dataType.simpleString()}"
        raise UsageError(operation, cause, f"make {DUE} a bigint, of milliseconds since 1970")
    if ttl_clock not in ("event", "processing"):
        raise UsageError(operation, f"{ttl_clock!r} is no clock", "use event or processing")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise UsageError(operation, "its name cannot be that of a folder", "use letters and digits")


@dataclass(frozen=True)
class _Expiry:
    """When keys are forgotten."""

    ttl_ms: int | None
    clock: TtlClock

    def clock_of(self, batch: Batch, times: Times) -> Clock:
        """The times of a batch, the same at every try."""
        if self.ttl_ms is None:
            return Clock(times.now_ms)
        touched = times.now_ms if self.clock == "event" else batch.started_ms()
        return Clock(times.now_ms, touched, self.ttl_ms)


class _Task:
    """Works on the buckets that a task was given."""

    def __init__(
        self,
        operator: Operator,
        rows: pa.Schema,
        buckets: int,
        order_by: tuple[str, ...],
        expiry: _Expiry,
        start_from: str | None,
    ) -> None:
        self._operator = operator
        self._rows = rows
        self._buckets = buckets
        self._order_by = order_by
        self._expiry = expiry
        self._start_from = start_from

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        order = [(column, "ascending") for column in self._order_by]
        for bucket, rows in unpacked(batches, self._rows).items():
            own = rows.sort_by(order) if order else rows
            yield from self._run(bucket, own).to_batches()

    def _run(self, bucket: int, rows: pa.Table) -> pa.Table:
        batch, operator = current_batch(), self._operator
        times = batch.times()
        root = operator_place(batch.checkpoint, operator.name)
        if batch.settled and has_version(root, bucket, self._buckets, batch.batch_id):
            return operator.output.empty_table()  # the log may have less by now than it had then
        opened = open_bucket(
            root, bucket, self._buckets, operator.state, operator.by, batch.batch_id, _opened
        )
        opened.clock = self._expiry.clock_of(batch, times)
        if opened.version.batch_id < 0 and self._start_from is not None:
            begin(opened, bucket, self._buckets, batch.batch_id, self._start_from, operator.name)
        return operator.apply(opened, batch.batch_id, rows, times)
