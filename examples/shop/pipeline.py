"""The shop's numbers, kept current: `penstock run examples/shop/pipeline.py -- shop.db`.

Three queries read what visitors do, by the time at which they did it, and keep tables of SQLite that
anybody can ask at any time. A table changes with the rows that arrive; those that arrive when their
window has been given up are not lost but stand in a table of their own.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

from penstock.spark import RoutedSink, SqliteSink, read_stream, session, write_stream
from penstock.spark.windows import count, sessions, sum_of, top_k, tumbling, windows


def events(spark: SparkSession, topic: str, fields: str) -> DataFrame:
    """A topic, whose rows have a time."""
    return read_stream(
        spark,
        topics=topic,
        schema=f"{fields}, at timestamp",
        startingOffsets="earliest",
        eventTimeColumn="at",
        watermarkDelay="30 seconds",
        idleTimeout="10 seconds",
    )


def keep(found: DataFrame, database: str, table: str, key: list[str], late: str) -> None:
    """Results into one table, late rows into another, every batch exactly once."""
    results = SqliteSink(database, table, key=key, mode="changelog")
    sink = RoutedSink({"results": results, "late": SqliteSink(database, late)})
    write_stream(found, sink, name=table)


def main(database: str) -> None:
    spark = session("shop", settings={"spark.sql.shuffle.partitions": "2"})
    revenue = windows(
        events(spark, "shop.payments", "order string, cents long"),
        time="at",
        window=tumbling("1 minute"),
        aggregates={"payments": count(), "cents": sum_of("cents")},
        emit="early",
        corrections="10 minutes",
        name="revenue",
    )
    keep(revenue, database, "revenue", ["window_start"], "late_payments")
    visits = windows(
        events(spark, "shop.views", "user string, product string"),
        time="at",
        window=sessions("5 minutes"),
        by=["user"],
        aggregates={"views": count()},
        emit="early",
        corrections="10 minutes",
        name="visits",
    )
    keep(visits, database, "visits", ["user", "window_start"], "late_views")
    products = windows(
        events(spark, "shop.orders", "order string, product string, pieces long"),
        time="at",
        window=tumbling("10 minutes"),
        aggregates={"orders": count(), "pieces": sum_of("pieces"), "top": top_k("product", 3)},
        emit="early",
        corrections="10 minutes",
        name="products",
    )
    keep(products, database, "products", ["window_start"], "late_orders")
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(sys.argv[1])
