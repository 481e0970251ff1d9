"""Windows in Spark: disorder, replays, and the same from a stream, a range and Spark's own operators."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from tests.clients.brokers import Broker
from tests.clients.contract import MakeTopic, Record
from tests.clients.wire import Wire
from tests.spark.windowed import Outputs, applied

from penstock.spark import output_of, read, read_stream
from penstock.spark.windows import (
    count,
    sessions,
    sum_of,
    top_k,
    tumbling,
    windows,
)
from penstock.testing import stepping

SCHEMA = "id long, kind string, at timestamp, amount long"
START = datetime(2026, 3, 1, tzinfo=UTC)
KEY = ("kind", "window_start")
Step = tuple[int | None, list[dict[str, Any]]]


def events(numbers: range) -> list[dict[str, Any]]:
    """One a second, most of them a little late, some very, a few without a time."""
    dice = random.Random(7)
    found = []
    for number in range(numbers.stop):
        behind = dice.expovariate(1 / 4) if dice.random() < 0.9 else dice.uniform(0, 120)
        at = (START + timedelta(seconds=number - behind)).isoformat()
        found.append(
            {
                "id": number,
                "kind": dice.choice("abc"),
                "at": None if dice.random() < 0.02 else at,
                "amount": dice.randrange(10),
            }
        )
    return found[numbers.start :]


def send(wire: Wire, topic: str, some: Iterable[dict[str, Any]]) -> None:
    for event in some:
        wire.write(topic, [Record(json.dumps(event).encode())], partition=event["id"] % 2)


def everything(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    return read(spark, broker.bootstrap, topic, SCHEMA, startingOffsets="earliest")


def steps_of(some: list[dict[str, Any]], size: int) -> list[Step]:
    """Batches, each with the watermark of those before it."""
    found: list[Step] = []
    newest: int | None = None
    for begin in range(0, len(some), size):
        rows = [
            {**event, "at": event["at"] and datetime.fromisoformat(event["at"])}
            for event in some[begin : begin + size]
        ]
        found.append((None if newest is None else newest - 5_000, rows))
        times = [moment_ms(row["at"]) for row in rows if row["at"]]
        newest = max([*times, newest or times[0]])
    assert newest is not None
    return [*found, (newest - 5_000, [])]


def moment_ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


@pytest.mark.timeout(300)  # a dozen small batches
def test_every_row_is_in_a_window_or_late_and_results_are_those_of_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    out, source = Outputs(tmp_path / "checkpoint"), stepping(spark, SCHEMA)
    steps = steps_of(events(range(240)), 40)

    def add(some: Iterable[Step]) -> None:
        for mark, rows in some:
            source.add(rows, watermark_ms=mark)

    by_kind = windows(
        source.frame.repartition(2),
        time="at",
        by=["kind"],
        window=tumbling("10 seconds"),
        aggregates={"events": count(), "amount": sum_of("amount")},
        corrections="60 seconds",
    )
    add(steps[:3])
    out.run(by_kind)
    out.forget_last_commit()
    add(steps[3:])
    out.run(by_kind)
    assert out.results.again == 1
    assert len(out.results.batches) == len(steps)

    late: set[int] = set()
    expected: dict[tuple[str, int], list[int]] = {}
    for mark, rows in steps:
        for number, kind, at, amount in (row.values() for row in rows):
            start = None if at is None else moment_ms(at) // 10_000 * 10_000
            if start is None or (mark is not None and start + 10_000 <= mark - 60_000):
                late.add(number)
            elif start + 10_000 <= (steps[-1][0] or 0):
                expected.setdefault((kind, start), []).append(amount)
    assert sorted(row.id for row in out.late.rows()) == sorted(late)
    assert len(late) > 3
    assert {
        (line["kind"], round(line["window_start"].timestamp() * 1000)): (
            line["events"],
            line["amount"],
        )
        for line in out.table(KEY).values()
    } == {key: (len(some), sum(some)) for key, some in expected.items()}
    changes = {row["_change_type"] for row in out.results.rows()}
    assert changes == {"insert", "update_preimage", "update_postimage"}
    timed = [row for row in out.late.rows() if row.at is not None]
    assert all(row.window_end <= row.watermark - timedelta(seconds=60) for row in timed)
    assert all(row.late_by > 60_000 for row in timed)


@pytest.mark.timeout(300)
def test_a_stream_a_range_and_spark_itself_find_the_same_sessions(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, out = make_topic(2), Outputs(tmp_path / "checkpoint")
    send(wire, topic, events(range(160)))

    def sessions_of(frame: DataFrame) -> DataFrame:
        return windows(
            frame,
            time="at",
            by=["kind"],
            window=sessions(gap="4 seconds"),
            aggregates={"events": count(), "amount": sum_of("amount"), "top": top_k("amount", 1)},
            emit="early",
            corrections="1 hour",
        )

    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 80}
    out.run(sessions_of(read_stream(spark, broker.bootstrap, topic, SCHEMA, **options)))
    at_once = sessions_of(everything(spark, broker, topic))
    range_of_topic = applied(output_of(at_once, "results").collect(), KEY)
    assert out.table(KEY) == range_of_topic
    timeless = {row.id for row in output_of(at_once, "late").collect()}
    assert {row.id for row in out.late.rows()} == timeless

    own = (
        everything(spark, broker, topic)
        .where("at IS NOT NULL")
        .groupBy("kind", sql.session_window("at", "4 seconds"))
        .agg(sql.count("*"), sql.sum("amount"))
        .select("kind", "session_window.start", "session_window.end", "count(1)", "sum(amount)")
    )
    found = {tuple(line.values())[:-1] for line in range_of_topic.values()}
    assert found == {tuple(row) for row in own.collect()}
    assert {row["_change_type"] for row in out.results.rows()} >= {"delete", "update_postimage"}
