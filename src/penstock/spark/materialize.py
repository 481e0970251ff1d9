"""Keeps a materialized view current in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from penstock.errors import UsageError
from penstock.spark.sinks.view import ViewSink
from penstock.spark.writing import write_stream

_MODES: Final = ("update", "append")


def materialize(
    frame: DataFrame,
    name: str,
    *,
    key: Sequence[str],
    store: str,
    checkpoint: str,
    order_by: Sequence[str] = (),
    output_mode: str = "update",
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start a query that keeps a view: after each batch it is what the input up to there gives.

    With a column `_change_type` rows are the changes of a changelog; without one each replaces the row
    of its key.

    Args:
        frame: a streaming DataFrame.
        name: of the view: lower-case letters, digits and _.
        key: columns that name a row.
        store: sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE.
        checkpoint: a folder; every version of the view has one of its own in it.
        order_by: columns that say which row of a key is the last where a batch has several.
        output_mode: update or append, as in Spark.
        trigger: as for Spark's `trigger`, such as {"availableNow": True}.

    Raises:
        UsageError: the columns or names do not fit.
        ConflictError: the view holds something else, or cannot be built from its beginning.
        UnavailableError: the store cannot be used.
    """
    if output_mode not in _MODES:
        cause = f"output mode {output_mode} repeats rows that did not change"
        raise UsageError(f"cannot keep view {name}", cause, f"take {' or '.join(_MODES)}")
    sink = ViewSink(store, name, key=key, order_by=order_by)
    sink.prepare(frame)
    return write_stream(
        frame,
        sink,
        checkpoint=f"{checkpoint}/v{sink.version}",
        output_mode=output_mode,
        trigger=trigger,
    )
