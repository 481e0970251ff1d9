"""Compacted topics, as every client writes and reads them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from tests.clients.brokers import Broker
from tests.clients.contract import DEADLINE, MakeTopic, Record, Stored, eventually
from tests.clients.test_java import TOOLS, Java
from tests.clients.wire import LATEST, Wire
from tools.kafka import java_tool

from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

KEYS = 50
ROUNDS = 40
CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "200",
}
Found = list[tuple[int, bytes | None, bytes | None]]
"""Offset, key and value."""


def write(bootstrap: str, topic: str) -> dict[bytes, bytes | None]:
    """Updates of a few keys, tombstones for some, and what ends the segment; the newest of each."""
    producer: Any = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "batch.num.messages": 30,  # so that batches overlap the rounds
        }
    )
    newest: dict[bytes, bytes | None] = {}

    def put(key: bytes, value: bytes | None) -> None:
        producer.produce(topic, value, key, partition=0)
        newest[key] = value

    put(b"first", b"never changed")
    for number in range(ROUNDS):
        for key in range(KEYS):
            put(b"key-%d" % key, b"value %d" % number)
    for key in range(0, KEYS, 5):
        put(b"key-%d" % key, None)
    assert producer.flush(DEADLINE) == 0
    for number in range(2):
        time.sleep(0.5)  # longer than segment.ms: what comes next begins a segment
        put(b"last-%d" % number, b"x")
        assert producer.flush(DEADLINE) == 0
    return newest


def compacted(wire: Wire, broker: Broker, make_topic: MakeTopic) -> tuple[str, dict[bytes, Any]]:
    """A topic of which only the newest of every key is left."""
    topic = make_topic(configs=CONFIG)
    newest = write(broker.bootstrap, topic)

    def done() -> list[Stored] | None:
        stored = wire.stored(topic)
        return stored if len(stored) == len(newest) else None

    stored = eventually(done, "compaction", 2 * DEADLINE)
    assert {record.key: record.value for record in stored} == newest
    return topic, newest


def with_librdkafka(bootstrap: str, topic: str, end: int) -> Found:
    config = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True}
    found: Found = []
    consumer: Any
    with contextlib.closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(DEADLINE)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                assert message.offset() == end
                return found
            found.append((message.offset(), message.key(), message.value()))


def with_kafka_python(bootstrap: str, topic: str, end: int) -> Found:
    partition = PythonTopicPartition(topic, 0)
    found: Found = []
    consumer: Any
    with contextlib.closing(KafkaConsumer(bootstrap_servers=bootstrap)) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)

        def poll() -> bool | None:
            for records in consumer.poll(timeout_ms=500).values():
                found.extend((record.offset, record.key, record.value) for record in records)
            return consumer.position(partition) >= end or None

        eventually(poll, "the end")
    return found


def with_aiokafka(bootstrap: str, topic: str, end: int) -> Found:
    async def read() -> Found:
        partition = AioTopicPartition(topic, 0)
        found: Found = []
        consumer: Any = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            while await consumer.position(partition) < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found.extend((record.offset, record.key, record.value) for record in records)
        finally:
            await consumer.stop()
        return found

    return asyncio.run(asyncio.wait_for(read(), DEADLINE))


READERS: list[Callable[[str, str, int], Found]] = [
    with_librdkafka,
    with_kafka_python,
    with_aiokafka,
]


@pytest.mark.compat
def test_every_client_reads_the_newest_values(
    wire: Wire, broker: Broker, make_topic: MakeTopic
) -> None:
    topic, newest = compacted(wire, broker, make_topic)
    end = wire.offset(topic, LATEST)
    expected = [(record.offset, record.key, record.value) for record in wire.stored(topic)]
    assert len(expected) == len(newest)
    for read in READERS:
        assert read(broker.bootstrap, topic, end) == expected, read.__name__
    lines = Java(broker.bootstrap).consume(topic, len(expected))
    assert [line[1] for line in lines] == [f"Offset:{offset}" for offset, _, _ in expected]


@pytest.mark.compat
def test_readers_may_start_where_nothing_is_left(
    wire: Wire, broker: Broker, make_topic: MakeTopic
) -> None:
    topic, _ = compacted(wire, broker, make_topic)
    stored = wire.stored(topic)
    assert stored[1].offset > stored[0].offset + 1
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "unused"}
    consumer: Any
    with contextlib.closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, stored[0].offset + 1)])
        message = consumer.poll(DEADLINE)
        assert message is not None
        assert message.error() is None
        assert message.offset() == stored[1].offset


@pytest.mark.compat
def test_dump_reads_what_is_left(
    wire: Wire, broker: Broker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Kafka's own tool on compacted segments; tombstones have their horizon as Kafka writes it."""
    topic, newest = compacted(wire, broker, make_topic)
    offsets: list[int] = []
    horizons = 0
    for segment in eventually(partial(copied, broker, topic, tmp_path), "a quiet moment"):
        done = java_tool(f"{TOOLS}.DumpLogSegments", "--files", str(segment), "--deep-iteration")
        assert not re.search("mismatch|corrupt|Exception|isvalid: false", done.stdout, re.I)
        offsets += [int(number) for number in re.findall(r"^\| offset: (\d+)", done.stdout, re.M)]
        horizons += len(re.findall(r"deleteHorizonMs: OptionalLong\[", done.stdout))
        index = segment.with_suffix(".index")
        java_tool(f"{TOOLS}.DumpLogSegments", "--files", str(index), "--index-sanity-check")
    assert len(offsets) == len(newest)
    assert horizons > 0


