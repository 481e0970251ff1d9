"""Starts a query whose batches go to a sink, each of them exactly once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from penstock.errors import UsageError
from penstock.pipelines.terms import Terms, current_terms
from penstock.spark.batch import announce, query_id, settled
from penstock.spark.checkpoints import Plans
from penstock.spark.sinks.replays import begin_batch
from penstock.spark.state.carrying import carry
from penstock.spark.state.naming import check_names
from penstock.spark.supervised import supervision


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
    checkpoint: str | None = None,
    output_mode: str = "append",
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> StreamingQuery:
    """Start a query that writes to a sink.

    Args:
        frame: a streaming DataFrame.
        sink: where its rows go, such as TopicSink.
        checkpoint: the folder in which Spark keeps how far it is; it is what makes the query the
            same one after a restart. `penstock run` has a place for it, named like the query.
        output_mode: append, update or complete, as in Spark.
        trigger: as for Spark's `trigger`, such as {"availableNow": True}. A run that has an end
            (`penstock run --until`) takes its place.
        name: what Spark calls the query; by default the name of the sink if it is supervised.

    Raises:
        PenstockError: the sink cannot be written to.
        UsageError: two operators of the query keep their state under the same name.
    """
    check_names(frame)
    sink.prepare(frame)
    spark = frame.sparkSession
    terms, supervised = current_terms(), supervision()
    label = name or sink.name
    checkpoint = checkpoint or _default_checkpoint(terms, label)
    plans = Plans(checkpoint)
    plans.restore()

    def write(batch: DataFrame, batch_id: int) -> None:
        ran_before = plans.keep(batch_id)
        begin_batch(ran_before=ran_before)
        if supervised is not None:
            supervised.begin(label, batch_id)
        sink.write(batch, batch_id, query_id(spark.sparkContext))
        if ran_before:
            # A sink that has the batch does not look at it, and then Spark takes its state for lost.
            with settled(spark.sparkContext):
                batch.write.format("noop").mode("append").save()
        carry(checkpoint, batch_id)

    announce(spark.sparkContext, checkpoint)
    writer = frame.writeStream.outputMode(output_mode).option("checkpointLocation", checkpoint)
    if supervised is not None:
        supervised.attach(spark)
        supervised.starting(label, checkpoint)
        writer = writer.queryName(label)
    elif name is not None:
        writer = writer.queryName(name)
    if terms.bounded:
        writer = writer.trigger(availableNow=True)
    elif trigger is not None:
        writer = writer.trigger(**trigger)
    query = writer.foreachBatch(write).start()
    if supervised is not None:
        supervised.add(query)
    return query


def _default_checkpoint(terms: Terms, label: str) -> str:
    if terms.checkpoints is None:
        cause = "it is not said where its checkpoint is"
        remedy = "pass checkpoint=, or start the file with `penstock run`"
        raise UsageError(f"cannot start the query {label}", cause, remedy)
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", label)
    if plain != label.replace(":", "-"):
        plain += "-" + hashlib.sha256(label.encode()).hexdigest()[:8]  # others may look the same
    return f"{terms.checkpoints}/{plain}"
