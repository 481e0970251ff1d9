"""State by key in a query: counts stay exact whatever runs twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.clients.brokers import Broker
from tests.clients.contract import MakeTopic
from tests.clients.wire import Wire
from tests.spark.test_sqlite_sink import fill, orders, query, run

from penstock.errors import UsageError
from penstock.spark import SqliteSink, keyed, read_state, read_stream, savepoint
from penstock.spark.batch import Times
from penstock.spark.windows import count, tumbling, windows


def counts(frame: DataFrame, **options: Any) -> DataFrame:
    # Inside, so that it goes to the workers as it is: they do not know the tests.
    def add(state: pa.Table, rows: pa.Table, times: Times) -> tuple[pa.Table, pa.Table]:
        ones = rows.select(["user"]).append_column("n", pa.array([1] * len(rows), pa.int64()))
        both = pa.concat_tables([state, ones])
        totals = both.group_by("user").aggregate([("n", "sum")]).rename_columns(["user", "n"])
        return totals, totals

    return keyed(
        frame,
        by=["user"],
        function=add,
        state="n bigint",
        output="user string, n bigint",
        **{"name": "counts", "buckets": 2, **options},
    )


def test_a_count_by_key_is_exact_also_when_a_batch_runs_again(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "shop.db", tmp_path / "checkpoint"
    sink = SqliteSink(path, "counts", key=["user"])
    fill(wire, topic, range(100))
    run(counts(orders(spark, broker, topic)), sink, checkpoint)
    # As if all had been lost but the offsets of the last batch: sink and Spark do not know of it.
    max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name)).unlink()
    fill(wire, topic, range(100, 111))
    other = SqliteSink(tmp_path / "again.db", "counts", key=["user"])
    run(counts(orders(spark, broker, topic)), other, checkpoint)
    found = query(tmp_path / "again.db", "SELECT user, n FROM counts ORDER BY user")
    assert found == [("u0", 37), ("u1", 37), ("u2", 37)]
    state = read_state(str(checkpoint), "counts").sort_by("user").to_pydict()
    assert state == {"user": ["u0", "u1", "u2"], "n": [37, 37, 37]}


def test_an_operator_whose_source_does_not_move_keeps_its_state(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic, tmp_path: Path
) -> None:
    checkpoint, one, two = tmp_path / "checkpoint", make_topic(), make_topic()
    for moving in ([one, two], [one], [one], [two]):
        for topic in moving:
            fill(wire, topic, range(9))
        first = counts(orders(spark, broker, one))
        second = counts(orders(spark, broker, two), name="others")
        both = first.selectExpr("user", "n").union(second.selectExpr("concat(user, '-b')", "n"))
        run(both, SqliteSink(tmp_path / "shop.db", "counts", key=["user"]), checkpoint)
    found = query(tmp_path / "shop.db", "SELECT user, n FROM counts ORDER BY user")
    assert found == [(f"u{k}{end}", n) for k in range(3) for end, n in (("", 9), ("-b", 6))]


def test_two_states_of_one_name_are_refused(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    fill(wire, topic, range(9))
    rows = orders(spark, broker, topic)
    sink = SqliteSink(tmp_path / "shop.db", "counts")
    with pytest.raises(UsageError, match="under the name 'counts'; give one of them another name"):
        run(counts(rows).union(counts(rows)), sink, tmp_path / "checkpoint")
    timed = rows.selectExpr("user", "current_timestamp() AS at")
    hour, second = tumbling("1 hour"), tumbling("1 second")
    both = [
        windows(timed, time="at", window=each, aggregates={"n": count()}).select("results")
        for each in (hour, second)
    ]
    with pytest.raises(UsageError, match="under the name 'windows'"):
        run(both[0].union(both[1]), sink, tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


def test_rows_of_one_operator_are_used_in_two_places(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    fill(wire, topic, range(90))
    counted = counts(orders(spark, broker, topic))
    both = counted.where("user = 'u0'").union(counted.where("user > 'u0'"))
    sink = SqliteSink(tmp_path / "shop.db", "counts", key=["user"])
    run(both, sink, tmp_path / "checkpoint")
    found = query(tmp_path / "shop.db", "SELECT user, n FROM counts ORDER BY user")
    assert found == [("u0", 30), ("u1", 30), ("u2", 30)]


def test_a_changed_query_begins_from_a_savepoint(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    fill(wire, topic, range(9))
    first = SqliteSink(tmp_path / "shop.db", "counts", key=["user"])
    run(counts(orders(spark, broker, topic)), first, tmp_path / "old")
    saved = savepoint(str(tmp_path / "old"), str(tmp_path / "saved"))
    fill(wire, topic, range(9, 18))
    rest = read_stream(
        spark,
        broker.bootstrap,
        topic,
        "user string, amount double",
        startingOffsets=saved["positions"][0],
    )
    more = SqliteSink(tmp_path / "shop.db", "more", key=["user"])
    changed = {"buckets": 3, "start_from": str(tmp_path / "saved")}
    expiring = {"ttl": timedelta(days=1), "ttl_clock": "processing"}
    run(counts(rest, **changed, **expiring), more, tmp_path / "new")
    found = query(tmp_path / "shop.db", "SELECT user, n FROM more ORDER BY user")
    assert found == [("u0", 6), ("u1", 6), ("u2", 6)]


def test_spark_has_state_of_its_own_in_the_same_session(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    class Counting(StatefulProcessor):  # type: ignore[misc]  # pyspark is not followed
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._count = handle.getValueState("n", "n long")

        def handleInputRows(
            self, key: tuple[str], rows: Iterator[Row], timerValues: object
        ) -> Iterator[Row]:
            before = self._count.get()[0] if self._count.exists() else 0
            self._count.update((before + len(list(rows)),))
            yield Row(user=key[0], n=self._count.get()[0])

        def close(self) -> None:
            pass

    fill(wire, topic, range(60))
    grouped = orders(spark, broker, topic).groupBy("user")
    counted = grouped.transformWithState(Counting(), "user string, n long", "Update", "None")
    sink = SqliteSink(tmp_path / "shop.db", "counts", key=["user"])
    run(counted, sink, tmp_path / "checkpoint", "update")
    found = query(tmp_path / "shop.db", "SELECT user, n FROM counts ORDER BY user")
    assert found == [("u0", 20), ("u1", 20), ("u2", 20)]
