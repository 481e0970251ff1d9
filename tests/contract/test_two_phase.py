"""A database and the log written to as one: both or neither, whoever dies when."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support import both
from tests.support.applying import connect
from tests.support.both import DECIDED, NAME, PARTITIONS, STARTING, TOPIC, WRITING
from tests.support.serving import Serving, steady_port

from penstock.client.connection import admin
from penstock.errors import NotFoundError, UsageError
from penstock.testing import broker as running_broker
from penstock.testing.running import RunningBroker
from penstock.twophase import FencedError, TwoPhaseProducer, Writer


def create_topic(bootstrap: str) -> None:
    with admin(bootstrap, "create") as client:
        client.create_topics({TOPIC: {"num_partitions": PARTITIONS}})


@pytest.fixture
def bootstrap(penstock_broker: RunningBroker) -> str:
    create_topic(penstock_broker.bootstrap)
    return penstock_broker.bootstrap


@pytest.fixture
def connection(database: str) -> Iterator[Any]:
    found = connect(database)
    both.create(found)
    yield found
    found.close()


def seen(bootstrap: str, partition: int, topic: str = TOPIC) -> list[int]:
    """What a reader of committed records finds up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[int] = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            assert message.error().name() == "_PARTITION_EOF"
            consumer.close()
            return values
        values.append(int(message.value()))


def rows(connection: Any) -> list[int]:
    found = connection.execute("SELECT number FROM numbers").fetchall()
    connection.commit()
    return sorted(int(number) for (number,) in found)


def write(writer: Writer, connection: Any, number: int) -> None:
    mark = "?" if type(connection).__module__ == "sqlite3" else "%s"
    both.write(writer, connection, mark, number)


# -- the writer


def test_both_or_neither(bootstrap: str, connection: Any) -> None:
    with Writer(connection, name=NAME, bootstrap=bootstrap) as writer:
        write(writer, connection, 1)
        with pytest.raises(ZeroDivisionError), writer.transaction():
            connection.execute("INSERT INTO numbers VALUES (2)")
            writer.send(TOPIC, b"2", partition=0)
            1 / 0  # noqa: B018
        with pytest.raises(NotFoundError), writer.transaction():
            connection.execute("INSERT INTO numbers VALUES (3)")
            writer.send("no-such-topic", b"3")
        with writer.transaction():
            connection.execute("INSERT INTO numbers VALUES (4)")
        write(writer, connection, 5)
    assert rows(connection) == [1, 4, 5]
    assert seen(bootstrap, 0) == seen(bootstrap, 1) == [1, 5]


def test_many_records(bootstrap: str, connection: Any) -> None:
    """Which are sent in several requests of several batches."""
    with Writer(connection, name=NAME, bootstrap=bootstrap) as writer, writer.transaction():
        for number in range(3000):
            writer.send(TOPIC, b"%0512d" % number, key=b"%d" % number, headers=[("h", b"v")])
    found = seen(bootstrap, 0), seen(bootstrap, 1)
    assert sorted(found[0] + found[1]) == list(range(3000))
    assert all(found)


def test_the_last_to_start_writes(bootstrap: str, database: str, connection: Any) -> None:
    first = Writer(connection, name=NAME, bootstrap=bootstrap)
    write(first, connection, 1)
    other = connect(database)
    with Writer(other, name=NAME, bootstrap=bootstrap) as second:
        with pytest.raises(FencedError):
            write(first, connection, 2)
        write(second, other, 3)
    other.close()
    first.close()
    assert rows(connection) == [1, 3]
    assert seen(bootstrap, 0) == [1, 3]


