"""Where a driver can be killed: each step of a batch, from its plan to the sink's commit.

A point is a call of a function of ours, and whether the driver dies before or after it.
"""

from __future__ import annotations

import functools
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from deltalake import DeltaTable

from penstock.client.transactional import BatchWriter, Transaction
from penstock.spark import DeltaSink, PostgresSink, TopicSink, WebhookSink
from penstock.spark.checkpoints import Plans
from penstock.spark.sinks import parquet
from penstock.spark.sinks import parquet_manifest as manifest
from penstock.spark.sinks.commit_markers import Markers
from penstock.spark.sinks.postgres_merge import Merge
from penstock.views import catalog
from penstock.views.database import Session
from penstock.views.store import ViewStore

working = threading.local()
"""`case`: the sink that this thread is writing to. Every query has a thread of its own."""


def always(*args: Any, **named: Any) -> bool:
    return True


def ends_well(*args: Any, commit: bool, **named: Any) -> bool:
    return commit


def says(start: str) -> Callable[..., bool]:
    return lambda connection, text, *args: isinstance(text, str) and text.startswith(start)


class Point(NamedTuple):
    """One place in the code."""

    owner: Any
    name: str
    after: bool
    when: Callable[..., bool] = always


class Database(sqlite3.Connection):
    """One whose methods can be replaced, as those of a type written in C cannot."""

    def execute(self, *args: Any) -> Any:
        return super().execute(*args)


TOPIC = {
    "begun": Point(Transaction, "begin", after=True),
    "looked up": Point(Markers, "last_batch", after=True),
    "rows written": Point(TopicSink, "_write_rows", after=True),
    "marked": Point(BatchWriter, "write", after=True),  # the driver itself writes markers only
    "committed": Point(Transaction, "end", after=True, when=ends_well),
}
SQLITE = {
    "begun": Point(Database, "execute", after=True, when=says("BEGIN")),
    "a row written": Point(Database, "execute", after=True, when=says("INSERT INTO ")),
    "marked": Point(Database, "execute", after=True, when=says("INSERT OR REPLACE")),
    "committed": Point(Database, "execute", after=True, when=says("COMMIT")),
}
TAKING = {**SQLITE, "a row taken": Point(Database, "execute", after=True, when=says("DELETE"))}
POSTGRES = {
    "staging made": Point(Merge, "create", after=True),
    "staged": Point(PostgresSink, "_stage", after=True),
    "merged": Point(Merge, "run", after=True),
    "marked": Point(psycopg.Connection, "execute", after=True, when=says("UPDATE penstock_")),
    "staging dropped": Point(Merge, "drop", after=True),
    "committed": Point(PostgresSink, "_take", after=True),
}
DELTA = {
    "committing": Point(DeltaSink, "_commit", after=False),
    "committed": Point(DeltaSink, "_commit", after=True),
    "durable": Point(DeltaSink, "_make_durable", after=True),
}
MERGED = {"table made": Point(DeltaTable, "create", after=True), **DELTA}
PARQUET = {
    "files written": Point(parquet, "_write_parts", after=True),
    "linking": Point(Path, "hardlink_to", after=False),
    "linked": Point(Path, "hardlink_to", after=True),
    "committed": Point(manifest, "commit", after=True),
    "durable": Point(manifest, "make_durable", after=True),
    "cleaned": Point(parquet, "_clean", after=True),
}
WEBHOOK = {
    "sending": Point(WebhookSink, "_post", after=False),
    "sent": Point(WebhookSink, "_post", after=True),
}
VIEW = {
    "changed": Point(ViewStore, "_change", after=True),
    "marked": Point(catalog, "set_last", after=True),
    "committed": Point(Session, "execute", after=True, when=says("COMMIT")),
}
# What every query does before its sinks are written to.
PLAN = {"planned": Point(Plans, "keep", after=False), "kept": Point(Plans, "keep", after=True)}
POINTS: dict[str, dict[str, Point]] = {
    "rows": PLAN,
    "topic": TOPIC,
    "sqlite": SQLITE,
    "postgres": POSTGRES,
    "delta": DELTA,
    "parquet": PARQUET,
    "webhook": WEBHOOK,
    "totals": PLAN,
    "delta-totals": MERGED,
    "view": VIEW,
    "view-postgres": VIEW,
    "changes": PLAN,
    "sqlite-upsert": SQLITE,
    "sqlite-changes": TAKING,
    "postgres-upsert": POSTGRES,
    "postgres-changes": POSTGRES,
}
"""By query or sink."""


def arm(case: str, point: str, call: int, died: Path) -> None:
    """Have this process killed at a point of a query or sink; `died` is made just before.

    Args:
        case: the query or the sink.
        point: its name.
        call: at which of its calls.
        died: a file.
    """
    owner, name, after, when = POINTS[case][point]
    real = getattr(owner, name)
    calls = 0

    def counts(*args: Any, **named: Any) -> bool:
        nonlocal calls
        mine = getattr(working, "case", None) == case
        if owner is Plans:
            mine = args[0]._operation.endswith(f"/{case}")
        calls += mine and when(*args, **named)
        return mine and when(*args, **named) and calls == call

    def die() -> None:
        died.write_text(f"{case}: {point}")
        os.kill(os.getpid(), signal.SIGKILL)

    @functools.wraps(real)
    def replaced(*args: Any, **named: Any) -> Any:
        now = counts(*args, **named)
        if now and not after:
            die()
        done = real(*args, **named)
        if now:
            die()
        return done

    setattr(owner, name, staticmethod(replaced) if owner is DeltaTable else replaced)
