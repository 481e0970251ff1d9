"""Late rows as an output of their own, and the times of devices whose clocks are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from penstock.errors import UsageError
from penstock.spark.batch import current_batch, watermark_at
from penstock.spark.sinks.routing import OUTPUT

ON_TIME: Final = "on_time"
LATE: Final = "late"
LATE_BY: Final = "late_by"
WATERMARK: Final = "watermark"
_SPLIT: Final = "cannot split late rows off"
_MOMENT: Final = pa.timestamp("us", tz="UTC")


def adjusted_time(*, event: Column | str, sent: Column | str, received: Column | str) -> Column:
    """When something happened by the clock of who received it.

    A device whose clock is wrong is wrong by the same amount in the times of an event and of its
    sending: what lies between sending and receiving is taken for the error of its clock.

    Args:
        event: when it happened, by the clock of the device.
        sent: when the device sent it, by the same clock.
        received: when it arrived, by a clock to be trusted, such as `_timestamp` of a topic with
            `message.timestamp.type=LogAppendTime`.
    """
    return _column(event) + (_column(received) - _column(sent))


def split_late(frame: DataFrame, *, time: str) -> DataFrame:
    """Outputs `on_time` (the rows) and `late` (the rows with late_by and watermark), for RoutedSink.

    A row is late if its time is before the watermark of its batch. One without a time never is.
    `late_by` is in milliseconds.

    Args:
        frame: of a stream that was read with eventTimeColumn, to be started by write_stream.
        time: the column with the time.

    Raises:
        UsageError: it is no timestamp, or a column has a name that is needed here.
    """
    _check(frame, time)
    rows = frame.schema
    late = [StructField(LATE_BY, LongType()), StructField(WATERMARK, TimestampType())]
    made = [
        StructField(OUTPUT, StringType()),
        StructField(ON_TIME, rows),
        StructField(LATE, StructType([*rows, *late])),
    ]

    def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batch = current_batch()
        watermark_ms = watermark_at(batch.checkpoint, batch.batch_id)
        for one in batches:
            yield split_rows(one, time, watermark_ms)

    return frame.mapInArrow(split, StructType(made))


def split_rows(rows: pa.RecordBatch, time: str, watermark_ms: int | None) -> pa.RecordBatch:
    """The outputs of some rows at a watermark."""
    times = rows.column(time).cast(_MOMENT)
    mark = pa.scalar(None if watermark_ms is None else watermark_ms * 1000, pa.int64()).cast(
        _MOMENT
    )
    is_late = pc.fill_null(pc.less(times, mark), False)
    # Milliseconds, rounded up: not every sink knows intervals, and what is late is not late by nothing.
    late_us = pc.subtract(mark.cast(pa.int64()), times.cast(pa.int64()))
    late_by = pc.divide(pc.add(late_us, 999), 1000)
    columns = [*rows.columns, late_by, pa.repeat(mark, rows.num_rows)]
    names = [*rows.schema.names, LATE_BY, WATERMARK]
    outputs = [
        pc.if_else(is_late, LATE, ON_TIME),
        pa.StructArray.from_arrays(rows.columns, rows.schema.names, mask=is_late),
        pa.StructArray.from_arrays(columns, names, mask=pc.invert(is_late)),
    ]
    return pa.RecordBatch.from_arrays(outputs, names=[OUTPUT, ON_TIME, LATE])


def _check(frame: DataFrame, time: str) -> None:
    if time not in frame.columns:
        cause = f"there is no column {time} among {', '.join(frame.columns)}"
        raise UsageError(_SPLIT, cause, "name the column with the time")
    if frame.schema[time].dataType != TimestampType():
        cause = f"{time} is {frame.schema[time].dataType.simpleString()}"
        raise UsageError(_SPLIT, cause, "make it a timestamp")
    taken = {LATE_BY, WATERMARK} & set(frame.columns)
    if taken:
        cause = f"late rows get a column {min(taken)}, and there is one"
        raise UsageError(_SPLIT, cause, "rename it")


def _column(named: Column | str) -> Column:
    return sql.col(named) if isinstance(named, str) else named
