"""A group that moves from the classic to the consumer protocol and back while it works."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.clients.brokers import Broker
from tests.clients.contract import DEADLINE, MakeTopic, eventually
from tests.clients.test_client_consumer_groups import Crew
from tests.clients.test_client_groups import committed, fill
from tests.clients.wire import Wire
from tools.kafka import class_path, end_process

PARTITIONS = 6
CLASSIC = {"group_protocol": "classic", "session_timeout_ms": 6000, "heartbeat_interval_ms": 300}
CONSUMER = {"group_protocol": "consumer"}


class Rolling:
    """Three consumers that are replaced one by one; all that they read is noted and committed."""

    def __init__(self, crew: Crew, wire: Wire, topic: str, strategy: str) -> None:
        self.crew, self.wire, self.topic = crew, wire, topic
        self.classic = CLASSIC | {"partition_assignment_strategy": strategy}
        self.written: set[bytes] = set()
        self.read: list[bytes] = []
        self.seats: list[tuple[ExitStack, Any]] = []

    def start(self, settings: dict[str, Any]) -> None:
        stack = ExitStack()
        one: AbstractContextManager[Any] = self.crew.consumer(self.topic, **settings)
        self.seats.append((stack, stack.enter_context(one)))

    def replace(self, settings: dict[str, Any]) -> None:
        """The oldest goes, having committed what it has read, and a new one comes."""
        stack, _ = self.seats.pop(0)
        stack.close()
        self.start(settings)
        self.settle()

    def settle(self) -> None:
        """Everybody gets an equal share, and what is written now is read by those who have it."""
        part = PARTITIONS // len(self.seats)

        def shared() -> bool | None:
            self.poll()
            found = [consumer.assignment() for _, consumer in self.seats]
            everything = {place.partition for places in found for place in places}
            whole = len(everything) == PARTITIONS and all(len(places) == part for places in found)
            return whole or None

        eventually(shared, "all partitions have one reader each")
        self.written |= fill(self.wire, self.topic, PARTITIONS)
        eventually(self.has_read_all, "all is read")

    def has_read_all(self) -> bool | None:
        self.poll()
        return self.written <= set(self.read) or None

    def poll(self) -> None:
        for _, consumer in self.seats:
            for message in consumer.consume(100, timeout=0.05):
                assert message.error() is None, message.error()
                self.read.append(message.value())
                consumer.commit(message, asynchronous=False)

    def close(self) -> None:
        for stack, _ in self.seats:
            stack.close()


def kind(broker: Broker, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    name: str = admin.describe_consumer_groups([group])[group].result(DEADLINE).type.name
    return name


def there_and_back(crew: Crew, broker: Broker, wire: Wire, topic: str, strategy: str) -> None:
    rolling = Rolling(crew, wire, topic, strategy)
    try:
        for _ in range(3):
            rolling.start(rolling.classic)
        rolling.settle()
        assert kind(broker, crew.group) == "CLASSIC"
        for _ in range(3):
            rolling.replace(CONSUMER)
            assert kind(broker, crew.group) == "CONSUMER"
        for expected in ("CONSUMER", "CONSUMER", "CLASSIC"):
            rolling.replace(rolling.classic)
            assert kind(broker, crew.group) == expected
        ends = [len(rolling.written) // PARTITIONS] * PARTITIONS
        assert committed(rolling.seats[0][1], topic, PARTITIONS) == ends
        # Who commits each record before the next, and closes properly, reads nothing twice.
        assert sorted(rolling.read) == sorted(rolling.written)
    finally:
        rolling.close()


@pytest.fixture
def crew(broker: Broker, group: str) -> Crew:
    return Crew(broker.bootstrap, group)


def test_smoke(crew: Crew, broker: Broker, wire: Wire, make_topic: MakeTopic) -> None:
    there_and_back(crew, broker, wire, make_topic(partitions=PARTITIONS), "cooperative-sticky")


@pytest.mark.compat
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_there_and_back(
    crew: Crew, broker: Broker, wire: Wire, make_topic: MakeTopic, strategy: str
) -> None:
    there_and_back(crew, broker, wire, make_topic(partitions=PARTITIONS), strategy)


# ---- Java ------------------------------------------------------------------------------------


class JavaMember:
    """VerifiableConsumer in a process of its own; it prints what it reads, and commits it."""

    def __init__(self, crew: Crew, topic: str, protocol: str, output: Path) -> None:
        self.output = output
        command = ["java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp"]
        command += [class_path(), "org.apache.kafka.tools.VerifiableConsumer", "--verbose"]
        command += ["--bootstrap-server", crew.bootstrap, "--group-id", crew.group]
        command += ["--topic", topic, "--group-protocol", protocol]
        with output.open("wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)

    def values(self) -> list[bytes]:
        lines = self.output.read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event["value"].encode() for event in events if event["name"] == "record_data"]

    def stop(self) -> None:
        end_process(self.process)


class JavaRolling:
    """Two members that are replaced one by one, while records come all the time."""

    def __init__(self, crew: Crew, wire: Wire, topic: str, folder: Path) -> None:
        self.crew, self.wire, self.topic, self.folder = crew, wire, topic, folder
        self.members: list[JavaMember] = []
        self.written: set[bytes] = set()

    def add(self, protocol: str) -> None:
        number = len(self.members)
        if number >= 2:
            self.members[number - 2].stop()
        output = self.folder / f"{number}.txt"
        self.members.append(JavaMember(self.crew, self.topic, protocol, output))
        eventually(self.newest_works, "the new member has work")
        eventually(self.has_read_all, "all is read")

    def newest_works(self) -> bool | None:
        self.written |= fill(self.wire, self.topic, 4, count=1)
        time.sleep(0.2)
        return bool(self.members[-1].values()) or None

    def has_read_all(self) -> bool | None:
        return self.written <= {value for one in self.members for value in one.values()} or None


@pytest.mark.compat
def test_java(
    crew: Crew, broker: Broker, wire: Wire, make_topic: MakeTopic, tmp_path: Path
) -> None:
    rolling = JavaRolling(crew, wire, make_topic(partitions=4), tmp_path)
    classic, consumer = ("classic", "CLASSIC"), ("consumer", "CONSUMER")
    back = ("classic", "CONSUMER")
    try:
        for protocol, expected in (classic, classic, consumer, consumer, back, classic):
            rolling.add(protocol)
            assert kind(broker, crew.group) == expected
    finally:
        for member in rolling.members:
            member.stop()
