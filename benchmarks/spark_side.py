"""One side of `benchmarks.spark`: a Spark session in a process of its own that runs queries on demand.

    python -m benchmarks.spark_side SIDE BOOTSTRAP TOPIC FOLDER JARS

Each line on standard input names a query, each line on standard output is its result in JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from penstock.spark import read_stream, session

PENSTOCK, CONNECTOR, PLAIN = "penstock", "connector", "plain"
SCHEMA = "user string, kind string, amount double, at timestamp, number bigint"
ROWS_PER_TRIGGER = 1_000_000
STATELESS_BATCHES, STATEFUL_BATCHES = 40, 12
WARM_BATCHES = 4
_ON_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


class Side:
    """A session, and where its input is."""

    def __init__(self, kind: str, bootstrap: str, topic: str, folder: str, jars: str) -> None:
        self._kind = kind
        self._bootstrap = bootstrap
        self._topic = topic
        self._folder = folder
        self._runs = 0
        if kind == PLAIN:
            os.environ["PYSPARK_PYTHON"] = sys.executable
            builder = SparkSession.builder.master("local[2]").config(map=_ON_LOOPBACK)
            self._spark = builder.getOrCreate()
        else:
            more = {"spark.jars": jars} if kind == CONNECTOR else {}
            self._spark = session("benchmark", master="local[2]", settings=more)
        self._spark.sparkContext.setLogLevel("OFF")

    def run(self, query: str) -> dict[str, Any]:
        """What came of one run of a query."""
        return self._floor(query) if query.startswith("floor") else self._throughput(query)

    def _throughput(self, query: str) -> dict[str, Any]:
        frame = self._typed()
        if query == "windowed":
            frame = frame.withWatermark("at", "10 seconds").groupBy(
                sql.window("at", "10 seconds"), "kind"
            )
        elif query == "users":
            frame = frame.groupBy("user")
        if query != "typed":
            frame = frame.agg(sql.count("*").alias("rows"), sql.sum("amount").alias("amount"))
        progress = self._drain(frame, "append" if query == "typed" else "update")
        worked = [one for one in progress if one["numInputRows"]]
        seconds = sum(one["durationMs"]["triggerExecution"] for one in worked) / 1000
        return {"rows": sum(one["numInputRows"] for one in worked), "seconds": seconds}

    def _typed(self) -> DataFrame:
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS_PER_TRIGGER)}
        if self._kind == PENSTOCK:
            return read_stream(self._spark, self._bootstrap, self._topic, SCHEMA, **options)
        reader = self._spark.readStream.format("kafka").options(**options)
        reader = reader.option("kafka.bootstrap.servers", self._bootstrap)
        value = sql.from_json(sql.col("value").cast("string"), SCHEMA)
        return reader.option("subscribe", self._topic).load().select(value.alias("v")).select("v.*")

    def _drain(self, frame: DataFrame, mode: str) -> list[Any]:
        """Everything there is, to nowhere; what Spark says of each batch."""
        folder = self._checkpoint()
        writer = frame.writeStream.format("noop").outputMode(mode).trigger(availableNow=True)
        query = writer.option("checkpointLocation", folder).start()
        query.awaitTermination()
        shutil.rmtree(folder)
        return list(query.recentProgress)

    def _floor(self, query: str) -> dict[str, Any]:
        """The median time of batches of ten rows."""
        stateful = query == "floor-stateful"
        wanted = WARM_BATCHES + (STATEFUL_BATCHES if stateful else STATELESS_BATCHES)
        frame = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        if stateful:
            frame = frame.groupBy((sql.col("value") % 10).alias("key")).count()
        folder = self._checkpoint()
        writer = frame.writeStream.format("noop").outputMode("update" if stateful else "append")
        started = writer.option("checkpointLocation", folder).start()
        while len(started.recentProgress) < wanted:
            time.sleep(0.05)
            if started.exception() is not None:
                raise RuntimeError(str(started.exception()))
        progress = list(started.recentProgress)[WARM_BATCHES:wanted]
        started.stop()
        shutil.rmtree(folder)
        times = [one["durationMs"]["triggerExecution"] for one in progress]
        return {"seconds": statistics.median(times) / 1000}

    def _checkpoint(self) -> str:
        self._runs += 1
        return f"{self._folder}/checkpoint-{self._runs}"


def main() -> None:
    """Run queries until there are no more."""
    side = Side(*sys.argv[1:])
    for line in sys.stdin:
        print(json.dumps(side.run(line.strip())), flush=True)


if __name__ == "__main__":
    main()
