"""Late rows at a watermark, and the column that has their time; no Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from penstock.errors import UsageError
from penstock.spark.columns import raw_schema
from penstock.spark.options import parse_options
from penstock.spark.time.event_time import EventColumn, plan_rows
from penstock.spark.time.lateness import split_rows

US = timedelta(microseconds=1)
MARK = datetime(2026, 1, 2, 12, tzinfo=UTC)
MARK_MS = int(MARK.timestamp() * 1000)
LEAST = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "a"}
TYPED = StructType([StructField("n", LongType()), StructField("at", TimestampType())])


def rows(*times: datetime | None) -> pa.RecordBatch:
    at = pa.array(times, pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_pydict({"n": pa.array(range(len(times))), "at": at})


def test_a_row_at_the_watermark_is_on_time_and_one_just_before_is_late() -> None:
    found = split_rows(rows(MARK, MARK - US, None, MARK + US), "at", MARK_MS)
    assert found.column("_output").to_pylist() == ["on_time", "late", "on_time", "on_time"]
    assert [row and row["n"] for row in found.column("on_time").to_pylist()] == [0, None, 2, 3]
    late = {"n": 1, "at": MARK - US, "late_by": 1, "watermark": MARK}
    assert found.column("late").to_pylist() == [None, late, None, None]


def test_without_a_watermark_nothing_is_late() -> None:
    found = split_rows(rows(MARK, None), "at", None)
    assert found.column("_output").to_pylist() == ["on_time", "on_time"]
    assert split_rows(rows(), "at", MARK_MS).num_rows == 0


def test_the_largest_time_in_milliseconds_that_it_has_reached() -> None:
    column = EventColumn("at", hidden=False)
    assert column.newest_ms(rows(None, MARK + 1999 * US, MARK)) == MARK_MS + 1
    assert column.newest_ms(rows(None)) is None
    early = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert column.newest_ms(rows(early)) == -1


@pytest.mark.parametrize(
    ("name", "schema", "found"),
    [
        ("at", TYPED, EventColumn("at", hidden=False)),
        ("_timestamp", TYPED, EventColumn("_timestamp", hidden=True)),
        ("_timestamp", raw_schema(headers=False), EventColumn("timestamp", hidden=False)),
        ("timestamp", raw_schema(headers=False), EventColumn("timestamp", hidden=False)),
    ],
)
def test_where_the_time_is(name: str, schema: StructType, found: EventColumn) -> None:
    options = parse_options({**LEAST, "eventTimeColumn": name}, streaming=True)
    made, column = plan_rows(options, schema)
    assert column == found
    assert ("_timestamp" in made.schema.fieldNames()) is found.hidden


@pytest.mark.parametrize(
    ("name", "says"), [("when", "name one of n, at, or _timestamp"), ("n", "declare it timestamp")]
)
def test_where_it_is_not(name: str, says: str) -> None:
    options = parse_options({**LEAST, "eventTimeColumn": name}, streaming=True)
    with pytest.raises(UsageError, match=says):
        plan_rows(options, TYPED)
