"""The queries that are killed, over the same topic: one copies rows, the other counts and sums them.

Each sends what it computes to several sinks, of which some have a batch and others have not when it is
killed. A query for each sink would take a Python of its own for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from penstock.spark import (
    DeltaSink,
    ParquetSink,
    PostgresSink,
    Sink,
    SqliteSink,
    TopicSink,
    ViewSink,
    WebhookSink,
)
from penstock.spark.sinks.routing import OUTPUT

SOURCE, TARGET, TABLE = "source", "target", "copy"
PARTITIONS = 2
SCHEMA = "user string, n bigint"
ROWS_PER_PAGE = 20


class Places(NamedTuple):
    """Where everything is."""

    bootstrap: str
    folder: str
    postgres: str
    """Empty: there is none."""
    webhook: str

    def checkpoint(self, query: str) -> str:
        return f"{self.folder}/checkpoints/{query}"

    def flag(self, query: str) -> Path:
        """A file that asks for the death of a worker."""
        return Path(self.folder, f"kill-a-worker-{query}")


# The sinks of each query.
QUERIES: dict[str, tuple[str, ...]] = {
    "rows": ("topic", "sqlite", "postgres", "delta", "parquet", "webhook"),
    "totals": ("delta-totals", "view", "view-postgres"),
}


def cases(query: str, places: Places) -> list[str]:
    """Those sinks of a query whose servers are there."""
    return [case for case in QUERIES[query] if places.postgres or "postgres" not in case]


def computed(frame: DataFrame, query: str, cases: Sequence[str]) -> DataFrame:
    """For each sink the same rows."""
    if query == "totals":
        frame = frame.groupBy("user").agg(sql.count("*").alias("rows"), sql.sum("n").alias("total"))
    row = sql.struct("*")
    outputs = sql.explode(sql.array(*map(sql.lit, cases))).alias(OUTPUT)
    return frame.select(outputs, *(row.alias(case) for case in cases))


def sink_of(case: str, places: Places) -> Sink:
    folder = places.folder
    made: dict[str, Any] = {
        "topic": lambda: TopicSink(places.bootstrap, TARGET, key="user"),
        "sqlite": lambda: SqliteSink(f"{folder}/sqlite.db", TABLE, name="sqlite"),
        "postgres": lambda: PostgresSink(places.postgres, TABLE, name="postgres"),
        "delta": lambda: DeltaSink(f"{folder}/delta"),
        "delta-totals": lambda: DeltaSink(f"{folder}/delta-totals", key="user"),
        "parquet": lambda: ParquetSink(f"{folder}/parquet"),
        "webhook": lambda: WebhookSink(places.webhook, rows_per_request=ROWS_PER_PAGE),
        "view": lambda: ViewSink(f"sqlite:///{folder}/views.db", "view", key=["user"]),
        "view-postgres": lambda: ViewSink(places.postgres, "view_postgres", key=["user"]),
    }
    sink: Sink = made[case]()
    return sink
