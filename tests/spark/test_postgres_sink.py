"""Tables of PostgreSQL: types, tables that others made, and what is staged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.sink_targets import PostgresTarget
from tools.postgres import programs, running_postgres

from penstock.errors import UnavailableError, UsageError
from penstock.spark import PostgresSink
from penstock.spark.sinks.postgres import Staged


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with running_postgres() as connection:
        yield connection


def staging(target: PostgresTarget) -> list[str]:
    """The staging tables that are there."""
    found = target.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    return sorted(
        row["tablename"]
        for row in found
        if row["tablename"].startswith("penstock_") and len(row["tablename"]) > 30
    )


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2)


def test_types(spark: SparkSession, postgres: str) -> None:
    target = PostgresTarget(postgres, "kinds")
    row = spark.sql(
        "SELECT 1 AS i, 2L AS l, true AS b, 1.5D AS d, 'x' AS s, X'00ff' AS raw, 12.30 AS m, "
        "NULL AS n, TIMESTAMP '2026-01-02 03:04:05' AS t, DATE '2026-01-02' AS day, "
        "array(1, 2) AS list, 'quoted' AS `odd \"name`"
    )
    target.sink().write(row, 0, "query")
    found = target.query(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'kinds'"
    )
    assert {row["column_name"]: row["data_type"] for row in found} == {
        **{"i": "integer", "l": "bigint", "b": "boolean", "d": "double precision", "s": "text"},
        **{"raw": "bytea", "m": "numeric", "n": "text", "t": "timestamp with time zone"},
        **{"day": "date", "list": "jsonb", 'odd "name': "text"},
    }
    (kept,) = target.query("SELECT *, t = '2026-01-02T03:04:05Z' AS same FROM kinds")
    assert (kept["same"], kept["raw"], str(kept["m"]), kept["list"]) == (
        *(True, b"\x00\xff", "12.30", [1, 2]),
    )


def test_tables_that_are_there(spark: SparkSession, postgres: str) -> None:
    target = PostgresTarget(postgres, "public.mine")
    target.query("CREATE TABLE mine (id int, note text DEFAULT 'none')")
    with pytest.raises(UsageError, match="no unique or exclusion constraint"):
        target.sink(key="id").prepare(numbers(spark, 1))
    target.query("ALTER TABLE mine ADD UNIQUE (id)")
    sink = target.sink(key="id")
    sink.prepare(numbers(spark, 1))
    sink.write(numbers(spark, 2), 0, "query")
    assert target.rows() == [{"id": 0, "note": "none"}, {"id": 1, "note": "none"}]


def test_what_a_failed_try_has_staged_is_not_taken_and_goes(
    spark: SparkSession, postgres: str
) -> None:
    target = PostgresTarget(postgres, "staged")

    def die(*args: object) -> Staged:
        raise RuntimeError("killed before the merge")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresSink, "_take", die)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                target.sink().write(numbers(spark, 5), 0, "query")
    assert len(staging(target)) == 1
    target.sink().write(numbers(spark, 3), 0, "query")
    assert len(target.rows()) == 3
    assert staging(target) == []


def test_rows_of_tasks_that_did_not_succeed_are_not_taken(
    spark: SparkSession, postgres: str
) -> None:
    """As a second try of a task leaves them: staged and committed, and not reported."""
    target = PostgresTarget(postgres, "attempts")
    real = PostgresSink._stage
    with pytest.MonkeyPatch.context() as patch:

        def twice(self: PostgresSink, batch: DataFrame, merge: object) -> Staged:
            real(self, batch, merge)  # type: ignore[arg-type]
            return real(self, batch, merge)  # type: ignore[arg-type]

        patch.setattr(PostgresSink, "_stage", twice)
        target.sink().write(numbers(spark, 3), 0, "query")
    assert target.rows() == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_a_staging_table_that_was_emptied_is_not_merged(spark: SparkSession, postgres: str) -> None:
    """As a crash of the database does to it."""
    target = PostgresTarget(postgres, "emptied")
    real = PostgresSink._stage
    with pytest.MonkeyPatch.context() as patch:

        def emptied(self: PostgresSink, batch: DataFrame, merge: object) -> Staged:
            done = real(self, batch, merge)  # type: ignore[arg-type]
            (name,) = staging(target)
            target.query(f"TRUNCATE {name}")
            return done

        patch.setattr(PostgresSink, "_stage", emptied)
        with pytest.raises(UnavailableError, match="3 rows were staged, and 0 are there"):
            target.sink().write(numbers(spark, 3), 0, "query")
    assert target.rows() == []


def test_a_database_that_is_away(spark: SparkSession) -> None:
    sink = PostgresSink("host=127.0.0.1 port=1 dbname=x", "t")
    with pytest.raises(UnavailableError, match=r"cannot write to table t: .*refused"):
        sink.prepare(numbers(spark, 1))
