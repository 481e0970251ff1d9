"""A consumer that lives on while its log loses its end: it skips nothing of what comes there."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.serving import serving, steady_port

from penstock.client.topics import create_topic
from penstock.record.batch import headers

TOPIC = "prices"


def produce(bootstrap: str, name: str, count: int) -> None:
    """Records named NAME-0, NAME-1 and so on, each in a batch of its own."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for number in range(count):
        producer.produce(TOPIC, f"{name}-{number}")
    assert producer.flush(30) == 0


def read_until(consumer: Consumer, last: str) -> list[str]:
    """Everything up to a record."""
    seen: list[str] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None or message.error():
            continue  # the broker is not there yet
        seen.append(message.value().decode())
        if seen[-1] == last:
            return seen
    raise AssertionError(f"{last} did not come after {seen}")


def lose_the_end(data: Path, kept: int) -> None:
    """Leave so many batches, as a power failure may where the disk was not waited for."""
    (log,) = (data / "topics" / f"{TOPIC}-0").glob("*.log")
    ends = [position for position, _ in headers(log.read_bytes())]
    with log.open("r+b") as file:
        file.truncate(ends[kept])


def test_a_live_consumer_notices(tmp_path: Path) -> None:
    here = f"127.0.0.1:{steady_port()}"
    consumer = Consumer(
        {
            "bootstrap.servers": here,
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        with serving(tmp_path, kafka=here):
            create_topic(here, TOPIC, partitions=1, configs={"penstock.durability": "os"})
            produce(here, "lost", 100)
            consumer.assign([TopicPartition(TOPIC, 0, 0)])
            assert len(read_until(consumer, "lost-99")) == 100
        lose_the_end(tmp_path / "data", 50)
        # Somewhere else, so that the consumer comes back to a log that is longer than it was.
        with serving(tmp_path) as elsewhere:
            produce(elsewhere.bootstrap, "new", 100)
        with serving(tmp_path, kafka=here):
            seen = read_until(consumer, "new-99")
        assert [name for name in seen if name.startswith("new")] == [f"new-{n}" for n in range(100)]
    finally:
        consumer.close()
