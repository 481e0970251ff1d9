"""What all sinks promise, run on each of them: rows that are added, replaced, changed, each once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from tests.clients.brokers import Broker
from tests.spark.sink_targets import (
    DeltaTarget,
    ParquetTarget,
    PostgresTarget,
    SqliteTarget,
    Target,
    TopicTarget,
    WebhookTarget,
    receiver,
)
from tools.postgres import programs, running_postgres

from penstock.errors import ConflictError, PenstockError, UsageError
from penstock.spark import RoutedSink

TOPICS = ("topic-on-penstock", pytest.param("topic-on-kafka", marks=pytest.mark.compat))
ALL = ("sqlite", "postgres", "delta", "parquet", *TOPICS, "webhook")
ONCE = ALL[:-1]
FIXED = ("sqlite", "postgres", "delta", "parquet")
KEYED = ("sqlite", "postgres", "delta")
QUERY = "3f0c1f0e-0000-4000-8000-000000000001"


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with running_postgres() as connection:
        yield connection


@pytest.fixture
def target(
    request: pytest.FixtureRequest, brokers: Callable[[str], Broker], tmp_path: Path
) -> Iterator[Target]:
    name = f"t{uuid.uuid4().hex[:8]}"
    match request.param:
        case "sqlite":
            yield SqliteTarget(tmp_path)
        case "postgres":
            yield PostgresTarget(request.getfixturevalue("postgres"), name)
        case "delta":
            yield DeltaTarget(tmp_path)
        case "parquet":
            yield ParquetTarget(tmp_path)
        case "topic-on-penstock" | "topic-on-kafka":
            yield TopicTarget(brokers(request.param.removeprefix("topic-on-")).bootstrap, name)
        case "webhook":
            with receiver() as server:
                yield WebhookTarget(server)


def on(names: tuple[Any, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("target", names, indirect=True)


def users(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), "user string, amount int").coalesce(1)


def changes(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(
        list(rows), "_change_type string, user string, amount int"
    ).coalesce(1)


def row(user: str, amount: int) -> dict[str, Any]:
    return {"user": user, "amount": amount}


@on(ALL)
def test_rows_are_added(spark: SparkSession, target: Target) -> None:
    sink = target.sink()
    sink.prepare(users(spark))
    sink.write(users(spark, ("a", 1), ("b", 2), ("a", 1)), 0, QUERY)
    sink.write(users(spark), 1, QUERY)  # a batch without rows is one, too
    sink.write(users(spark, ("c", 3)), 2, QUERY)
    assert target.rows() == [row("a", 1), row("a", 1), row("b", 2), row("c", 3)]


@on(ALL)
def test_a_batch_that_comes_again_is_there_once(spark: SparkSession, target: Target) -> None:
    batch = users(spark, ("a", 1), ("b", 2), ("c", 3))
    target.sink().write(batch, 0, QUERY)
    target.sink().write(batch.sort(sql.desc("user")), 0, QUERY)  # a new process, and another order
    assert target.rows() == [row("a", 1), row("b", 2), row("c", 3)]


@on(ONCE)
def test_batches_of_other_queries_and_sinks_are_others(spark: SparkSession, target: Target) -> None:
    for name, query in ((None, QUERY), ("second", QUERY), (None, "another")):
        target.sink(name=name).write(users(spark, ("a", 1)), 0, query)
    assert target.rows() == [row("a", 1)] * 3


@on(ONCE)
def test_two_sinks_with_one_marker_are_refused(spark: SparkSession, target: Target) -> None:
    frame = users(spark).selectExpr(
        "'x' AS _output", "struct(user, amount) AS x", "struct(user) AS y"
    )
    with pytest.raises(UsageError, match=r"two sinks are called .*; give one of them a name="):
        RoutedSink({"x": target.sink(), "y": target.sink()}).prepare(frame)


@on(ONCE)
def test_a_checkpoint_that_went_back_is_refused(spark: SparkSession, target: Target) -> None:
    target.sink().write(users(spark, ("a", 1)), 4, QUERY)
    with pytest.raises(PenstockError, match="batch 4 has been written, and this is batch 3"):
        target.sink().write(users(spark, ("b", 1)), 3, QUERY)
    assert target.rows() == [row("a", 1)]


@on(ONCE)
def test_what_fails_leaves_nothing_behind(spark: SparkSession, target: Target) -> None:
    sink = target.sink()
    sink.write(users(spark, ("a", 1)), 0, QUERY)
    broken = sql.when(sql.col("user") == "c", sql.raise_error(sql.lit("on purpose")))
    rows = users(spark, ("b", 2), ("c", 3))
    failing = rows.withColumn("amount", broken.otherwise(sql.col("amount")).cast("int"))
    with pytest.raises(Exception, match="on purpose"):
        sink.write(failing, 1, QUERY)
    assert target.rows() == [row("a", 1)]
    sink.write(rows, 1, QUERY)
    assert target.rows() == [row("a", 1), row("b", 2), row("c", 3)]


@on(ALL)
def test_nulls_and_nested_columns(spark: SparkSession, target: Target) -> None:
    frame = spark.createDataFrame(
        [(1, None, None, None), (2, [{"x": 1, "y": None}], {"k": 2}, {"x": 3, "y": "z"})],
        "id int, list array<struct<x int, y string>>, map map<string, int>, "
        "`a.b` struct<x int, y string>",
    ).coalesce(1)
    sink = target.sink()
    sink.prepare(frame)
    sink.write(frame, 0, QUERY)
    first, second = sorted(target.rows(), key=lambda one: int(one["id"]))
    assert not {"list", "map", "a.b"} & {name for name, value in first.items() if value is not None}
    assert second["a.b"] == {"x": 3, "y": "z"}
    assert second["list"][0]["x"] == 1
    assert dict(second["map"]) == {"k": 2}


@on(KEYED)
def test_rows_replace_those_of_their_key(spark: SparkSession, target: Target) -> None:
    sink = target.sink(key="user")
    sink.prepare(users(spark))
    sink.write(users(spark, ("a", 1), ("b", 2), ("b", 3)), 0, QUERY)  # the last one counts
    sink.write(users(spark, ("a", 5), ("c", None)), 1, QUERY)
    sink.write(users(spark, ("a", 9)), 1, QUERY)
    assert target.rows() == [row("a", 5), row("b", 3), {"user": "c"}]


@on(KEYED)
def test_a_key_of_all_columns(spark: SparkSession, target: Target) -> None:
    sink = target.sink(key=["user", "amount"])
    sink.write(users(spark, ("a", 1), ("a", 1), ("a", 2)), 0, QUERY)
    sink.write(users(spark, ("a", 1)), 1, QUERY)
    assert target.rows() == [row("a", 1), row("a", 2)]


@on(KEYED)
def test_changes_are_applied_in_order(spark: SparkSession, target: Target) -> None:
    sink = target.sink(key="user", mode="changelog")
    sink.prepare(changes(spark))
    first = [("insert", "a", 1), ("insert", "b", 2), ("insert", "c", 3), ("delete", "c", 3)]
    sink.write(changes(spark, *first), 0, QUERY)
    assert target.rows() == [row("a", 1), row("b", 2)]
    second = [
        *(("update_preimage", "a", 1), ("update_postimage", "a", 7)),
        *(("delete", "b", 2), ("delete", "x", 0), ("insert", "d", 4)),
        *(("insert", "c", 5), ("delete", "c", 5), ("insert", "c", 6)),
    ]
    sink.write(changes(spark, *second), 1, QUERY)
    sink.write(changes(spark, ("delete", "a", 7)), 1, QUERY)
    assert target.rows() == [row("a", 7), row("c", 6), row("d", 4)]


@on(KEYED)
def test_rows_without_a_key_and_rows_that_are_no_change_are_refused(
    spark: SparkSession, target: Target
) -> None:
    with pytest.raises(UsageError, match="a row has no user, which is of the key"):
        target.sink(key="user").write(users(spark, ("a", 1), (None, 2)), 0, QUERY)
    sink = target.sink(key="user", mode="changelog")
    with pytest.raises(UsageError, match="a row has _change_type 'upsert'; it is one of insert, "):
        sink.write(changes(spark, ("upsert", "a", 1)), 0, QUERY)


@on(KEYED)
def test_modes_that_make_no_sense_are_refused(spark: SparkSession, target: Target) -> None:
    with pytest.raises(UsageError, match="there is no column id for the key; there are user"):
        target.sink(key="id").prepare(users(spark))
    with pytest.raises(UsageError, match="changelog needs a key"):
        target.sink(mode="changelog")
    with pytest.raises(UsageError, match="append has no use for a key"):
        target.sink(mode="append", key="user")
    with pytest.raises(UsageError, match="there is no mode merge; use one of append, upsert"):
        target.sink(mode="merge")
    with pytest.raises(UsageError, match="no column _change_type of strings"):
        target.sink(mode="changelog", key="user").prepare(users(spark))


@on((*FIXED, "webhook"))
def test_columns_that_cannot_be_kept_are_refused(spark: SparkSession, target: Target) -> None:
    frame = spark.sql("SELECT 1 AS a, array(struct(INTERVAL '1' DAY AS x)) AS b")
    with pytest.raises(UsageError, match="column b holds interval day; cast it"):
        target.sink().prepare(frame)
    with pytest.raises(UsageError, match="there are two columns A"):
        target.sink().prepare(spark.sql("SELECT 1 AS A, 2 AS a"))


@on(FIXED)
def test_other_columns_than_those_of_the_table_are_refused(
    spark: SparkSession, target: Target
) -> None:
    target.sink().write(users(spark, ("a", 1)), 0, QUERY)
    more = users(spark).withColumn("more", sql.lit(1))
    with pytest.raises(UsageError, match="more"):
        target.sink().prepare(more)
    other = users(spark).withColumn("amount", sql.col("amount").cast("string"))
    with pytest.raises(UsageError, match=r'column "?amount"? is'):
        target.sink().prepare(other)
    target.sink().prepare(users(spark))


@on(FIXED)
def test_a_later_batch_than_the_last_is_no_conflict(spark: SparkSession, target: Target) -> None:
    """Batches without rows leave gaps in some sinks."""
    target.sink().write(users(spark, ("a", 1)), 0, QUERY)
    target.sink().write(users(spark, ("b", 1)), 7, QUERY)
    with pytest.raises(ConflictError):
        target.sink().write(users(spark, ("c", 1)), 5, QUERY)
    assert target.rows() == [row("a", 1), row("b", 1)]
