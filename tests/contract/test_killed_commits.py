"""A commit that was answered is there after kill -9, although no disk was waited for."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.serving import Serving, steady_port

from penstock.client.topics import create_topic

KILLS = 5
COMMITS = 200


def test_answered_commits_survive_the_broker(tmp_path: Path) -> None:
    bootstrap = f"127.0.0.1:{steady_port()}"
    broker = Serving(tmp_path / "data", tmp_path / "log", kafka=bootstrap).wait_ready()
    create_topic(bootstrap, "orders", partitions=1)
    # What is committed must be there: a start sets groups back that stand beyond the end.
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range((KILLS + 1) * COMMITS):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    try:
        for kill in range(1, KILLS + 1):
            for offset in range(kill * COMMITS, (kill + 1) * COMMITS):
                place = TopicPartition("orders", 0, offset)
                consumer.commit(offsets=[place], asynchronous=False)
            broker.kill()
            broker = Serving(tmp_path / "data", tmp_path / "log", kafka=bootstrap).wait_ready()
            (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=30)
            assert found.offset == offset
    finally:
        consumer.close()
        broker.kill()
