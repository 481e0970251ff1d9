"""Effects and position in one transaction: every record is applied once, whatever happens."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support import applying

from penstock.client.connection import admin, library
from penstock.consume import RecordsGoneError, consume_into
from penstock.errors import UsageError
from penstock.testing.running import RunningBroker

SECONDS_MAX = 60.0
SEED = int(os.environ.get("PENSTOCK_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
RECORDS, PARTITIONS, KILLS = 3000, 3, 8


@pytest.fixture
def connection(database: str) -> Iterator[Any]:
    found = applying.connect(database)
    applying.create(found)
    yield found
    found.close()


@pytest.fixture
def topic(penstock_broker: RunningBroker) -> str:
    """A topic with a few partitions, empty."""
    with admin(penstock_broker.bootstrap, "create") as client:
        client.create_topics({"orders": {"num_partitions": PARTITIONS}})
    return "orders"


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(topic, b"%06d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0


def wanted(numbers: range) -> list[tuple[int, str]]:
    return sorted((number % PARTITIONS, f"{number:06d}") for number in numbers)


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    with admin(bootstrap, "delete records") as client:
        client.delete_records({library().TopicPartition(topic, 0): offset})


def until_applied(connection: Any, count: int) -> Callable[[], bool]:
    """Stop when there are so many rows, or it takes too long."""
    until = time.monotonic() + SECONDS_MAX

    def stop() -> bool:
        assert time.monotonic() < until, "it does not come to an end"
        return len(applying.applied(connection)) >= count

    return stop


def run(connection: Any, bootstrap: str, topic: str, count: int, **options: Any) -> None:
    settings = {"bootstrap.servers": bootstrap}
    stop = options.pop("stop", until_applied(connection, count))
    apply = options.pop("apply", applying.write)
    consume_into(connection, [topic], apply, name="mine", settings=settings, stop=stop, **options)


def test_a_second_run_goes_on(penstock_broker: RunningBroker, topic: str, connection: Any) -> None:
    bootstrap = penstock_broker.bootstrap
    produce(bootstrap, topic, range(100))
    run(connection, bootstrap, topic, 100)
    produce(bootstrap, topic, range(100, 150))
    run(connection, bootstrap, topic, 150, batch=7)
    assert applying.applied(connection) == wanted(range(150))


def test_only_what_comes(penstock_broker: RunningBroker, topic: str, connection: Any) -> None:
    bootstrap = penstock_broker.bootstrap
    produce(bootstrap, topic, range(10))

    def entered() -> bool:
        rows = connection.execute("SELECT 1 FROM penstock_positions").fetchall()
        connection.commit()
        return len(rows) == PARTITIONS

    run(connection, bootstrap, topic, 0, start="end", stop=entered)
    produce(bootstrap, topic, range(10, 20))
    run(connection, bootstrap, topic, 10, start="end")
    assert applying.applied(connection) == wanted(range(10, 20))


def test_a_failure_undoes_its_transaction(
    penstock_broker: RunningBroker, topic: str, connection: Any
) -> None:
    bootstrap = penstock_broker.bootstrap
    produce(bootstrap, topic, range(100))
    fails = iter([False] * 41 + [True])

    def apply(into: Any, message: Any) -> None:
        applying.write(into, message)
        if next(fails, False):
            raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError):
        run(connection, bootstrap, topic, 100, apply=apply, batch=10)
    assert len(applying.applied(connection)) <= 41
    run(connection, bootstrap, topic, 100, apply=apply)
    assert applying.applied(connection) == wanted(range(100))


def test_positions_that_somebody_moves_back_are_followed(
    penstock_broker: RunningBroker, topic: str, connection: Any, database: str
) -> None:
    bootstrap = penstock_broker.bootstrap
    produce(bootstrap, topic, range(30))
    other = applying.connect(database)
    moved = False

    def stop() -> bool:
        nonlocal moved
        done = until_applied(connection, 30)()
        if done and not moved:
            moved = True
            other.execute("UPDATE penstock_positions SET next_offset = 0")
            other.commit()
            produce(bootstrap, topic, range(30, 33))  # so that there is something to come
            return False
        return until_applied(connection, 63)()

    run(connection, bootstrap, topic, 0, stop=stop)
    assert applying.applied(connection) == sorted(wanted(range(30)) + wanted(range(33)))
    other.close()


def test_what_another_instance_applied_is_skipped(
    penstock_broker: RunningBroker, topic: str, connection: Any, database: str
) -> None:
    """As for a member that has lost its partitions and does not know it."""
    bootstrap = penstock_broker.bootstrap
    produce(bootstrap, topic, range(300))
    other = applying.connect(database)
    before: list[tuple[int, str]] = []

    def stop() -> bool:
        if not before and applying.applied(connection):
            other.execute("UPDATE penstock_positions SET next_offset = 100")
            other.commit()
            before.extend(applying.applied(connection))
            produce(bootstrap, topic, range(300, 303))
        return bool(before) and until_applied(connection, len(before) + 3)()

    run(connection, bootstrap, topic, 0, stop=stop, batch=1)
    assert applying.applied(connection) == sorted(before + wanted(range(300, 303)))
    other.close()


def test_records_that_are_gone_are_not_passed_over(
    penstock_broker: RunningBroker, topic: str, connection: Any
) -> None:
    bootstrap = penstock_broker.bootstrap
    produce(bootstrap, topic, range(30))
    run(connection, bootstrap, topic, 30)
    produce(bootstrap, topic, range(30, 60))
    delete_before(bootstrap, topic, 15)
    with pytest.raises(RecordsGoneError, match="it starts at 15: 5 records were deleted") as raised:
        run(connection, bootstrap, topic, 60)
    assert "orders partition 0" in str(raised.value)
    connection.execute("UPDATE penstock_positions SET next_offset = 1000")
    connection.commit()
    with pytest.raises(RecordsGoneError, match="it ends at 20"):
        run(connection, bootstrap, topic, 60)


def test_what_does_not_fit_is_refused(penstock_broker: RunningBroker, connection: Any) -> None:
    def attempt(into: Any = connection, **settings: Any) -> None:
        settings["bootstrap.servers"] = penstock_broker.bootstrap
        consume_into(into, ["x"], applying.write, name="mine", settings=settings)

    with pytest.raises(UsageError, match=r"auto\.offset\.reset must be error"):
        attempt(**{"auto.offset.reset": "latest"})
    with pytest.raises(UsageError, match="use range"):
        attempt(**{"partition.assignment.strategy": "cooperative-sticky"})
    with pytest.raises(UsageError, match=r"no\.such"):
        attempt(**{"no.such.setting": 1})
    with pytest.raises(UsageError, match="use one of psycopg or sqlite3"):
        attempt(object())
    connection.execute("INSERT INTO applied VALUES (0, 'x')")
    with pytest.raises(UsageError, match="a transaction is open in it"):
        attempt()
    connection.rollback()


def test_a_commit_of_its_own_is_refused(
    penstock_broker: RunningBroker, topic: str, connection: Any
) -> None:
    produce(penstock_broker.bootstrap, topic, range(1))

    def apply(into: Any, message: Any) -> None:
        applying.write(into, message)
        into.commit()

    kind: type[Exception] = UsageError
    if not isinstance(connection, sqlite3.Connection):
        import psycopg

        kind = psycopg.ProgrammingError
    with pytest.raises(kind, match="commit"):
        run(connection, penstock_broker.bootstrap, topic, 1, apply=apply)


class Killed:
    """Consumers as processes of their own, killed and started again."""

    def __init__(self, database: str, bootstrap: str, topic: str, chance: random.Random) -> None:
        self._arguments = (database, bootstrap, topic)
        self._chance = chance
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, instance: str) -> None:
        seed = str(self._chance.randrange(2**31))
        command = [sys.executable, "-m", "tests.support.applying"]
        self._running[instance] = subprocess.Popen([*command, *self._arguments, instance, seed])

    def kill_any(self) -> None:
        instance = self._chance.choice(sorted(self._running))
        self.kill(instance)
        self.start(instance)

    def kill(self, instance: str) -> None:
        process = self._running.pop(instance)
        assert process.poll() is None, f"{instance} ended by itself"
        process.kill()
        process.wait()

    def kill_all(self) -> None:
        for instance in list(self._running):
            self.kill(instance)


def test_killed_at_any_moment(
    penstock_broker: RunningBroker, topic: str, connection: Any, database: str
) -> None:
    """Two instances, so that partitions also change hands between them."""
    print(f"PENSTOCK_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    produce(penstock_broker.bootstrap, topic, range(RECORDS))
    consumers = Killed(database, penstock_broker.bootstrap, topic, chance)
    for instance in ("one", "two"):
        consumers.start(instance)
    stop = until_applied(connection, 1)
    while not stop():
        time.sleep(0.05)
    counts = []
    for _ in range(KILLS):
        time.sleep(chance.random())
        consumers.kill_any()
        counts.append(len(applying.applied(connection)))
    stop = until_applied(connection, RECORDS)
    while not stop():
        time.sleep(0.1)
    time.sleep(0.5)  # for what would come twice
    consumers.kill_all()
    assert applying.applied(connection) == wanted(range(RECORDS))
    assert counts[0] < RECORDS, "everything was applied before the first kill: nothing was tested"
