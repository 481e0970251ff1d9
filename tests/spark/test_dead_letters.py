"""Malformed records in a topic of their own: none is missing, and twins can be told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.clients.brokers import Broker
from tests.clients.contract import MakeTopic, Record
from tests.clients.wire import Wire
from tests.spark.test_source import ORDER, order, run

from penstock.spark import read, read_stream

BAD = Record(b"nonsense", b"k", (("trace", b"7"),))


def letters(spark: SparkSession, broker: Broker, topic: str) -> list[tuple[Any, ...]]:
    """Key, value and headers of all dead letters, in their order."""
    found = read(spark, broker.bootstrap, topic, includeHeaders="true").orderBy("offset").collect()
    return [
        (row.key, row.value, {one.key: bytes(one.value).decode() for one in row.headers})
        for row in found
    ]


def counted(query: StreamingQuery) -> int:
    return sum(
        row.records
        for progress in query.recentProgress
        for name, row in progress["observedMetrics"].items()
        if name.startswith("malformed ")
    )


def test_malformed_records_go_to_their_topic_and_are_counted(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, dead = make_topic(2), make_topic(1)
    wire.write(topic, [Record(order(0)), BAD, Record(order(1))])
    wire.write(topic, [Record(order(2)), Record(None), Record(b"[1", b"x")], partition=1)
    frame = read_stream(
        spark,
        broker.bootstrap,
        topic,
        f"{ORDER}, _offset bigint",
        startingOffsets="earliest",
        malformed=f"topic:{dead}",
    )
    assert frame.columns == ["user", "amount", "_offset"]
    rows, query = run(frame, tmp_path)
    assert sorted(row.amount for row in rows if row.amount is not None) == [0.0, 0.5, 1.0]
    assert len(rows) == 4
    assert counted(query) == 2
    first, second = sorted(letters(spark, broker, dead), key=lambda one: one[2]["penstock.offset"])
    assert first[:2] == (b"k", b"nonsense")
    about = first[2]
    assert about.pop("penstock.error")
    assert int(about.pop("penstock.timestamp")) > 0
    assert about == {
        "trace": "7",
        "penstock.topic": topic,
        "penstock.partition": "0",
        "penstock.offset": "1",
    }
    assert second[2]["penstock.partition"] == "1"
    # As if Spark had died after the rows were written and before it noted that: the batch is read
    # again, and so are its dead letters, each with the same three headers.
    max((tmp_path / "commits").glob("[0-9]*"), key=lambda file: int(file.name)).unlink()
    run(frame, tmp_path)
    place = ("penstock.topic", "penstock.partition", "penstock.offset")
    twins = Counter(tuple(h[name] for name in place) for *_, h in letters(spark, broker, dead))
    assert twins == {(topic, "0", "1"): 2, (topic, "1", "2"): 2}


def test_they_may_be_rows_too(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic
) -> None:
    topic, dead = make_topic(), make_topic(3)
    wire.write(topic, [Record(order(0)), BAD, BAD])
    schema = f"{ORDER}, _error string"
    frame = read(spark, broker.bootstrap, topic, schema, malformed=f"topic:{dead}")
    assert sorted(row._error is None for row in frame.collect()) == [False, False, True]
    plain = read(spark, broker.bootstrap, topic, ORDER, malformed=f"topic:{dead}")
    assert [row.user for row in plain.collect()] == ["u0"]
    assert len(letters(spark, broker, dead)) == 4


@pytest.mark.parametrize(
    ("malformed", "schema", "says"),
    [
        ("topic:nowhere", ORDER, "there is no topic nowhere"),
        ("topic:", ORDER, "write fail, column or topic:NAME"),
        ("drop", ORDER, "write fail, column or topic:NAME"),
        ("column", ORDER, "add the column _error STRING to the schema"),
        ("fail", None, "give a schema, or leave malformed out"),
        ("fail", f"{ORDER}, _error string", "the value at offset 0 does not fit the schema"),
    ],
)
def test_a_mistake_says_what_to_do(
    spark: SparkSession,
    broker: Broker,
    wire: Wire,
    topic: str,
    malformed: str,
    schema: str | None,
    says: str,
) -> None:
    wire.write(topic, [BAD])
    with pytest.raises(PySparkException) as error:
        read(spark, broker.bootstrap, topic, schema, malformed=malformed).count()
    assert says in str(error.value)


def test_a_topic_is_not_its_own_dead_letter_topic(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    with pytest.raises(PySparkException, match="name another topic in malformed"):
        read(spark, broker.bootstrap, topic, ORDER, malformed=f"topic:{topic}").count()
