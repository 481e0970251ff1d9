"""The stepping source: both ways of running it give the same, and a batch can be run again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import UsageError
from penstock.spark.batch import current_batch
from penstock.testing import stepping

BOTH = pytest.mark.parametrize("engine", [False, True], ids=["alone", "through-the-engine"])


def seen(frame: DataFrame) -> DataFrame:
    """What a task knows of its batch, beside what is in it."""

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        values = [value for batch in batches for value in batch.column("value").to_pylist()]
        batch = current_batch()
        times = batch.times()
        yield pa.RecordBatch.from_pydict(
            {
                "batch": [batch.batch_id],
                "before": pa.array([times.before_ms], pa.int64()),
                "now": pa.array([times.now_ms], pa.int64()),
                "total": [sum(values)],
            }
        )

    return frame.coalesce(1).mapInArrow(ask, "batch long, before long, now long, total long")


@BOTH
def test_each_step_is_a_batch_with_its_own_time(spark: SparkSession, engine: bool) -> None:
    source = stepping(spark, "value long")
    steps = source.through(seen, engine=engine)
    source.add([(1,), (2,)])
    assert [tuple(row) for row in steps.step()] == [(0, None, None, 3)]
    source.add([{"value": 5}], watermark_ms=1_000)
    assert [tuple(row) for row in steps.step()] == [(1, None, 1_000, 5)]
    assert [tuple(row) for row in steps.again()] == [(1, None, 1_000, 5)]
    source.add(watermark_ms=2_000)
    source.add([(7,)])
    rows = [tuple(row) for row in steps.step()]
    assert rows == [(2, 1_000, 2_000, 0), (3, 2_000, 2_000, 7)]
    assert steps.step() == []


@BOTH
def test_rows_arrive_as_they_were_added(spark: SparkSession, engine: bool) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    source = stepping(spark, "name string, at timestamp, tags array<string>")
    steps = source.through(lambda frame: frame.where("name > 'a'"), engine=engine)
    source.add([("a", moment, []), ("b", moment, ["x"]), {"name": "c"}])
    found = steps.step()
    assert [(row.name, row.tags) for row in found] == [("b", ["x"]), ("c", None)]
    assert found[0].at.timestamp() == moment.timestamp()


def test_the_state_of_spark_itself_needs_the_engine(spark: SparkSession) -> None:
    source = stepping(spark, "value long")
    steps = source.through(lambda frame: frame.dropDuplicates(["value"]), engine=True)
    source.add([(1,), (2,)])
    assert sorted(row.value for row in steps.step()) == [1, 2]
    source.add([(2,), (3,)])
    assert [row.value for row in steps.step()] == [3]


def test_there_must_be_a_batch_to_run_again(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="call step"):
        stepping(spark, "value long").through(seen).again()