def test_a_slow_one_cannot_store_what_another_has_aborted(
    bootstrap: str, database: str, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has prepared, and stops for a while before it stores its token."""
    if "host=" not in database:
        pytest.skip("SQLite has one writer at a time: the other waits until the slow one is done")
    prepare = TwoPhaseProducer.prepare

    def slowly(producer: TwoPhaseProducer) -> str:
        token = prepare(producer)
        monkeypatch.undo()
        other = connect(database)
        Writer(other, name=NAME, bootstrap=bootstrap).close()
        other.close()
        return token

    with Writer(connection, name=NAME, bootstrap=bootstrap) as first:
        monkeypatch.setattr(TwoPhaseProducer, "prepare", slowly)
        with pytest.raises(FencedError, match="penstock_prepared"):
            write(first, connection, 1)
    assert rows(connection) == []
    assert seen(bootstrap, 0) == []


# -- the producer by itself


def test_a_token_decides(bootstrap: str) -> None:
    for number, (stored, result) in enumerate(
        [(True, "committed"), (False, "aborted"), (True, "committed")]
    ):
        with TwoPhaseProducer(bootstrap, NAME) as producer:
            producer.recover("")
            producer.send(TOPIC, b"%d" % number, partition=0)
            token = producer.prepare()
        assert seen(bootstrap, 0) == [0][:number]
        with TwoPhaseProducer(bootstrap, NAME) as producer:
            assert producer.recover(token if stored else "") == result
        with TwoPhaseProducer(bootstrap, NAME) as producer:
            assert producer.recover(token) == "nothing"
    assert seen(bootstrap, 0) == [0, 2]


def test_the_order_of_things(bootstrap: str) -> None:
    with TwoPhaseProducer(bootstrap, NAME) as producer:
        with pytest.raises(UsageError, match="recover"):
            producer.send(TOPIC, b"1")
        assert producer.recover("") == "nothing"
        assert producer.prepare() == ""
        producer.commit()
        producer.send(TOPIC, b"1", partition=0)
        with pytest.raises(UsageError, match="prepare"):
            producer.commit()
        assert producer.prepare()
        with pytest.raises(UsageError, match="commit"):
            producer.send(TOPIC, b"2")
        producer.abort()
        with pytest.raises(NotFoundError, match="use one from 0 to 1"):
            producer.send(TOPIC, b"2", partition=7)
        with pytest.raises(UsageError, match="abort"):
            producer.prepare()
        producer.abort()
    assert seen(bootstrap, 0) == []


def test_a_record_that_is_too_large(bootstrap: str) -> None:
    with TwoPhaseProducer(bootstrap, NAME) as producer:
        producer.recover("")
        producer.send(TOPIC, bytes(2_000_000))
        with pytest.raises(UsageError):
            producer.prepare()
        producer.abort()


def test_a_prepared_transaction_outlives_the_broker(tmp_path: Path) -> None:
    with running_broker(tmp_path) as first:
        create_topic(first.bootstrap)
        with TwoPhaseProducer(first.bootstrap, NAME) as producer:
            producer.recover("")
            producer.send(TOPIC, b"1", partition=0)
            token = producer.prepare()
    with running_broker(tmp_path) as second:
        assert seen(second.bootstrap, 0) == []
        with TwoPhaseProducer(second.bootstrap, NAME) as producer:
            assert producer.recover(token) == "committed"
        assert seen(second.bootstrap, 0) == [1]


# -- kill -9


class Killed:
    """Writers that die, one after the other, and a broker that dies with them."""

    def __init__(self, folder: Path, database: str) -> None:
        self._folder = folder
        self._database = database
        self.bootstrap = f"127.0.0.1:{steady_port()}"
        self._numbers = count()
        self.broker = self._start()
        self.expected: list[int] = []

    def _start(self) -> Serving:
        data, errors = self._folder / "data", self._folder / "stderr.log"
        return Serving(data, errors, kafka=self.bootstrap).wait_ready()

    def run(self, *steps: str, kills_broker: bool = False) -> None:
        number = next(self._numbers)
        command = [sys.executable, "-m", "tests.support.both", self._database, self.bootstrap]
        done = subprocess.run(
            [*command, str(number), *steps], check=False, timeout=60, capture_output=True, text=True
        )
        assert done.returncode == (-signal.SIGKILL if steps else 0), done.stderr
        if not steps or steps[0] in DECIDED:
            self.expected.append(number)
        if kills_broker:
            self.broker.kill()
            self.broker = self._start()


def test_killed_at_every_step(tmp_path: Path, database: str, connection: Any) -> None:
    killed = Killed(tmp_path, database)
    try:
        create_topic(killed.bootstrap)
        for step in WRITING:
            killed.run(step, kills_broker=True)
        for step in STARTING:
            for left in ("all is sent", "the token is written", "the database has committed"):
                killed.run(left, kills_broker=step in list(STARTING)[:1])
                killed.run(step)
        killed.run()
        assert rows(connection) == killed.expected
        for partition in range(PARTITIONS):
            assert seen(killed.bootstrap, partition) == killed.expected
    finally:
        killed.broker.kill()