def copied(broker: Broker, topic: str, folder: Path) -> list[Path] | None:
    """The segments with their indexes, aside; None while a pass is under way."""
    segments = broker.segments(topic)
    if any(path.suffix in (".cleaned", ".swap") for path in segments[0].parent.iterdir()):
        return None
    copies: list[Path] = []
    try:
        for segment in segments:
            copies.append(Path(shutil.copy2(segment, folder)))
            index = segment.with_suffix(".index")
            if index.exists():
                shutil.copy2(index, folder)
            else:
                copies[-1].with_suffix(".index").touch()  # the active segment's is not written yet
        same = [s.stat().st_mtime for s in segments] == [c.stat().st_mtime for c in copies]
    except FileNotFoundError:
        return None
    return copies if same and segments == broker.segments(topic) else None


@pytest.mark.compat
def test_tombstones_go_in_the_end(wire: Wire, broker: Broker, make_topic: MakeTopic) -> None:
    """The first pass lets them live for delete.retention.ms, a later one removes them."""
    topic = make_topic(configs=CONFIG | {"delete.retention.ms": "100"})
    newest = write(broker.bootstrap, topic)
    alive = {key for key, value in newest.items() if value is not None} | {b"tick"}

    def done() -> bool | None:
        time.sleep(0.5)
        # Kafka makes a pass only when there is something new.
        wire.write(topic, [Record(b"x", b"tick")])
        return {record.key for record in wire.stored(topic)} == alive or None

    eventually(done, "no tombstones", 3 * DEADLINE)


NOT_OURS = {b"tick", b"\0\0\0\0", b"\0\0\0\1"}
"""What keeps Kafka awake, and the markers that end transactions."""


def write_transactions(bootstrap: str, topic: str) -> dict[bytes, bytes]:
    """Committed and aborted transactions in turn over the same keys; the newest that counts of each."""
    producer: Any = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"writer-of-{topic}"}
    )
    producer.init_transactions(DEADLINE)
    newest: dict[bytes, bytes] = {}

    def transaction(values: dict[bytes, bytes], *, commit: bool) -> None:
        producer.begin_transaction()
        for key, value in values.items():
            producer.produce(topic, value, key, partition=0)
        if commit:
            producer.commit_transaction(DEADLINE)
            newest.update(values)
        else:
            assert producer.flush(DEADLINE) == 0  # so that they are in the log
            producer.abort_transaction(DEADLINE)

    for number in range(10):
        keys = [b"key-%d" % (key % 7) for key in range(number, number + 5)]
        transaction({key: b"good %d" % number for key in keys}, commit=True)
        transaction({key: b"bad %d" % number for key in [*keys, b"never"]}, commit=False)
    for number in range(3):
        time.sleep(0.5)  # longer than segment.ms: what comes next begins a segment
        transaction({b"last-%d" % number: b"x"}, commit=True)
    return newest


@pytest.mark.compat
def test_transactions_leave_what_they_committed(
    wire: Wire, broker: Broker, make_topic: MakeTopic
) -> None:
    """Aborted records are gone from the log, and what readers of committed records see is right."""
    topic = make_topic(configs=CONFIG | {"delete.retention.ms": "100"})
    newest = write_transactions(broker.bootstrap, topic)
    values = set(newest.items())

    def done() -> bool | None:
        time.sleep(0.5)
        # Kafka makes a pass only when there is something new.
        wire.write(topic, [Record(b"x", b"tick")])
        stored = [(r.key, r.value) for r in wire.stored(topic) if r.key not in NOT_OURS]
        return (len(stored) == len(values) and set(stored) == values) or None

    eventually(done, "nothing that was aborted or replaced", 3 * DEADLINE)
    end = wire.offset(topic, LATEST)
    for read in READERS:
        found = {key: value for _, key, value in read(broker.bootstrap, topic, end)}
        assert {key: found[key] for key in newest} == newest, read.__name__
    # The producer's next transaction is not taken for one of those that are gone.
    newest |= write_transactions(broker.bootstrap, topic)
    found = {r.key: r.value for r in committed(broker.bootstrap, topic)}
    assert {key: found[key] for key in newest} == newest


def committed(bootstrap: str, topic: str) -> list[Record]:
    """What a reader of committed records sees."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    found: list[Record] = []
    consumer: Any
    with contextlib.closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(DEADLINE)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                return found
            found.append(Record(message.value(), message.key()))
