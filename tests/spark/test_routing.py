"""Several outputs of one query, and what a task knows of its batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.clients.brokers import Broker
from tests.clients.wire import Wire
from tests.spark.test_sqlite_sink import fill, orders, query, run

from penstock.errors import UsageError
from penstock.spark import RoutedSink, SqliteSink
from penstock.spark.batch import Batch, Times, current_batch

_TWO = (
    "if(amount < 30, 'small', 'large') AS _output",
    "if(amount < 30, struct(user, amount), null) AS small",
    "if(amount < 30, null, struct(amount)) AS large",
)


def test_each_output_goes_to_its_own_sink_once(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "shop.db", tmp_path / "checkpoint"
    sinks = {name: SqliteSink(path, name) for name in ("small", "large")}
    fill(wire, topic, range(100))
    run(orders(spark, broker, topic).selectExpr(*_TWO), RoutedSink(sinks), checkpoint)
    max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name)).unlink()
    fill(wire, topic, range(100, 101))
    run(orders(spark, broker, topic).selectExpr(*_TWO), RoutedSink(sinks), checkpoint)
    assert query(path, "SELECT count(*), count(user) FROM small") == [(30, 30)]
    assert query(path, "SELECT count(*), min(amount), max(amount) FROM large") == [(71, 30, 100)]


def test_an_output_that_is_not_there_is_refused(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no output late"):
        run(
            orders(spark, broker, topic).selectExpr(*_TWO),
            RoutedSink({"late": SqliteSink(tmp_path / "shop.db", "late")}),
            tmp_path / "checkpoint",
        )


def test_a_task_knows_its_batch(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    fill(wire, topic, range(60))
    run(
        known(orders(spark, broker, topic)),
        SqliteSink(tmp_path / "shop.db", "seen"),
        tmp_path / "c",
    )
    folder = str(tmp_path / "c")
    assert query(
        tmp_path / "shop.db", "SELECT DISTINCT folder, batch FROM seen ORDER BY batch"
    ) == [
        (folder, 0),
        (folder, 1),
    ]


def known(frame: DataFrame) -> DataFrame:
    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            batch = current_batch()
            assert batch.times() == Times(None, None)
            yield pa.RecordBatch.from_pydict(
                {"folder": [batch.checkpoint], "batch": [batch.batch_id]}
            )

    return frame.mapInArrow(ask, "folder string, batch long")


def test_the_time_of_a_batch_is_the_smallest_of_its_sources(tmp_path: Path) -> None:
    lines = ['{"a": {"0": 5}}', '{"b": {"0": 7}, "$time": {"watermark": %s}}']
    (tmp_path / "offsets").mkdir()
    for number, marks in enumerate((("null", "3"), ("9", "8"), ("9", "12"))):
        body = "\n".join(["v1", "{}", lines[0], *(lines[1] % mark for mark in marks)])
        (tmp_path / "offsets" / str(number)).write_text(body, encoding="utf-8")
    times = [Batch(str(tmp_path), "q", number).times() for number in range(3)]
    assert times == [Times(None, None), Times(None, 8), Times(8, 9)]


def test_a_task_of_another_query_is_told_what_to_do() -> None:
    with pytest.raises(UsageError, match="start it with write_stream"):
        current_batch()
