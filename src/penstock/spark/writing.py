"""Starts a query whose batches go to a sink, each of them exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from penstock.spark.batch import announce, query_id
from penstock.spark.checkpoints import Plans


class Sink(Protocol):
    """Keeps a batch together with the fact that it was written."""

    @property
    def name(self) -> str:
        """What tells it from other sinks of the same query."""
        ...

    def prepare(self, frame: DataFrame) -> None:
        """Say before a query starts what would stop it."""
        ...

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Write one batch, or find that it has been written."""
        ...


def write_stream(
    frame: DataFrame,
    sink: Sink,
    *,
    checkpoint: str,
    output_mode: str = "append",
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> StreamingQuery:
    """Start a query that writes to a sink.

    Args:
        frame: a streaming DataFrame.
        sink: where its rows go, such as TopicSink.
        checkpoint: the folder in which Spark keeps how far it is; it is what makes the query the
            same one after a restart.
        output_mode: append, update or complete, as in Spark.
        trigger: as for Spark's `trigger`, such as {"availableNow": True}.
        name: what Spark calls the query.

    Raises:
        PenstockError: the sink cannot be written to.
    """
    sink.prepare(frame)
    plans = Plans(checkpoint)
    plans.restore()
    context = frame.sparkSession.sparkContext

    def write(batch: DataFrame, batch_id: int) -> None:
        plans.keep(batch_id)
        sink.write(batch, batch_id, query_id(context))

    announce(context, checkpoint)
    writer = frame.writeStream.outputMode(output_mode).option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    return writer.foreachBatch(write).start()
