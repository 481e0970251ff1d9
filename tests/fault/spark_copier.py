"""A query that copies a topic and is killed at a point: run as a process of its own by test_spark_sink.

Arguments: bootstrap, source, where to (a topic, or the path of a database), checkpoint, and the name of
a point or `none`, which ends when all that is there has been copied.
"""

from __future__ import annotations

import functools
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from penstock.client.transactional import BatchWriter, Transaction
from penstock.spark import SqliteSink, TopicSink, read_stream, session, write_stream

TOPIC_POINTS = ("begun", "rows-written", "marked", "committing", "committed", "none")
TABLE_POINTS = ("table-marked", "table-committing", "table-committed", "none")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill(kind: type, method: str, *, after: bool, when: Callable[..., bool]) -> None:
    """Die before or after the second call of a method that counts: the first batch is in order."""
    real = getattr(kind, method)
    calls = 0

    def replaced(self: Any, *args: Any, **named: Any) -> Any:
        nonlocal calls
        counts = when(*args, **named)
        calls += counts
        if counts and calls == 2 and not after:
            die()
        done = real(self, *args, **named)
        if counts and calls == 2:
            die()
        return done

    setattr(kind, method, replaced)


class Database(sqlite3.Connection):
    """One whose methods can be replaced, as those of a type written in C cannot."""

    def execute(self, *args: Any) -> Any:
        return super().execute(*args)


def arm(point: str) -> None:
    """Have the process killed at a point of its second batch."""
    always = lambda *args, **named: True  # noqa: E731
    commits = lambda *args, commit, **named: commit  # noqa: E731
    match point:
        case "begun":
            kill(Transaction, "begin", after=True, when=always)
        case "rows-written":
            kill(TopicSink, "_write_rows", after=True, when=always)
        case "marked":
            kill(BatchWriter, "write", after=True, when=always)  # the driver writes markers only
        case "committing":
            kill(Transaction, "end", after=False, when=commits)
        case "committed":
            kill(Transaction, "end", after=True, when=commits)
        case "table-marked":
            kill(
                Database, "execute", after=True, when=lambda text, *_: text.startswith("INSERT OR")
            )
        case "table-committing":
            kill(Database, "execute", after=False, when=lambda text, *_: text == "COMMIT")
        case "table-committed":
            kill(Database, "execute", after=True, when=lambda text, *_: text == "COMMIT")


def main() -> None:
    bootstrap, source, target, checkpoint, point = sys.argv[1:]
    arm(point)
    sqlite3.connect = functools.partial(sqlite3.connect, factory=Database)  # type: ignore[assignment]
    spark = session("copier", master="local[2]")
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 100}
    rows = read_stream(spark, bootstrap, source, **options).select("key", "value")
    sink = SqliteSink(target, "copy") if "/" in target else TopicSink(bootstrap, target)
    query = write_stream(rows, sink, checkpoint=checkpoint, trigger={"availableNow": True})
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
