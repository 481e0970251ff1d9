"""Share groups (KIP-932) with the clients that have them, on both brokers."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from tests.clients.admin_requests import SET, change_configs
from tests.clients.brokers import Broker
from tests.clients.contract import DEADLINE, MakeTopic, Record, eventually, numbered
from tests.clients.test_java import TOOLS, Java
from tests.clients.wire import Wire
from tests.support.serving import serving, steady_port
from tools.kafka import java_tool

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
GROUP_RESOURCE = 32
Place = tuple[int, int]


class Crew:
    """Share consumers of one group."""

    def __init__(self, bootstrap: str, group: str, wire: Wire) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.wire = wire

    def configure(self, **settings: object) -> None:
        changes = [(k.replace("_", "."), SET, str(v)) for k, v in settings.items()]
        answer = self.wire.call(change_configs(self.group, changes, kind=GROUP_RESOURCE))
        assert [one.error_code for one in answer.responses] == [0], answer

    @contextmanager
    def consumer(self, *topics: str, mode: str = "explicit") -> Iterator[Any]:
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "share.acknowledgement.mode": mode,
            "log_level": 0,  # that it is a preview
            "socket.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 200,
        }
        with closing(ShareConsumer(config)) as consumer:
            consumer.subscribe(list(topics))
            yield consumer


@pytest.fixture
def crew(broker: Broker, group: str, wire: Wire) -> Crew:
    crew = Crew(broker.bootstrap, group, wire)
    crew.configure(share_auto_offset_reset="earliest")
    return crew


def fill(wire: Wire, topic: str, count: int = 10, partition: int = 0) -> None:
    wire.write(topic, numbered(count), partition=partition)


def poll(consumer: Any, seconds: float = 0.5) -> list[Any]:
    messages = list(consumer.poll(seconds))
    assert [m.error() for m in messages if m.error()] == []
    return messages


def work(*consumers: Any, count: int, verdict: Any = lambda place: ACCEPT) -> list[tuple[int, int]]:
    """Poll consumers in turn until so many were delivered; the places of all, in order."""
    places: list[Place] = []

    def turn() -> bool | None:
        for consumer in consumers:
            for message in poll(consumer):
                place = (message.partition(), message.offset())
                places.append(place)
                consumer.acknowledge(message, verdict(place))
            settled = consumer.commit_sync(10.0)
            assert not any(settled.values()), settled
        return len(places) >= count or None

    eventually(turn, f"{count} deliveries")
    return places


def test_smoke(crew: Crew, wire: Wire, make_topic: MakeTopic) -> None:
    """Two share one topic; what one gives back comes again, what is accepted does not."""
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        fill(wire, topic, 50, partition)
    seen: Counter[Place] = Counter()

    def verdict(place: Place) -> Any:
        seen[place] += 1
        return RELEASE if place[1] % 5 == 0 and seen[place] == 1 else ACCEPT

    with crew.consumer(topic) as one, crew.consumer(topic) as two:
        work(one, two, count=120, verdict=verdict)
        assert set(seen) == {(p, n) for p in (0, 1) for n in range(50)}
        assert {place for place, count in seen.items() if count > 1} == {
            (p, n) for p in (0, 1) for n in range(0, 50, 5)
        }
    with crew.consumer(topic) as three:
        fill(wire, topic, 3)
        assert sorted(work(three, count=3)) == [(0, 50), (0, 51), (0, 52)]


@pytest.mark.compat
class TestConfluent:
    def test_what_is_accepted_implicitly(self, crew: Crew, wire: Wire, topic: str) -> None:
        fill(wire, topic)
        with crew.consumer(topic, mode="implicit") as consumer:
            first = eventually(lambda: poll(consumer) or None, "records")
            assert [m.offset() for m in first] == list(range(10))
            poll(consumer)
        with crew.consumer(topic) as other:
            fill(wire, topic, 1)
            assert work(other, count=1) == [(0, 10)]

    def test_rejected_never_comes_again(self, crew: Crew, wire: Wire, topic: str) -> None:
        fill(wire, topic)
        with crew.consumer(topic) as consumer:
            work(consumer, count=10, verdict=lambda place: REJECT)
            fill(wire, topic, 1)
            assert work(consumer, count=1) == [(0, 10)]

    def test_five_deliveries_are_enough(self, crew: Crew, wire: Wire, topic: str) -> None:
        fill(wire, topic, 3)
        with crew.consumer(topic) as consumer:
            places = work(consumer, count=15, verdict=lambda place: RELEASE)
            assert Counter(places) == {(0, n): 5 for n in range(3)}
            fill(wire, topic, 1)
            assert work(consumer, count=1) == [(0, 3)]

    def test_who_leaves_gives_back(self, crew: Crew, wire: Wire, topic: str) -> None:
        fill(wire, topic)
        with crew.consumer(topic) as consumer:
            messages = eventually(lambda: poll(consumer) or None, "records")
            for message in messages:
                consumer.acknowledge(message, ACCEPT if message.offset() < 4 else RELEASE)
        with crew.consumer(topic) as other:
            assert work(other, count=6) == [(0, n) for n in range(4, 10)]

    def test_late_holders_lose_their_records(self, crew: Crew, wire: Wire, topic: str) -> None:
        crew.configure(share_record_lock_duration_ms=15_000)
        fill(wire, topic)
        with crew.consumer(topic) as late, crew.consumer(topic) as other:
            held = eventually(lambda: poll(late) or None, "records")
            assert len(held) == 10
            began = time.monotonic()
            again = eventually(lambda: poll(other) or None, "what is late")
            assert time.monotonic() - began > 10
            assert [m.offset() for m in again] == list(range(10))
            for message in held:
                late.acknowledge(message, ACCEPT)
            (refused,) = late.commit_sync(10.0).values()
            assert refused is not None
            for message in again:
                other.acknowledge(message, ACCEPT)
            assert list(other.commit_sync(10.0).values()) == [None]

    def test_by_default_a_group_begins_at_the_end(
        self, broker: Broker, group: str, wire: Wire, topic: str
    ) -> None:
        fill(wire, topic)
        crew = Crew(broker.bootstrap, group, wire)
        with crew.consumer(topic) as consumer:

            def arrived() -> list[Any] | None:
                wire.write(topic, [Record(b"new")])
                return poll(consumer) or None

            messages = eventually(arrived, "a new record")
            assert all(m.value() == b"new" for m in messages)
            for message in messages:
                consumer.acknowledge(message, ACCEPT)

    @pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
    def test_transactions(self, crew: Crew, broker: Broker, topic: str, level: str) -> None:
        crew.configure(share_isolation_level=level)
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-producer"}
        )
        producer.init_transactions(DEADLINE)
        for value, commit in ((b"aborted", False), (b"committed", True)) * 2:
            producer.begin_transaction()
            producer.produce(topic, value)
            producer.flush(DEADLINE)
            (producer.commit_transaction if commit else producer.abort_transaction)(DEADLINE)
        values: list[bytes] = []
        expected = [b"committed"] * 2
        if level == "read_uncommitted":
            expected = [b"aborted", b"committed"] * 2
        with crew.consumer(topic) as consumer:

            def turn() -> bool | None:
                for message in poll(consumer):
                    values.append(message.value())
                    consumer.acknowledge(message, ACCEPT)
                consumer.commit_sync(10.0)
                return len(values) >= len(expected) or None

            eventually(turn, "records")
            turn()
        assert values == expected


class JavaShare(Java):
    """The tools for share groups."""

    def groups(self, *arguments: str) -> str:
        return self.run("consumer.group.ShareGroupCommand", *arguments)

    def refused(self, *arguments: str) -> str:
        done = self.attempt("consumer.group.ShareGroupCommand", *arguments)
        return done.stdout + done.stderr

    def rows(self, *arguments: str) -> list[list[str]]:
        lines = self.groups(*arguments).splitlines()
        table = [line.split() for line in lines if line.strip()]
        header = next(n for n, row in enumerate(table) if row[0] == "GROUP")
        return table[header + 1 :]


@pytest.fixture
def java(broker: Broker) -> JavaShare:
    return JavaShare(broker.bootstrap)


@pytest.mark.compat
class TestJava:
    def test_console(self, java: JavaShare, crew: Crew, wire: Wire, topic: str) -> None:
        fill(wire, topic, 30)
        lines = java.run(
            "consumer.ConsoleShareConsumer",
            *("--topic", topic, "--group", crew.group),
            *("--max-messages", "30", "--timeout-ms", "60000"),
        ).splitlines()
        assert len(lines) == 30
        (row,) = java.rows("--describe", "--group", crew.group, "--verbose")
        # A Kafka writes down where it starts a little later than it counts the lag.
        assert (row[:4], row[5]) == ([crew.group, topic, "0", "0"], "0")

    def test_verifiable(self, java: JavaShare, crew: Crew, wire: Wire, topic: str) -> None:
        for _ in range(5):
            fill(wire, topic, 200)
        done = java_tool(
            f"{TOOLS}.VerifiableShareConsumer",
            *("--bootstrap-server", java.bootstrap, "--topic", topic, "--group-id", crew.group),
            *("--max-messages", "1000", "--acknowledgement-mode", "sync"),
        )
        events = [json.loads(line) for line in done.stdout.splitlines()]
        consumed = [e for e in events if e["name"] == "records_consumed"]
        acknowledged = [e for e in events if e["name"] == "offsets_acknowledged"]
        assert sum(event["count"] for event in consumed) == 1000
        assert all(event["success"] for event in acknowledged), acknowledged

    def test_administration(self, java: JavaShare, crew: Crew, wire: Wire, topic: str) -> None:
        fill(wire, topic)
        group = crew.group
        with crew.consumer(topic) as consumer:
            work(consumer, count=10, verdict=lambda place: ACCEPT if place[1] < 4 else REJECT)
            assert group in java.groups("--list").split()
            (member,) = java.rows("--describe", "--group", group, "--members")
            assert member[0] == group
            assert member[-1] == f"{topic}:0"
            assert "GroupNotEmptyException" in java.refused("--delete", "--group", group)
            (row,) = java.rows("--describe", "--group", group, "--state")
            assert (row[0], row[-2], row[-1]) == (group, "Stable", "1")
        eventually(
            lambda: java.rows("--describe", "--group", group, "--state")[0][-2] == "Empty" or None,
            "nobody is there",
        )
        (row,) = java.rows("--describe", "--group", group)
        assert (row[:3], row[4]) == ([group, topic, "0"], "0")
        java.groups(
            "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
        )
        assert java.rows("--describe", "--group", group)[0][:4] == [group, topic, "0", "0"]
        with crew.consumer(topic) as consumer:
            assert work(consumer, count=10) == [(0, n) for n in range(10)]
        eventually(
            lambda: java.rows("--describe", "--group", group, "--state")[0][-2] == "Empty" or None,
            "nobody is there",
        )
        assert "Successful" in java.groups("--delete-offsets", "--group", group, "--topic", topic)
        java.groups("--delete", "--group", group)
        assert group not in java.groups("--list").split()

    def test_settings(self, java: JavaShare, crew: Crew) -> None:
        about = ("--entity-type", "groups", "--entity-name", crew.group)
        java.configs("--alter", *about, "--add-config", "share.record.lock.duration.ms=20000")
        told = java.configs("--describe", *about)
        assert "share.record.lock.duration.ms=20000" in told
        assert "share.auto.offset.reset=earliest" in told
        java.configs("--alter", *about, "--delete-config", "share.record.lock.duration.ms")
        assert "share.record.lock" not in java.configs("--describe", *about)


def test_a_stop_and_a_kill(tmp_path: Path) -> None:
    """What is held is memory, what is accepted is not; and nobody keeps a broker from stopping."""
    address = f"127.0.0.1:{steady_port()}"
    with serving(tmp_path, kafka=address) as first, Wire(address) as wire:
        crew = Crew(address, "crew", wire)
        crew.configure(share_auto_offset_reset="earliest")
        wire.create_topic("jobs", 1)
        fill(wire, "jobs")
        with crew.consumer("jobs") as consumer:
            messages = eventually(lambda: poll(consumer) or None, "records")
            for message in messages[:4]:
                consumer.acknowledge(message, ACCEPT)
            consumer.commit_sync(10.0)
            began = time.monotonic()
            assert first.terminate() == 0
            assert time.monotonic() - began < 5
            for message in messages[4:]:
                consumer.acknowledge(message, RELEASE)
    with serving(tmp_path, kafka=address) as second, Wire(address) as wire:
        crew = Crew(address, "crew", wire)
        with crew.consumer("jobs") as consumer:
            places = work(consumer, count=6, verdict=lambda p: ACCEPT if p[1] < 7 else RELEASE)
            assert sorted(set(places)) == [(0, n) for n in range(4, 10)]
            second.kill()
    with serving(tmp_path, kafka=address), Wire(address) as wire:
        crew = Crew(address, "crew", wire)
        with crew.consumer("jobs") as consumer:
            assert sorted(work(consumer, count=3)) == [(0, n) for n in range(7, 10)]
