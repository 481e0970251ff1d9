"""Clients beside each other: none loses, doubles or reorders, and a slow one hurts nobody."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.clients.brokers import Broker
from tests.clients.contract import DEADLINE, MEBIBYTE, MakeTopic, Record, eventually
from tests.clients.wire import NAMED_FETCH, Wire, fetch_request, read_batches
from tools.kafka import BrokerProcess

from kafka import KafkaProducer

pytestmark = pytest.mark.compat

PARTITIONS = 3
EACH = 30_000


def librdkafka(bootstrap: str, idempotent: bool) -> Any:
    """Small batches and many requests on their way at once."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": idempotent,
            "max.in.flight.requests.per.connection": 5,
            "batch.num.messages": 50,
            "linger.ms": 1,
            "queue.buffering.max.messages": 200_000,
        }
    )


def write_with_librdkafka(bootstrap: str, topic: str, name: str, *, idempotent: bool) -> None:
    producer = librdkafka(bootstrap, idempotent)
    for number in range(EACH):
        producer.produce(topic, f"{name}:{number}".encode(), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(DEADLINE) == 0


def read_with_librdkafka(bootstrap: str, topic: str, partition: int, count: int) -> list[int]:
    """The offsets of the first so many records."""
    config = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    offsets: list[int] = []

    def poll() -> bool | None:
        for message in consumer.consume(count - len(offsets), timeout=1.0):
            assert message.error() is None
            offsets.append(message.offset())
        return len(offsets) == count or None

    with contextlib.closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        eventually(poll, f"{count} records")
    return offsets


def write_with_kafka_python(bootstrap: str, topic: str, name: str) -> None:
    with contextlib.closing(
        KafkaProducer(bootstrap_servers=bootstrap, batch_size=4096, linger_ms=1)
    ) as producer:
        for number in range(EACH // 3):
            producer.send(topic, f"{name}:{number}".encode(), partition=number % PARTITIONS)
        producer.flush(DEADLINE)


def in_parallel(*work: threading.Thread) -> None:
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()


def numbers_by_producer(wire: Wire, topic: str) -> dict[str, list[list[int]]]:
    """For each producer and each partition the numbers that are stored, in their order."""
    found: dict[str, list[list[int]]] = {}
    for partition in range(PARTITIONS):
        for record in wire.stored(topic, partition):
            assert record.value is not None
            name, _, number = record.value.decode().partition(":")
            lists = found.setdefault(name, [[] for _ in range(PARTITIONS)])
            lists[partition].append(int(number))
    return found


@pytest.mark.parametrize("idempotent", [True, False])
def test_two_pipelining_producers(
    broker: Broker, wire: Wire, make_topic: MakeTopic, idempotent: bool
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    in_parallel(
        *(
            threading.Thread(
                target=write_with_librdkafka,
                args=(broker.bootstrap, topic, name),
                kwargs={"idempotent": idempotent},
            )
            for name in ("a", "b")
        )
    )
    expected = [list(range(first, EACH, PARTITIONS)) for first in range(PARTITIONS)]
    assert numbers_by_producer(wire, topic) == {"a": expected, "b": expected}


def test_producers_of_two_kinds(broker: Broker, wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=PARTITIONS)
    in_parallel(
        threading.Thread(
            target=write_with_librdkafka,
            args=(broker.bootstrap, topic, "c"),
            kwargs={"idempotent": True},
        ),
        threading.Thread(target=write_with_kafka_python, args=(broker.bootstrap, topic, "python")),
    )
    found = numbers_by_producer(wire, topic)
    for name, count in (("c", EACH), ("python", EACH // 3)):
        assert found[name] == [list(range(n, count, PARTITIONS)) for n in range(PARTITIONS)]


def test_slow_readers_hurt_nobody(broker: Broker, wire: Wire, make_topic: MakeTopic) -> None:
    """Eight connections ask for 64 MB each and do not read, while others work at full speed."""
    topic = make_topic(partitions=PARTITIONS)
    megabyte = b"x" * 1_000_000
    for number in range(16):
        wire.write(topic, [Record(megabyte + str(number).encode())])
    requests = [[fetch_request(topic, {0: 0}, max_wait_ms=0) for _ in range(4)] for _ in range(8)]
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Wire(broker.bootstrap, receive_buffer=4096)) for _ in requests]
        for connection, wanted in zip(slow, requests, strict=True):
            for request in wanted:
                connection.send(request, NAMED_FETCH)
        others = make_topic(partitions=PARTITIONS)
        write_with_librdkafka(broker.bootstrap, others, "fast", idempotent=True)
        for partition in range(PARTITIONS):
            count = EACH // PARTITIONS
            offsets = read_with_librdkafka(broker.bootstrap, others, partition, count)
            assert offsets == list(range(count))
        # The same partition that the slow ones are reading, too.
        assert read_with_librdkafka(broker.bootstrap, topic, 0, 16) == list(range(16))
        wire.write(topic, [Record(b"still taken")])
        # And in the end the slow ones get what they asked for.
        for connection, wanted in zip(slow[:2], requests[:2], strict=True):
            for request in wanted:
                (partition_answer,) = connection.receive(request).responses[0].partitions
                batches = read_batches(partition_answer.records)
                assert batches[0].base == 0
                assert len(batches) > 10


def test_slow_readers_take_no_memory(broker: Broker, wire: Wire, topic: str) -> None:
    """Forty connections ask for 2.5 GB that they do not read; the broker must not prepare it."""
    for _ in range(16):
        wire.write(topic, [Record(b"x" * 1_000_000)])
    process = BrokerProcess(broker.bootstrap, broker.pid, 0.0)
    before = process.rss_bytes()
    used: list[int] = []
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            slow = stack.enter_context(Wire(broker.bootstrap, receive_buffer=4096))
            for _ in range(4):
                slow.send(fetch_request(topic, {0: 0}, max_wait_ms=0), NAMED_FETCH)
            used.append(process.rss_bytes())
        for number in range(50):
            assert wire.write(topic, [Record(b"still taken")]) == 16 + number
            used.append(process.rss_bytes())
    assert max(used) - before < 512 * MEBIBYTE


def test_slow_writer_hurts_nobody(broker: Broker, wire: Wire, topic: str) -> None:
    """Connections that stop in the middle of a request, and others that go away in one."""
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stuck = stack.enter_context(broker.wire())
            stuck.socket.sendall((1_000_000).to_bytes(4, "big") + bytes(100))
        for _ in range(20):
            with broker.wire() as gone:
                gone.socket.sendall((1_000_000).to_bytes(4, "big") + bytes(100))
        write_with_librdkafka_to_one(broker.bootstrap, topic)
        counts = Counter(record.value for record in wire.stored(topic))
        assert counts == Counter({str(number).encode(): 1 for number in range(1000)})


def write_with_librdkafka_to_one(bootstrap: str, topic: str) -> None:
    producer = librdkafka(bootstrap, idempotent=True)
    for number in range(1000):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(DEADLINE) == 0
