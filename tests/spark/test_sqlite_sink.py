"""Batches to tables of SQLite: each exactly once, whatever fails."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from tests.clients.brokers import Broker
from tests.clients.contract import Record
from tests.clients.wire import Wire

from penstock.errors import UsageError
from penstock.spark import Sink, SqliteSink, read_stream, write_stream


def query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(statement).fetchall()


def orders(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 30}
    return read_stream(spark, broker.bootstrap, topic, "user string, amount double", **options)


def fill(wire: Wire, topic: str, numbers: range) -> None:
    values = (b'{"user": "u%d", "amount": %d}' % (number % 3, number) for number in numbers)
    wire.write(topic, [Record(value) for value in values])


def run(frame: DataFrame, sink: Sink, folder: Path, mode: str = "append") -> None:
    write_stream(
        frame,
        sink,
        checkpoint=str(folder),
        output_mode=mode,
        trigger={"availableNow": True},
    ).awaitTermination()


def test_rows_are_added_once_also_when_spark_runs_a_batch_again(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "shop.db", tmp_path / "checkpoint"
    fill(wire, topic, range(100))
    run(orders(spark, broker, topic), SqliteSink(path, "orders"), checkpoint)
    # As if Spark had died after the sink's commit and before its own.
    max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name)).unlink()
    fill(wire, topic, range(100, 120))
    run(orders(spark, broker, topic), SqliteSink(path, "orders"), checkpoint)
    found = query(path, "SELECT amount FROM orders ORDER BY amount")
    assert [amount for (amount,) in found] == list(range(120))


def test_an_old_copy_of_a_checkpoint_is_refused(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "shop.db", tmp_path / "checkpoint"
    fill(wire, topic, range(30))
    run(orders(spark, broker, topic), SqliteSink(path, "orders"), checkpoint)
    shutil.copytree(checkpoint, tmp_path / "copy")
    fill(wire, topic, range(30, 40))
    run(orders(spark, broker, topic), SqliteSink(path, "orders"), checkpoint)
    fill(wire, topic, range(40, 50))
    with pytest.raises(StreamingQueryException, match="its plan is not in the checkpoint"):
        run(orders(spark, broker, topic), SqliteSink(path, "orders"), tmp_path / "copy")
    run(orders(spark, broker, topic), SqliteSink(path, "orders"), checkpoint)
    assert query(path, "SELECT count(*) FROM orders") == [(50,)]


def test_totals_are_replaced_by_key(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "shop.db", tmp_path / "checkpoint"
    for numbers in (range(50), range(50, 90)):
        fill(wire, topic, numbers)
        totals = orders(spark, broker, topic).groupBy("user").agg(sql.sum("amount").alias("total"))
        run(totals, SqliteSink(path, "totals", key=["user"]), checkpoint, "update")
        # The last batch runs again, and its state must not be missed by those that follow.
        max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name)).unlink()
    expected = [(f"u{k}", float(sum(range(k, 90, 3)))) for k in range(3)]
    assert query(path, "SELECT user, total FROM totals ORDER BY user") == expected


def test_what_fails_leaves_nothing_and_is_written_when_it_comes_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "shop.db"
    sink = SqliteSink(path, "orders", key=["user"])
    good = spark.createDataFrame([("a", 1), ("b", 2)], "user string, amount int")
    failing = good.withColumn("amount", sql.raise_error(sql.lit("broken on purpose")).cast("int"))
    with pytest.raises(Exception, match="broken on purpose"):
        sink.write(failing, 0, "query")
    assert query(path, "SELECT name FROM sqlite_master WHERE type = 'table'") == []
    sink.write(good, 0, "query")
    sink.write(spark.createDataFrame([("a", 9)], "user string, amount int"), 0, "query")
    assert query(path, "SELECT * FROM orders ORDER BY user") == [("a", 1), ("b", 2)]
    sink.write(spark.createDataFrame([("a", 9)], "user string, amount int"), 1, "query")
    assert query(path, "SELECT * FROM orders ORDER BY user") == [("a", 9), ("b", 2)]


def test_types(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "types.db"
    row = spark.sql(
        "SELECT 1 AS i, true AS b, 1.5D AS d, 'x' AS s, X'00ff' AS raw, 12.30 AS m, NULL AS n, "
        "TIMESTAMP '2026-01-02 03:04:05' AS t, DATE '2026-01-02' AS day, array(1, 2) AS list, "
        "named_struct('x', 1) AS inner, 'quoted' AS `odd \"name`"
    )
    SqliteSink(path, 'odd "table').write(row, 0, "query")
    (found,) = query(path, 'SELECT * FROM "odd ""table"')
    assert found == (
        *(1, 1, 1.5, "x", b"\x00\xff", "12.30", None),
        *("2026-01-02T03:04:05+00:00", "2026-01-02", "[1,2]", '{"x":1}', "quoted"),
    )


def test_what_would_stop_a_query_is_said_before_it_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([("a", 1)], "user string, amount int")
    with pytest.raises(UsageError, match="there is no column id for the key"):
        SqliteSink(tmp_path / "x.db", "t", key=["id"]).prepare(frame)
    with pytest.raises(UsageError, match="unable to open database file"):
        SqliteSink(tmp_path / "no" / "x.db", "t").prepare(frame)
    SqliteSink(tmp_path / "x.db", "t").write(frame.select("user"), 0, "query")
    with pytest.raises(UsageError, match="the table has no column amount; it has user"):
        SqliteSink(tmp_path / "x.db", "t").prepare(frame)
