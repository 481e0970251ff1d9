"""The program behind `tools.spark`: a Spark session that takes orders as lines of JSON.

    python tools/spark_session.py FOLDER JARS

Each line on standard input is
{"do": ..., "with": {...}}, each line on standard output {"result": ...} or {"error": ...}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

RECORD = "topic string, partition int, key binary, value binary"
HEADERS = "headers array<struct<key: string, value: binary>>"


def session(folder: str, jars: str) -> SparkSession:
    """A small local one, on loopback."""
    settings = {
        "spark.jars": jars,
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    builder = SparkSession.builder.master("local[2]").appName("penstock-tests")
    return builder.config(map=settings).getOrCreate()


def _bytes(text: str | None) -> bytearray | None:
    return None if text is None else bytearray(text.encode())


def _text(data: bytearray | None) -> str | None:
    return None if data is None else data.decode()


def write(spark: SparkSession, records: list[dict[str, Any]], options: dict[str, str]) -> None:
    """A batch of records, each with a topic, a partition, a key, a value and headers."""
    rows = [
        (
            *(record.get("topic"), record.get("partition")),
            *(_bytes(record.get("key")), _bytes(record.get("value"))),
            [(name, _bytes(value)) for name, value in record.get("headers", [])],
        )
        for record in records
    ]
    frame = spark.createDataFrame(rows, f"{RECORD}, {HEADERS}")
    # One task, so that the records arrive in their order.
    frame.coalesce(1).write.format("kafka").options(**options).save()


def read(spark: SparkSession, options: dict[str, str]) -> list[dict[str, Any]]:
    """A batch: the records as they are now, in the order of their offsets."""
    frame = spark.read.format("kafka").options(**options).load()
    rows = frame.orderBy("topic", "partition", "offset").collect()
    return [
        {
            "topic": row.topic,
            "partition": row.partition,
            "offset": row.offset,
            "timestamp": round(row.timestamp.timestamp() * 1000),
            "key": _text(row.key),
            "value": _text(row.value),
            "headers": [[h.key, _text(h.value)] for h in row["headers"] or []]
            if "headers" in frame.columns
            else [],
        }
        for row in rows
    ]


def stream(
    spark: SparkSession, source: dict[str, str], sink: dict[str, str], checkpoint: str
) -> list[int]:
    """Everything there is, from topics to a topic, in as many batches as it takes; their sizes."""
    frame = spark.readStream.format("kafka").options(**source).load()
    kept = [name for name in ("key", "value", "headers") if name in frame.columns]
    writer = frame.select(*kept).writeStream.format("kafka").options(**sink)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    return [size for size in sizes if size]


ORDERS: dict[str, Callable[..., Any]] = {"write": write, "read": read, "stream": stream}


def main() -> None:
    """Take orders until there are no more."""
    spark = session(*sys.argv[1:])
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"result": ORDERS[order["do"]](spark, **order["with"])}
        except Exception as error:  # whatever Spark raises is the answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
