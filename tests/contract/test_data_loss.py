"""The source in Spark when topics lose what it was to read: its reader, asked as Spark asks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from penstock.client.cluster import Place
from penstock.spark import fetching
from penstock.spark.positions import DataLossError, limited
from penstock.spark.source import PenstockSource, StreamReader
from penstock.testing import RunningBroker

LIMITS = [ReadAllAvailable(), ReadMaxRows(100)]


@dataclass
class Topics:
    bootstrap: str
    readers: list[StreamReader] = field(default_factory=list)

    def make(self, name: str, keys: range) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, 1)])[name].result()
        self.write(name, keys)

    def write(self, name: str, keys: range) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for key in keys:
            producer.produce(name, b"", b"%d" % key)
        producer.flush()

    def drop(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([name])[name].result()

    def reader(self, *, fail: bool) -> StreamReader:
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": "goes,stays",
            "startingOffsets": "earliest",
            "failOnDataLoss": str(fail).lower(),
        }
        source = PenstockSource(options)
        reader = source.streamReader(source.schema())
        assert isinstance(reader, StreamReader)
        self.readers.append(reader)
        return reader

    def close(self) -> None:
        """Those of Spark live as long as their processes."""
        for reader in self.readers:
            planner = reader._planner
            planner.positions._cluster.close()
            options = planner.options
            fetching._cluster(options.bootstrap, options.committed, options.security).close()


def keys_of(reader: StreamReader, start: Any, end: Any) -> list[int]:
    batches = [batch for one in reader.partitions(start, end) for batch in reader.read(one)]
    return [int(key) for batch in batches for key in batch.column("key").to_pylist()]


@pytest.fixture
def topics(penstock_broker: RunningBroker) -> Iterator[Topics]:
    made = Topics(penstock_broker.bootstrap)
    made.make("goes", range(10))
    made.make("stays", range(50, 52))
    yield made
    made.close()


@pytest.mark.parametrize("limit", LIMITS, ids=["all", "some"])
def test_a_topic_that_was_made_anew_goes_on_where_it_ends(topics: Topics, limit: ReadLimit) -> None:
    first = topics.reader(fail=True)
    end = first.latestOffset(first.initialOffset(), limit)
    topics.drop("goes")
    topics.make("goes", range(100, 104))
    with pytest.raises(DataLossError, match=r"ends at 4, but 10 was reached; .*failOnDataLoss"):
        topics.reader(fail=True).latestOffset(end, limit)
    tolerant = topics.reader(fail=False)
    after = tolerant.latestOffset(end, limit)
    assert after == {"goes": {"0": 4}, "stays": {"0": 2}}
    assert keys_of(tolerant, end, after) == []
    topics.write("goes", range(104, 107))
    strict = topics.reader(fail=True)
    assert keys_of(strict, after, strict.latestOffset(after, limit)) == [104, 105, 106]


def test_a_batch_that_was_planned_for_a_longer_topic_reads_what_is_there(topics: Topics) -> None:
    first = topics.reader(fail=True)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    topics.drop("goes")
    topics.make("goes", range(100, 104))
    with pytest.raises(
        DataLossError, match=r"ends at 4, and was to be read up to 10; .*failOnData"
    ):
        keys_of(topics.reader(fail=True), start, end)
    assert keys_of(topics.reader(fail=False), start, end) == [100, 101, 102, 103, 50, 51]


def test_a_topic_that_is_gone_is_left_out(topics: Topics) -> None:
    first = topics.reader(fail=True)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    planned = [first.partitions(start, end), topics.reader(fail=False).partitions(start, end)]
    topics.drop("goes")
    topics.write("stays", range(52, 54))
    strict, tolerant = topics.reader(fail=True), topics.reader(fail=False)
    with pytest.raises(DataLossError, match="goes partition 0 is gone; it was read up to 10"):
        strict.latestOffset(end, ReadAllAvailable())
    with pytest.raises(DataLossError, match="goes partition 0 is gone; it was to be read up to 10"):
        keys_of(strict, start, end)
    # Gone between the plan and the task.
    with pytest.raises(DataLossError, match="goes partition 0 is gone; it was to be read up to 10"):
        [*strict.read(planned[0][0])]
    assert [*tolerant.read(planned[1][0])] == []
    assert keys_of(tolerant, start, end) == [50, 51]
    after = tolerant.latestOffset(end, ReadAllAvailable())
    assert keys_of(tolerant, end, after) == [52, 53]


def test_a_small_batch_goes_back_as_well() -> None:
    anew, other = Place("goes", 0), Place("stays", 0)
    ends = limited({anew: 100, other: 0}, {anew: 20, other: 50}, 10)
    assert ends == {anew: 20, other: 10}
