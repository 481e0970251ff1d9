"""A query that copies a topic is killed at every step of a batch: the copy has every record once.

To another topic, and to a table of SQLite.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.fault.spark_copier import TABLE_POINTS, TOPIC_POINTS

from penstock.client.topics import create_topic
from penstock.testing import RunningBroker, broker

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


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    """A broker with a topic to copy."""
    with broker() as started:
        create_topic(started.bootstrap, "source", partitions=2)
        producer = Producer({"bootstrap.servers": started.bootstrap})
        for number in range(RECORDS):
            producer.produce("source", b"%d" % number, b"k%d" % (number % 50))
        producer.flush()
        yield started


def killed_at_every(
    points: Sequence[str], running: RunningBroker, target: str, folder: Path
) -> None:
    checkpoint = str(folder / "checkpoint")
    ended = {point: run(running.bootstrap, "source", target, checkpoint, point) for point in points}
    # Otherwise the points were not reached, and nothing was tested.
    assert ended == {point: 0 if point == "none" else CRASH for point in points}


def test_a_topic_has_every_record_once(running: RunningBroker, tmp_path: Path) -> None:
    create_topic(running.bootstrap, "target", partitions=PARTITIONS)
    killed_at_every(TOPIC_POINTS, running, "target", tmp_path)
    assert everything(running.bootstrap, "target") == list(range(RECORDS))


def test_a_table_has_every_record_once(running: RunningBroker, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    killed_at_every(TABLE_POINTS, running, str(path), tmp_path)
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT value FROM copy").fetchall()
    assert sorted(int(value) for (value,) in found) == list(range(RECORDS))
