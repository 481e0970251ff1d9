"""Spark's own Kafka connector: batches and streams, from topics and to topics."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients import admin_requests as admin
from tests.clients.brokers import Broker
from tests.clients.contract import MakeTopic, NewName, Record
from tests.clients.test_transactions import confluent, send
from tests.clients.wire import Wire
from tools.jars import PeerError
from tools.spark import Spark, running_spark

HOUR_MS = 3_600_000


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    with running_spark(tmp_path_factory.mktemp("spark")) as running:
        yield running


class Connector:
    """Spark, pointed at a broker."""

    def __init__(self, spark: Spark, broker: Broker) -> None:
        self.spark = spark
        self.broker = {"kafka.bootstrap.servers": broker.bootstrap}

    def write(self, records: list[dict[str, Any]], **options: str) -> None:
        self.spark.do("write", records=records, options=self.broker | options)

    def read(self, **options: str) -> list[dict[str, Any]]:
        read = self.spark.do("read", options=self.broker | options)
        assert isinstance(read, list)
        return read

    def values(self, **options: str) -> list[str]:
        return [record["value"] for record in self.read(**options)]

    def stream(self, checkpoint: Path, to: str, **options: str) -> list[int]:
        """The sizes of the batches that it took."""
        source = self.broker | {"startingOffsets": "earliest"} | options
        sink = self.broker | {"topic": to}
        sizes = self.spark.do("stream", source=source, sink=sink, checkpoint=str(checkpoint))
        assert isinstance(sizes, list)
        return sizes


@pytest.fixture
def connector(spark: Spark, broker: Broker) -> Connector:
    return Connector(spark, broker)


def records(topic: str, *values: str, **more: Any) -> list[dict[str, Any]]:
    return [{"topic": topic, "value": value} | more for value in values]


def stored(wire: Wire, topic: str, partition: int = 0) -> list[str]:
    return [(record.value or b"").decode() for record in wire.stored(topic, partition)]


def test_smoke(connector: Connector, wire: Wire, make_topic: MakeTopic, tmp_path: Path) -> None:
    """Write a batch, read it, stream it on; then stream only what is new."""
    source, sink = make_topic(), make_topic()
    connector.write(records(source, "a", "b", key="k"))
    assert [(one["key"], one["value"]) for one in connector.read(subscribe=source)] == [
        ("k", "a"),
        ("k", "b"),
    ]
    assert sum(connector.stream(tmp_path, sink, subscribe=source)) == 2
    connector.write(records(source, "c"))
    assert sum(connector.stream(tmp_path, sink, subscribe=source)) == 1
    assert stored(wire, sink) == ["a", "b", "c"]


@pytest.mark.compat
class TestBatch:
    def test_everything_of_a_record(
        self, connector: Connector, wire: Wire, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(partitions=2)
        headers = [["one", "1"], ["one", "2"], ["none", None]]
        whole = {"topic": topic, "partition": 1, "key": "k", "value": "v", "headers": headers}
        bare = {"topic": topic, "partition": 0, "key": None, "value": None}
        before = int(time.time() * 1000)
        connector.write([whole, bare], includeHeaders="true")
        (kept,) = wire.stored(topic, 1)
        assert kept.content == (b"k", b"v", (("one", b"1"), ("one", b"2"), ("none", None)))
        first, second = connector.read(subscribe=topic, includeHeaders="true")
        assert before <= first["timestamp"] <= time.time() * 1000
        assert first == bare | {"offset": 0, "headers": [], "timestamp": first["timestamp"]}
        assert second == whole | {"offset": 0, "timestamp": second["timestamp"]}

    def test_a_pattern(self, connector: Connector, wire: Wire, new_name: NewName) -> None:
        prefix = new_name()
        for name in (f"{prefix}-a", f"{prefix}-b", f"other-{prefix}"):
            wire.create_topic(name)
            wire.write(name, [Record(name.encode())])
        assert connector.values(subscribePattern=f"{prefix}-.*") == [f"{prefix}-a", f"{prefix}-b"]

    def test_from_offset_to_offset(
        self, connector: Connector, wire: Wire, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(partitions=2)
        for partition in range(2):
            values = [Record(f"{partition}-{number}".encode()) for number in range(10)]
            wire.write(topic, values, partition=partition)
        found = connector.values(
            assign=json.dumps({topic: [0, 1]}),
            startingOffsets=json.dumps({topic: {"0": 7, "1": -2}}),
            endingOffsets=json.dumps({topic: {"0": -1, "1": 2}}),
        )
        assert found == ["0-7", "0-8", "0-9", "1-0", "1-1"]

    def test_from_a_time_on(self, connector: Connector, wire: Wire, topic: str) -> None:
        now = int(time.time() * 1000)
        hours = [Record(str(n).encode(), timestamp=now - (9 - n) * HOUR_MS) for n in range(10)]
        wire.write(topic, hours)
        moment = now - 3 * HOUR_MS - HOUR_MS // 2
        by_topic = json.dumps({topic: {"0": moment}})
        assert connector.values(subscribe=topic, startingTimestamp=str(moment)) == list("6789")
        assert connector.values(subscribe=topic, endingTimestamp=str(moment)) == list("012345")
        found = connector.values(subscribe=topic, startingOffsetsByTimestamp=by_topic)
        assert found == list("6789")

    def test_in_pieces(self, connector: Connector, wire: Wire, topic: str) -> None:
        """One partition is read by several tasks at once, each from its own offset."""
        values = [str(number) for number in range(1000)]
        wire.write(topic, [Record(value.encode()) for value in values])
        assert connector.values(subscribe=topic, minPartitions="4") == values

    def test_only_what_is_committed(
        self, connector: Connector, broker: Broker, topic: str, new_name: NewName
    ) -> None:
        producer = confluent(broker, new_name())
        for value, end in (
            (b"kept", producer.commit_transaction),
            (b"gone", producer.abort_transaction),
        ):
            producer.begin_transaction()
            send(producer, topic, value)
            end(30)
        committed = {"kafka.isolation.level": "read_committed"}
        assert connector.values(subscribe=topic, **committed) == ["kept"]
        assert connector.values(subscribe=topic) == ["kept", "gone"]

    def test_large_and_compressed(self, connector: Connector, wire: Wire, topic: str) -> None:
        values = [f"{number:06}" * 2000 for number in range(200)]
        connector.write(records(topic, *values), **{"kafka.compression.type": "zstd"})
        assert {batch.codec for batch in wire.batches(topic)} == {"zstd"}
        assert connector.values(subscribe=topic) == values

    def test_a_topic_that_is_not_there(self, connector: Connector, new_name: NewName) -> None:
        with pytest.raises(PeerError, match="UnknownTopicOrPartition"):
            connector.read(assign=json.dumps({new_name(): [0]}))


@pytest.mark.compat
class TestStream:
    def test_a_pattern_with_a_topic_that_comes_later(
        self, connector: Connector, wire: Wire, new_name: NewName, tmp_path: Path
    ) -> None:
        prefix = new_name()
        sink = f"to-{prefix}"
        for name in (sink, f"{prefix}-1"):
            wire.create_topic(name)
        connector.write(records(f"{prefix}-1", "a", "b"))
        assert connector.stream(tmp_path, sink, subscribePattern=f"{prefix}-.*") == [2]
        wire.create_topic(f"{prefix}-2")
        connector.write([*records(f"{prefix}-1", "c"), *records(f"{prefix}-2", "d")])
        assert connector.stream(tmp_path, sink, subscribePattern=f"{prefix}-.*") == [2]
        assert stored(wire, sink)[:2] == ["a", "b"]
        assert sorted(stored(wire, sink)[2:]) == ["c", "d"]  # of two partitions, in any order

    def test_in_batches_of_a_size_with_headers(
        self, connector: Connector, wire: Wire, make_topic: MakeTopic, tmp_path: Path
    ) -> None:
        source, sink = make_topic(partitions=2), make_topic()
        for partition in range(2):
            wire.write(source, [Record(b"x", b"k", (("h", b"1"),))] * 50, partition=partition)
        options = {"maxOffsetsPerTrigger": "30", "includeHeaders": "true"}
        assert connector.stream(tmp_path, sink, subscribe=source, **options) == [30, 30, 30, 10]
        assert {one.content for one in wire.stored(sink)} == {(b"k", b"x", (("h", b"1"),))}

    def test_from_a_time_on(
        self, connector: Connector, wire: Wire, make_topic: MakeTopic, tmp_path: Path
    ) -> None:
        source, sink = make_topic(), make_topic()
        now = int(time.time() * 1000)
        hours = [Record(str(n).encode(), timestamp=now - (9 - n) * HOUR_MS) for n in range(10)]
        wire.write(source, hours)
        moment = json.dumps({source: {"0": now - 3 * HOUR_MS - HOUR_MS // 2}})
        connector.stream(tmp_path, sink, subscribe=source, startingOffsetsByTimestamp=moment)
        assert stored(wire, sink) == list("6789")

    def test_only_what_is_committed(
        self,
        connector: Connector,
        broker: Broker,
        wire: Wire,
        make_topic: MakeTopic,
        new_name: NewName,
        tmp_path: Path,
    ) -> None:
        """An open transaction holds the stream up; when it is committed, the stream goes on."""
        source, sink = make_topic(), make_topic()
        producer = confluent(broker, new_name())
        producer.begin_transaction()
        send(producer, source, b"aborted")
        producer.abort_transaction(30)
        producer.begin_transaction()
        send(producer, source, b"kept")
        options = {"subscribe": source, "kafka.isolation.level": "read_committed"}
        connector.stream(tmp_path, sink, **options)
        assert stored(wire, sink) == []
        producer.commit_transaction(30)
        connector.stream(tmp_path, sink, **options)
        assert stored(wire, sink) == ["kept"]

    def test_records_that_were_deleted_meanwhile(
        self, connector: Connector, wire: Wire, make_topic: MakeTopic, tmp_path: Path
    ) -> None:
        """It stops and says so, unless it was told not to mind."""
        source, sink = make_topic(), make_topic()
        connector.write(records(source, "a"))
        connector.stream(tmp_path, sink, subscribe=source)
        connector.write(records(source, "b", "c"))
        wire.call(admin.delete_records(source, 2))
        with pytest.raises(PeerError, match="failOnDataLoss"):
            connector.stream(tmp_path, sink, subscribe=source)
        connector.stream(tmp_path, sink, subscribe=source, failOnDataLoss="false")
        assert stored(wire, sink) == ["a", "c"]
