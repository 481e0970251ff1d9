"""A query that keeps a view and is killed at a point: run as a process of its own by test_spark_view.

Arguments: bootstrap, topic, store, checkpoint, and the name of a point or `none`, which ends when the
view is what all that is there gives.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from pyspark.sql import functions as sql

from penstock.spark import materialize, read_stream, session
from penstock.views.database import Session

_MARK = "UPDATE penstock_view_versions SET query_id"
# The statement at which it dies, whether after it, and how many batches were marked before.
POINTS = {
    "marked": (_MARK, True, 1),
    "committing": ("COMMIT", False, 2),
    "committed": ("COMMIT", True, 2),
    "begun": ("BEGIN IMMEDIATE", True, 1),
}


def arm(point: str) -> None:
    """Have the process killed at a point of its second batch."""
    wanted, after, before = POINTS[point]
    real = Session.execute
    marked = 0

    def replaced(self: Session, statement: str, *values: object) -> Any:
        nonlocal marked
        hit = statement.startswith(wanted) and marked == before
        marked += statement.startswith(_MARK)
        if hit and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        done = real(self, statement, *values)
        if hit:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    Session.execute = replaced  # type: ignore[method-assign]


def main() -> None:
    bootstrap, topic, store, checkpoint, point = sys.argv[1:]
    spark = session("keeper", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 100}
    rows = read_stream(spark, bootstrap, topic, "user string, amount bigint", **options)
    totals = rows.groupBy("user").agg(
        sql.sum("amount").alias("total"), sql.count("*").alias("count")
    )
    if point != "none":
        arm(point)
    query = materialize(
        totals,
        "totals",
        key=["user"],
        store=store,
        checkpoint=checkpoint,
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
