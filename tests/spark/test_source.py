"""format("penstock"): the columns, the options and the offsets of Spark's own Kafka source."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.clients.admin_requests import create_partitions, delete_records, delete_topic
from tests.clients.brokers import Broker
from tests.clients.contract import CODECS, MakeTopic, Record, Stored, eventually
from tests.clients.wire import Wire, build_batch

from penstock.spark import read, read_stream

ORDER = "user string, amount double"
START = int(time.time() * 1000)  # retention by time is on


def order(number: int) -> bytes:
    return json.dumps({"user": f"u{number % 3}", "amount": number / 2}).encode()


def write(wire: Wire, topic: str, numbers: range, *, partition: int = 0) -> None:
    records = [
        Record(order(number), b"%d" % number, timestamp=START + number) for number in numbers
    ]
    wire.write(topic, records, partition=partition)


def values(frame: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in frame.orderBy("partition", "offset").collect()]


def run(frame: DataFrame, folder: Path) -> tuple[list[Row], StreamingQuery]:
    """Read what there is; the rows, and the query that has ended."""
    rows: list[Row] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows, query


def test_raw_columns_are_those_of_sparks_own_source(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    headers = (("a", b"1"), ("b", None))
    wire.write(topic, [Record(b"one", b"k", headers, START), Record(None, None)])
    wire.write(topic, [Record(b"", b"")], partition=1)
    frame = read(spark, broker.bootstrap, topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    first, null, empty = frame.orderBy("partition", "offset").collect()
    assert (first.key, first.value, first.topic, first.partition) == (b"k", b"one", topic, 0)
    when = datetime.fromtimestamp(START / 1000, UTC)
    assert first.timestamp.astimezone(UTC) == when
    assert [(one.key, one.value) for one in first.headers] == [("a", b"1"), ("b", None)]
    assert (null.key, null.value, null.offset, null.headers) == (None, None, 1, [])
    assert (empty.key, empty.value, empty.partition) == (b"", b"", 1)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, codec: str
) -> None:
    records = [Record(order(number)) for number in range(500)]
    wire.append(topic, build_batch(records, codec=codec))
    assert values(read(spark, broker.bootstrap, topic)) == [order(n) for n in range(500)]


def test_a_range_that_starts_and_ends_inside_of_batches(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str
) -> None:
    for start in range(0, 100, 10):
        write(wire, topic, range(start, start + 10))
    bounds = {"startingOffsets": {topic: {"0": 13}}, "endingOffsets": {topic: {"0": 57}}}
    options = {name: json.dumps(value) for name, value in bounds.items()}
    assert values(read(spark, broker.bootstrap, topic, **options)) == [
        order(n) for n in range(13, 57)
    ]


def test_times(spark: SparkSession, broker: Broker, wire: Wire, topic: str) -> None:
    write(wire, topic, range(100))
    frame = read(
        spark, broker.bootstrap, topic, startingTimestamp=START + 40, endingTimestamp=START + 60
    )
    assert values(frame) == [order(n) for n in range(40, 60)]
    late = read(spark, broker.bootstrap, topic, startingTimestamp=START + 999_999)
    assert values(late) == []


def test_patterns_and_assigned_partitions(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    write(wire, topic, range(3))
    write(wire, topic, range(3, 5), partition=1)
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
    assert reader.option("subscribePattern", f"{topic[:-2]}.*").load().count() == 5
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
    assert values(reader.option("assign", json.dumps({topic: [1]})).load()) == [order(3), order(4)]


def test_min_partitions_cuts_ranges(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str
) -> None:
    write(wire, topic, range(100))
    frame = read(spark, broker.bootstrap, topic, minPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    assert values(frame) == [order(n) for n in range(100)]


def test_typed_columns(spark: SparkSession, broker: Broker, wire: Wire, topic: str) -> None:
    write(wire, topic, range(30))
    schema = f"{ORDER}, _offset bigint, _key string, _topic string, _timestamp timestamp"
    frame = read(spark, broker.bootstrap, topic, schema)
    rows = frame.orderBy("_offset").collect()
    assert [(row.user, row.amount) for row in rows[:2]] == [("u0", 0.0), ("u1", 0.5)]
    assert [row._offset for row in rows] == list(range(30))
    assert rows[7]._key == "7"
    assert rows[7]._topic == topic
    totals = frame.groupBy("user").sum("amount").collect()
    assert sorted(tuple(row) for row in totals) == [("u0", 67.5), ("u1", 72.5), ("u2", 77.5)]


def test_malformed_values_are_rows_with_an_error_or_stop_the_query(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str
) -> None:
    wire.write(topic, [Record(order(0)), Record(b"nonsense"), Record(None), Record(b'{"user": 1}')])
    schema = f"{ORDER}, _value binary, _error string, _offset bigint"
    rows = read(spark, broker.bootstrap, topic, schema).orderBy("_offset").collect()
    assert [row._error is None for row in rows] == [True, False, True, True]
    assert bytes(rows[1]._value) == b"nonsense"
    assert rows[2].user is None
    with pytest.raises(PythonException) as error:
        read(spark, broker.bootstrap, topic, ORDER).count()
    assert "the value at offset 1 does not fit the schema" in str(error.value)
    assert "add the column _error STRING to the schema" in str(error.value)


def test_the_value_itself_is_what_was_written(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str
) -> None:
    wire.write(topic, [Record(b'{"user":\n"a"}'), Record(b"\xff\n"), Record(None)])
    schema = "user string, _value binary, _key string, _error string, _offset bigint"
    found = read(spark, broker.bootstrap, topic, schema).orderBy("_offset").collect()
    assert [row._value for row in found] == [b'{"user":\n"a"}', b"\xff\n", None]
    assert [row.user for row in found] == ["a", None, None]
    text = read(spark, broker.bootstrap, topic, "_value string, _error string").collect()
    assert [row._value for row in text] == ['{"user":\n"a"}', "\ufffd\n", None]


def test_a_topic_that_comes_later_is_read_from_where_it_begins(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic, tmp_path: Path
) -> None:
    first = make_topic()
    write(wire, first, range(3))
    reader = spark.readStream.format("penstock").options(
        **{"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": f"{first[:-2]}.*"},
        startingOffsets="earliest",
        maxOffsetsPerTrigger=5,
        failOnDataLoss="false",
    )
    assert len(run(reader.load(), tmp_path)[0]) == 3
    second = f"{first}-later"
    wire.create_topic(second)
    write(wire, second, range(20))
    wire.call(delete_records(second, 12))
    assert [int(row.key) for row in run(reader.load(), tmp_path)[0]] == list(range(12, 20))
    # One that is gone is not asked for any more.
    wire.call(delete_topic(second))
    write(wire, first, range(3, 5))
    eventually(lambda: wire.metadata(second).error_code or None, "the topic is gone")
    assert [int(row.key) for row in run(reader.load(), tmp_path)[0]] == [3, 4]


def test_aborted_transactions_are_not_seen(
    spark: SparkSession, broker: Broker, topic: str, new_name: Any
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": new_name()})
    producer.init_transactions(30)
    for number, commit in enumerate([True, False, True]):
        producer.begin_transaction()
        for at in range(3):
            producer.produce(topic, b"%d-%d" % (number, at))
        if commit:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    committed = [b"%d-%d" % (number, at) for number in (0, 2) for at in range(3)]
    assert values(read(spark, broker.bootstrap, topic)) == committed
    options = {"kafka.isolation.level": "read_uncommitted"}
    assert len(values(read(spark, broker.bootstrap, topic, **options))) == 9


def test_a_stream_goes_on_where_it_stopped(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2)
    write(wire, topic, range(10))
    write(wire, topic, range(10, 40), partition=1)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
    frame = read_stream(spark, broker.bootstrap, topic, f"{ORDER}, _key string", **options)
    rows, query = run(frame, tmp_path)
    counts = [progress["numInputRows"] for progress in query.recentProgress]
    assert counts == [9, 9, 9, 9, 4]  # shares of ten are rounded down
    assert sorted(int(row._key) for row in rows) == list(range(40))
    write(wire, topic, range(40, 45))
    rows, query = run(frame, tmp_path)
    assert sorted(int(row._key) for row in rows) == list(range(40, 45))
    (source,) = query.lastProgress["sources"]
    assert json.loads(source["endOffset"]) == {topic: {"0": 15, "1": 30}}


def test_a_stream_starts_at_the_end_and_reads_partitions_that_come_later(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    write(wire, topic, range(10))
    frame = read_stream(spark, broker.bootstrap, topic, f"{ORDER}, _key string")
    assert run(frame, tmp_path)[0] == []
    wire.call(create_partitions(topic, 2))
    write(wire, topic, range(10, 13))
    write(wire, topic, range(13, 15), partition=1)
    rows, _ = run(frame, tmp_path)
    assert sorted(int(row._key) for row in rows) == list(range(10, 15))


def test_records_that_are_gone_stop_the_query_unless_told_otherwise(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    write(wire, topic, range(10))
    options: dict[str, Any] = {"startingOffsets": "earliest"}
    run(read_stream(spark, broker.bootstrap, topic, **options), tmp_path)
    write(wire, topic, range(10, 20))
    wire.call(delete_records(topic, 15))
    with pytest.raises(StreamingQueryException) as error:
        run(read_stream(spark, broker.bootstrap, topic, **options), tmp_path)
    assert "partition 0 begins at 15, and 10 was next" in str(error.value)
    assert "set failOnDataLoss to false" in str(error.value)
    options["failOnDataLoss"] = "false"
    rows, _ = run(read_stream(spark, broker.bootstrap, topic, **options), tmp_path)
    assert [int(row.key) for row in rows] == list(range(15, 20))


def make_anew(wire: Wire, topic: str, numbers: range) -> None:
    wire.call(delete_topic(topic))
    eventually(lambda: wire.metadata(topic).error_code or None, "the topic is gone")
    wire.create_topic(topic)
    write(wire, topic, numbers)


def test_a_topic_that_was_made_anew_goes_on_where_it_ends(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    write(wire, topic, range(10))
    options: dict[str, Any] = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 100}
    run(read_stream(spark, broker.bootstrap, topic, **options), tmp_path)
    make_anew(wire, topic, range(100, 104))
    with pytest.raises(StreamingQueryException) as error:
        run(read_stream(spark, broker.bootstrap, topic, **options), tmp_path)
    assert "ends at 4, but 10 was reached; to go on with what is there" in str(error.value)
    options["failOnDataLoss"] = "false"
    assert run(read_stream(spark, broker.bootstrap, topic, **options), tmp_path)[0] == []
    write(wire, topic, range(104, 107))
    options["failOnDataLoss"] = "true"
    rows, _ = run(read_stream(spark, broker.bootstrap, topic, **options), tmp_path)
    assert [int(row.key) for row in rows] == [104, 105, 106]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"topics": "no-such-topic"}, "there is no topic no-such-topic"),
        ({"startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({"schema": "_offset string"}, "declare it bigint"),
        ({"bootstrap": "127.0.0.1:1"}, "connection refused"),
    ],
)
def test_a_mistake_says_what_to_do(
    spark: SparkSession, broker: Broker, topic: str, change: dict[str, str], says: str
) -> None:
    arguments = {"bootstrap": broker.bootstrap, "topics": topic, **change}
    with pytest.raises(PySparkException) as error:
        read(spark, **arguments).count()
    assert says in str(error.value)


def test_stored_as_kafka_stores_it(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str
) -> None:
    """What the source reads is what the protocol says is there."""
    for start in range(0, 300, 7):
        write(wire, topic, range(start, start + 7))
    stored: list[Stored] = wire.stored(topic)
    rows = read(spark, broker.bootstrap, topic).orderBy("offset").collect()
    assert [(row.offset, bytes(row.key), bytes(row.value)) for row in rows] == [
        (one.offset, one.key, one.value) for one in stored
    ]
