"""Time in a query: watermarks of partitions, batches without rows, and every row on time or late."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructField, StructType, TimestampType
from tests.clients.brokers import Broker
from tests.clients.contract import MakeTopic, Record, eventually
from tests.clients.wire import Wire
from tests.spark.test_sqlite_sink import query

from penstock.spark import (
    PenstockSource,
    RoutedSink,
    SqliteSink,
    adjusted_time,
    read_stream,
    source,
    source_times,
    split_late,
    write_stream,
)
from penstock.spark.batch import FROM, TIME, current_batch

SCHEMA = "n bigint, at timestamp, _partition int, _offset bigint"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def fill(wire: Wire, topic: str, seconds: list[float | None], *, partition: int = 0) -> None:
    """Events so many seconds after noon; None: without a time."""
    events = [
        {"n": n, "at": None if s is None else (NOON + timedelta(seconds=s)).isoformat()}
        for n, s in enumerate(seconds)
    ]
    wire.write(topic, [Record(json.dumps(one).encode()) for one in events], partition=partition)


def events(spark: SparkSession, broker: Broker, topic: str, **options: Any) -> DataFrame:
    given = {"startingOffsets": "earliest", "eventTimeColumn": "at", **options}
    return read_stream(spark, broker.bootstrap, topic, SCHEMA, **given)


def start(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    sinks = {name: SqliteSink(folder / "out.db", name) for name in ("on_time", "late")}
    return write_stream(
        split_late(frame, time="at"),
        RoutedSink(sinks),
        checkpoint=str(folder / "checkpoint"),
        trigger=trigger,
    )


def run(frame: DataFrame, folder: Path) -> StreamingQuery:
    folder.mkdir(exist_ok=True)
    started = start(frame, folder, availableNow=True)
    started.awaitTermination()
    return started


def offsets(folder: Path) -> list[dict[str, Any]]:
    """The positions of all batches, as Spark keeps them."""
    files = sorted((folder / "checkpoint/offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return [json.loads(file.read_text().split("\n")[2]) for file in files]


def watermarks(folder: Path) -> list[float | None]:
    """Of all batches, in seconds after noon."""
    found = [position[TIME]["watermark"] for position in offsets(folder)]
    return [None if ms is None else (ms - NOON_MS) / 1000 for ms in found]


def test_available_now_ends_with_time_advanced_and_a_restart_knows_what_was_read(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2)
    fill(wire, topic, [0, 50, 20])
    fill(wire, topic, [0, 30, None], partition=1)
    frame = events(spark, broker, topic, watermarkDelay="10 seconds", minPartitions=4)
    done = run(frame, tmp_path)
    # The rows, and a batch without rows in which time moves.
    assert watermarks(tmp_path) == [None, 20]
    assert done.lastProgress["numInputRows"] == 0
    # As if the driver had died after the first batch: what tasks reported is gone.
    kept = "checkpoint/kept-by-penstock/offsets/1"
    for file in ("checkpoint/offsets/1", "checkpoint/commits/1", kept, "out.db"):
        (tmp_path / file).unlink()
    fill(wire, topic, [19.999, 20, 100, None])
    done = run(frame, tmp_path)
    assert watermarks(tmp_path) == [None, 20]  # and no further: the other partition stands
    late = query(tmp_path / "out.db", "SELECT n, at, late_by, watermark FROM late")
    assert [(n, at[:23], by, mark[:19]) for n, at, by, mark in late] == [
        (0, "2026-01-02T12:00:19.999", 1, "2026-01-02T12:00:20")
    ]
    on_time = query(tmp_path / "out.db", "SELECT n FROM on_time ORDER BY n")
    assert on_time == [(1,), (2,), (3,)]
    (known,) = source_times(done.lastProgress)
    assert known.watermark_ms == NOON_MS + 20_000
    assert [one.behind_ms for one in known.partitions] == [0, 20_000]
    assert [one.records for one in known.partitions] == [0, 0]


def oracle(
    positions: list[dict[str, Any]], topic: str, times: dict[int, list[float | None]], delay: float
) -> dict[tuple[int, int], bool]:
    """Whether each row is late, from where batches ended and from nothing else that the source says."""
    newest: dict[int, float] = {}
    watermark = float("-inf")
    late: dict[tuple[int, int], bool] = {}
    reached = dict.fromkeys(times, 0)
    for position in positions:
        if newest.keys() == times.keys():
            watermark = max(watermark, min(newest.values()) - delay)
        ends = {partition: position[topic][str(partition)] for partition in times}
        for partition, end in ends.items():
            for offset in range(reached[partition], end):
                at = times[partition][offset]
                late[partition, offset] = at is not None and at < watermark
                if at is not None:
                    newest[partition] = max(at, newest.get(partition, at))
        reached = ends
    return late


def test_every_row_is_on_time_or_late_once(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, chance = make_topic(3), random.Random(5)
    times: dict[int, list[float | None]] = {0: [], 1: [], 2: []}
    frame = events(spark, broker, topic, watermarkDelay="5 seconds", maxOffsetsPerTrigger=40)
    for part in range(2):
        for partition, speed in enumerate((1.0, 0.9, 0.5)):  # the last one is slow
            made: list[float | None] = [
                None if not chance.randrange(15) else (part * 60 + n) * speed - chance.randrange(30)
                for n in range(60)
            ]
            times[partition] += made
            fill(wire, topic, made, partition=partition)
        run(frame, tmp_path)
        # Spark replays the last batch, and the driver knows nothing any more.
        newest = max((tmp_path / "checkpoint/commits").glob("[0-9]*"), key=lambda f: int(f.name))
        newest.unlink()
    run(frame, tmp_path)
    expected = oracle(offsets(tmp_path), topic, times, 5)
    found = {
        is_late: query(tmp_path / "out.db", f"SELECT _partition, _offset FROM {name}")
        for name, is_late in (("on_time", False), ("late", True))
    }
    for is_late, rows in found.items():
        wanted = [place for place, late in expected.items() if late is is_late]
        assert sorted(rows) == sorted(wanted)
    assert len(expected) == 360
    assert 0 < sum(expected.values()) < 100  # else the times above test nothing


def ticks(frame: DataFrame) -> DataFrame:
    """One row for each task, with rows or without."""

    def tick(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        batch = current_batch()
        found = {"batch": [batch.batch_id], "rows": [rows], "now": [batch.times().now_ms]}
        yield pa.RecordBatch.from_pydict({k: pa.array(v, pa.int64()) for k, v in found.items()})

    return frame.mapInArrow(tick, "batch long, rows long, now long")


def test_a_silent_partition_is_idle_after_a_while_and_tasks_hear_of_it(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2)
    fill(wire, topic, [0, 50])
    frame = events(spark, broker, topic, idleTimeout="2 seconds")
    started = write_stream(
        ticks(frame),
        SqliteSink(tmp_path / "out.db", "ticks"),
        checkpoint=str(tmp_path / "checkpoint"),
    )
    try:
        eventually(lambda: len(started.recentProgress) > 1 or None, "time moves without rows")
    finally:
        started.stop()
    counted = "SELECT batch, sum(rows), max(now) FROM ticks GROUP BY batch ORDER BY batch"
    assert query(tmp_path / "out.db", counted) == [(0, 2, None), (1, 0, NOON_MS + 50_000)]
    (known,) = source_times(started.recentProgress[1])
    assert [one.idle for one in known.partitions] == [True, True]
    assert [one.newest_ms for one in known.partitions] == [NOON_MS + 50_000, None]


def test_a_checkpoint_from_before_there_was_time_goes_on(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    fill(wire, topic, [0, 50])
    rows: list[int] = []

    def run_on(**options: Any) -> list[str]:
        given = {"startingOffsets": "earliest", **options}
        query = (
            read_stream(spark, broker.bootstrap, topic, "n bigint", **given)
            .writeStream.foreachBatch(lambda batch, _: rows.extend(r.n for r in batch.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [",".join(position) for position in offsets(tmp_path)]

    run_on()
    fill(wire, topic, [60])
    timed = f"{topic},{TIME}"
    # By the time of the record, which the schema does not have.
    assert run_on(eventTimeColumn="_timestamp") == [f"{topic},{FROM}", timed, timed]
    now = offsets(tmp_path)[-1][TIME]["watermark"]
    assert abs(now - time.time() * 1000) < 120_000
    fill(wire, topic, [70])
    assert run_on()[-1] == topic
    assert rows == [0, 1, 0, 0]


def test_the_error_of_a_device_s_clock_is_taken_out(spark: SparkSession) -> None:
    row = (NOON, NOON + timedelta(seconds=5), NOON + timedelta(hours=1, seconds=6), None)
    frame = spark.createDataFrame(
        [row], "event timestamp, sent timestamp, received timestamp, none timestamp"
    )
    found = frame.select(
        adjusted_time(event="event", sent="sent", received="received").alias("at"),
        adjusted_time(event=frame.none, sent="sent", received="received").alias("unknown"),
    )
    assert found.dtypes == [("at", "timestamp"), ("unknown", "timestamp")]
    ((at, unknown),) = found.collect()
    assert at.astimezone(UTC) == NOON + timedelta(hours=1, seconds=1)
    assert unknown is None


def test_a_column_that_has_no_time_is_refused(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="declare it timestamp"):
        run(events(spark, broker, topic, eventTimeColumn="n"), tmp_path)


def read_as_spark_does(bootstrap: str, topic: str) -> tuple[Any, Any]:
    """The time after one batch, from what its tasks reported, and from reading it once more."""
    schema = StructType([StructField("at", TimestampType())])
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "minPartitions": "3"}
    given |= {"startingOffsets": "earliest", "eventTimeColumn": "at"}
    planner = PenstockSource(given).streamReader(schema)
    task, alone = (pickle.loads(pickle.dumps(planner)) for _ in range(2))
    first = planner.latestOffset(planner.initialOffset(), ReadAllAvailable())
    for partition in planner.partitions(planner.initialOffset(), first):
        assert list(task.read(pickle.loads(pickle.dumps(partition))))
    reread = alone.latestOffset(first, ReadAllAvailable())
    source.read_range = None  # type: ignore[assignment, attr-defined]
    second = planner.latestOffset(first, ReadAllAvailable())
    (nothing,) = planner.partitions(first, second)
    assert list(task.read(nothing)) == []
    assert planner.latestOffset(second, ReadAllAvailable()) == second
    return second[TIME], reread[TIME]


def test_tasks_report_what_they_read_so_that_nobody_reads_it_twice(
    broker: Broker, wire: Wire, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    fill(wire, topic, [0, 50, 20])
    fill(wire, topic, [30], partition=1)
    # In a process of its own, as in Spark: readers leave their connections to its end.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        told, reread = process.submit(read_as_spark_does, broker.bootstrap, topic).result()
    assert told["watermark"] == NOON_MS + 30_000
    assert told == reread
