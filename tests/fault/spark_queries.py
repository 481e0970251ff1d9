"""A driver with queries to many sinks, to be killed; test_spark_sink runs it as a process.

Its argument is the master. When Spark is up it says so, and reads a line of JSON: where everything is,
which queries to run, the sink and the point to die at (or none) and at which call, whether to end when
all that is there has been written, and a seed. A query that fails, because somebody killed what it works
with, is started again.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.fault import spark_points
from tests.fault.spark_cases import SCHEMA, SOURCE, Places, cases, computed, sink_of
from tools.spark_cluster import DRIVER_SETTINGS

from penstock.errors import UnavailableError
from penstock.spark import RoutedSink, Sink, read_stream, session, write_stream

SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    # Code that is made for a plan pays after many more rows than there are here.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # Nothing of a checkpoint goes: what was planned is what results are compared with.
    "spark.sql.streaming.minBatchesToRetain": "100000",
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.ui.showConsoleProgress": "false",
}
ROWS_PER_BATCH = 60
PAUSE_SECONDS = 0.3


class Order(NamedTuple):
    """What a driver is told."""

    places: list[str]
    queries: list[str]
    case: str
    point: str
    """Empty: none."""
    call: int
    ends: bool
    seed: int


class Known:
    """A sink that says which one its thread is writing to."""

    def __init__(self, case: str, sink: Sink) -> None:
        self._case, self._sink = case, sink
        self.name, self.prepare = sink.name, sink.prepare

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        spark_points.working.case = self._case
        try:
            self._sink.write(batch, batch_id, query_id)
        finally:
            spark_points.working.case = None


def dying(flag: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that kills its worker, once, if it has rows and a file asks for it."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows and flag.exists():
                flag.unlink(missing_ok=True)
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return task


def start(spark: SparkSession, query: str, order: Order) -> StreamingQuery:
    places = Places(*order.places)
    options: dict[str, Any] = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": ROWS_PER_BATCH,
    }
    frame = read_stream(spark, places.bootstrap, SOURCE, SCHEMA, **options)
    frame = frame.mapInArrow(dying(places.flag(query)), SCHEMA)
    there = cases(query, places)
    random.Random(order.seed).shuffle(there)
    return write_stream(
        computed(frame, query, places, there),
        RoutedSink({case: Known(case, sink_of(case, places)) for case in there}),
        checkpoint=places.checkpoint(query),
        output_mode="update",
        trigger={"availableNow": True} if order.ends else None,
    )


def keep_running(spark: SparkSession, order: Order) -> None:
    """Start queries until all have ended well, which they do only if they are asked to."""
    running: dict[str, StreamingQuery] = {}
    left = order.queries
    while left:
        for query in list(left):
            started = running.get(query)
            if started is not None and started.isActive:
                continue
            failure = None if started is None else started.exception()
            if failure is not None:
                report(f"{query} failed: {failure}")
            elif started is not None:
                left.remove(query)
                continue
            try:
                running[query] = start(spark, query, order)
                report(f"{query} started")
            except (UnavailableError, PySparkException, Py4JJavaError) as error:
                running.pop(query, None)
                report(f"{query} cannot start: {error}")
        time.sleep(PAUSE_SECONDS)


def report(what: str) -> None:
    sys.stdout.write(" ".join(what.split()) + "\n")
    sys.stdout.flush()


def main() -> None:
    (master,) = sys.argv[1:]
    cluster = {} if master.startswith("local") else DRIVER_SETTINGS
    spark = session("killed", master=master, settings={**SETTINGS, **cluster})
    spark.sparkContext.setLogLevel("OFF")
    report("ready")
    order = Order(**json.loads(sys.stdin.readline()))
    sqlite3.connect = functools.partial(sqlite3.connect, factory=spark_points.Database)  # type: ignore[assignment]
    if order.point:
        died = Path(Places(*order.places).folder, "died")
        spark_points.arm(order.case, order.point, order.call, died)
    keep_running(spark, order)
    spark.stop()


if __name__ == "__main__":
    main()
