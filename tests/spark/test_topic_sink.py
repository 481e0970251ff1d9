"""Batches to topics: each exactly once, whatever fails."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kafka.partitioner.default import murmur2
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from tests.clients.brokers import Broker
from tests.clients.contract import MakeTopic, Record, eventually
from tests.clients.wire import Wire

from penstock.client.fencing import FencedError
from penstock.client.transactional import BatchWriter, Transaction
from penstock.errors import ConflictError, NotFoundError, UsageError
from penstock.spark import TopicSink, read, read_stream, write_stream
from penstock.spark.sinks.replays import begin_batch


def fill(wire: Wire, topic: str, numbers: range, *, partition: int = 0) -> None:
    wire.write(topic, [Record(b"%d" % n, b"k%d" % (n % 7)) for n in numbers], partition=partition)


def copy(
    spark: SparkSession, broker: Broker, source: str, target: str, folder: Path, **options: Any
) -> None:
    """Copy what there is, with the key, and end."""
    frame = read_stream(
        spark, broker.bootstrap, source, startingOffsets="earliest", **options
    ).select("key", "value")
    query = write_stream(
        frame,
        TopicSink(broker.bootstrap, target),
        checkpoint=str(folder),
        trigger={"availableNow": True},
    )
    query.awaitTermination()


def rows(spark: SparkSession, broker: Broker, topic: str) -> list[Row]:
    with Wire(broker.bootstrap) as wire:
        for partition in wire.metadata(topic).partitions:
            _decided(wire, topic, partition.partition_index)
    found = read(spark, broker.bootstrap, topic).orderBy("partition", "offset").collect()
    return list(found)


def _decided(wire: Wire, topic: str, partition: int) -> None:
    """A Kafka answers a commit before everybody can read what it committed."""

    def is_decided() -> bool | None:
        found = wire.fetch(topic, 0, partition=partition)
        return found.last_stable_offset == found.high_watermark or None

    eventually(is_decided, "the transaction is committed")


def numbers(spark: SparkSession, broker: Broker, topic: str) -> list[int]:
    return sorted(int(row.value) for row in rows(spark, broker, topic))


def test_a_copy_keeps_keys_in_their_order_and_where_clients_put_them(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(2), make_topic(3)
    fill(wire, source, range(500))
    copy(spark, broker, source, target, tmp_path, maxOffsetsPerTrigger=200)
    fill(wire, source, range(500, 600))
    copy(spark, broker, source, target, tmp_path)
    found = rows(spark, broker, target)
    by_key: dict[bytes, list[int]] = {}
    for row in found:
        by_key.setdefault(bytes(row.key), []).append(int(row.value))
        assert row.partition == (murmur2(bytes(row.key)) & 0x7FFFFFFF) % 3
    assert by_key == {b"k%d" % k: [n for n in range(600) if n % 7 == k] for k in range(7)}


def test_a_batch_that_spark_runs_again_is_not_written_again(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(), make_topic(2)
    fill(wire, source, range(100))
    copy(spark, broker, source, target, tmp_path, maxOffsetsPerTrigger=40)
    # As if Spark had died after the sink's commit and before its own.
    last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    fill(wire, source, range(100, 120))
    copy(spark, broker, source, target, tmp_path)
    assert numbers(spark, broker, target) == list(range(120))


@pytest.mark.parametrize("at", ["rows", "marker", "commit"])
def test_a_failure_aborts_the_batch_and_it_is_tried_again(
    spark: SparkSession,
    broker: Broker,
    wire: Wire,
    make_topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
) -> None:
    source, target = make_topic(), make_topic(2)
    fill(wire, source, range(50))
    failures = iter([True, True, False])

    def break_after(kind: type, method: str, wanted: Any) -> None:
        real = getattr(kind, method)

        def broken(self: Any, *args: Any, **named: Any) -> Any:
            done = real(self, *args, **named)
            if wanted(args, named) and next(failures, False):
                raise ConnectionError("broken on purpose")
            return done

        monkeypatch.setattr(kind, method, broken)

    if at == "rows":
        break_after(TopicSink, "_write_rows", lambda args, named: True)
    elif at == "marker":
        break_after(BatchWriter, "write", lambda args, named: True)
    else:
        break_after(Transaction, "end", lambda args, named: named["commit"])
    copy(spark, broker, source, target, tmp_path)
    assert numbers(spark, broker, target) == list(range(50))
    everything = read(
        spark, broker.bootstrap, target, **{"kafka.isolation.level": "read_uncommitted"}
    )
    tries = Counter(int(row.value) for row in everything.collect())
    assert set(tries.values()) == {1 if at == "commit" else 3}


def test_who_takes_a_query_over_fences_the_one_that_runs_it(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic
) -> None:
    target = make_topic()
    frame = spark.createDataFrame([(b"1",)], "value binary")
    first, second = (TopicSink(broker.bootstrap, target) for _ in range(2))
    first.prepare(frame)
    real = first._write_rows

    def overtaken(batch: DataFrame, partitions: int, ticket: Any) -> None:
        real(batch, partitions, ticket)
        second.write(frame, 0, "query")

    first._write_rows = overtaken  # type: ignore[method-assign]
    with pytest.raises(FencedError):
        first.write(frame, 0, "query")
    assert numbers(spark, broker, target) == [1]


def test_who_was_overtaken_does_not_write_what_the_other_has_written(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    """Also where it is not told that it was fenced, because Spark has an error of its own for it."""
    target = make_topic()
    frames = [spark.createDataFrame([(b"%d" % n,)], "value binary") for n in range(2)]
    first, second = (TopicSink(broker.bootstrap, target) for _ in range(2))
    first.prepare(frames[0])
    first.write(frames[0], 0, "query")
    overtaken = iter([True])
    real = first._write_rows

    def slow(batch: DataFrame, partitions: int, ticket: Any) -> None:
        if next(overtaken, False):
            second.write(frames[1], 1, "query")
            raise RuntimeError("a task failed")
        real(batch, partitions, ticket)

    first._write_rows = slow  # type: ignore[method-assign]
    first.write(frames[1], 1, "query")
    assert numbers(spark, broker, target) == [0, 1]


def test_a_checkpoint_that_went_back_is_an_error(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    sink = TopicSink(broker.bootstrap, make_topic())
    frame = spark.createDataFrame([(b"1",)], "value binary")
    sink.prepare(frame)
    sink.write(frame, 5, "query")
    with pytest.raises(ConflictError, match="batch 5 has been written, and this is batch 4"):
        sink.write(frame, 4, "query")
    begin_batch(ran_before=False)
    with pytest.raises(ConflictError, match="its plan is not in the checkpoint"):
        sink.write(frame, 5, "query")
    begin_batch(ran_before=True)
    sink.write(frame, 5, "query")


def test_records_that_fit_alone_fit_together(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    target = make_topic()
    values = [bytearray(b"x" * 500_000), bytearray(b"y" * 600_000)]
    frame = spark.createDataFrame([(value,) for value in values], "value binary")
    sink = TopicSink(broker.bootstrap, target)
    sink.prepare(frame)
    sink.write(frame, 0, "large")
    assert sorted(len(row.value) for row in rows(spark, broker, target)) == [500_000, 600_000]


def test_columns_become_json_and_a_key(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    target = make_topic()
    frame = spark.createDataFrame([("a", 1.5)], "user string, amount double")
    sink = TopicSink(broker.bootstrap, target, key="user")
    sink.prepare(frame)
    sink.write(frame, 0, "json")
    (row,) = rows(spark, broker, target)
    assert (bytes(row.key), bytes(row.value)) == (b"a", b'{"user":"a","amount":1.5}')


def test_partition_and_timestamp_can_be_chosen(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    target = make_topic(4)
    frame = spark.range(8).select(
        sql.col("id").cast("string").alias("value"),
        (sql.col("id") % 4).cast("int").alias("partition"),
        sql.current_timestamp().alias("timestamp"),
    )
    sink = TopicSink(broker.bootstrap, target)
    sink.prepare(frame)
    sink.write(frame, 0, "chosen")
    found = rows(spark, broker, target)
    assert sorted((row.partition, int(row.value)) for row in found) == sorted(
        (n % 4, n) for n in range(8)
    )
    assert len({row.timestamp for row in found}) == 1


def test_what_would_stop_a_query_is_said_before_it_starts(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    frame = spark.createDataFrame([(1,)], "value int")
    with pytest.raises(NotFoundError, match="there is no topic nowhere"):
        TopicSink(broker.bootstrap, "nowhere").prepare(frame)
    with pytest.raises(UsageError, match="value is int; make it binary or string"):
        TopicSink(broker.bootstrap, topic).prepare(frame)
    with pytest.raises(UsageError, match="there is no column user for the key"):
        TopicSink(broker.bootstrap, topic, key="user").prepare(frame)
