"""A query that copies a topic is killed at every step of a batch: the copy has every record once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.fault.spark_copier import POINTS

from penstock.client.topics import create_topic
from penstock.testing import broker

pytestmark = pytest.mark.fault
RECORDS = 1000
PARTITIONS = 3
CRASH = -9


def run(*arguments: str) -> int:
    """Run the copier to its end, whichever that is, and everything it started; the exit status."""
    script = Path(__file__).with_name("spark_copier.py")
    command = [sys.executable, str(script), *arguments]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        timeout=240,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode in (0, CRASH), done.stderr.decode()[-3000:]
    return done.returncode


def everything(bootstrap: str, topic: str) -> list[int]:
    """What a reader of committed records sees of a topic, with duplicates."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[int] = []
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(int(message.value()))
    consumer.close()
    return sorted(found)


def test_a_query_killed_at_every_step_writes_every_record_once(tmp_path: Path) -> None:
    with broker() as running:
        create_topic(running.bootstrap, "source", partitions=2)
        create_topic(running.bootstrap, "target", partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(RECORDS):
            producer.produce("source", b"%d" % number, b"k%d" % (number % 50))
        producer.flush()
        ended = {
            point: run(running.bootstrap, "source", "target", str(tmp_path / "checkpoint"), point)
            for point in POINTS
        }
        # Otherwise the points were not reached, and nothing was tested.
        assert ended == {point: 0 if point == "none" else CRASH for point in POINTS}
        assert everything(running.bootstrap, "target") == list(range(RECORDS))
