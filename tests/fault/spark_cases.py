"""The queries that are killed, over the same topic: one copies rows, the others count and sum them.

Each sends what it computes to several sinks, of which some have a batch and others have not when it is
killed. A query for each sink would take a Python of its own for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from tests.fault.spark_sums import READ, WRITTEN, summed

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
from penstock.spark.sinks.row_modes import CHANGE

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

    def flag(self, query: str, step: str = "rows") -> Path:
        """A file that asks for the death of a worker, at a step of its task."""
        return Path(self.folder, f"kill-a-worker-{query}-{step}")


# The sinks of each query.
QUERIES: dict[str, tuple[str, ...]] = {
    "rows": ("topic", "sqlite", "postgres", "delta", "parquet", "webhook"),
    "totals": ("delta-totals", "view", "view-postgres"),
    # Totals again, by keyed state of our own, and as changes, of which some take a row away.
    "changes": ("sqlite-upsert", "sqlite-changes", "postgres-upsert", "postgres-changes"),
}
# The steps of its tasks at which a worker can be asked to die.
STEPS: dict[str, tuple[str, ...]] = {
    "rows": ("rows",),
    "totals": ("rows",),
    "changes": ("rows", READ, WRITTEN),
}


def cases(query: str, places: Places) -> list[str]:
    """Those sinks of a query whose servers are there."""
    return [case for case in QUERIES[query] if places.postgres or "postgres" not in case]


def computed(frame: DataFrame, query: str, places: Places, cases: Sequence[str]) -> DataFrame:
    """For each sink the same rows."""
    if query == "totals":
        frame = frame.groupBy("user").agg(sql.count("*").alias("rows"), sql.sum("n").alias("total"))
    if query == "changes":
        frame = summed(frame, places.flag(query, READ), places.flag(query, WRITTEN))
    outputs = sql.explode(sql.array(*map(sql.lit, cases))).alias(OUTPUT)
    return frame.select(outputs, *(row_of(frame, case).alias(case) for case in cases))


def row_of(frame: DataFrame, case: str) -> Column:
    """Those that put and never take are not told what kind of change it is."""
    return sql.struct(*(name for name in frame.columns if name != CHANGE or "changes" in case))


def sink_of(case: str, places: Places) -> Sink:
    folder = places.folder
    changes: dict[str, Any] = {"key": "user", "name": case}
    taking: dict[str, Any] = changes | {"mode": "changelog"}
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
        "sqlite-upsert": lambda: SqliteSink(f"{folder}/sqlite.db", "upsert", **changes),
        "sqlite-changes": lambda: SqliteSink(f"{folder}/sqlite.db", "changes", **taking),
        "postgres-upsert": lambda: PostgresSink(places.postgres, "upsert", **changes),
        "postgres-changes": lambda: PostgresSink(places.postgres, "changes", **taking),
    }
    sink: Sink = made[case]()
    return sink
