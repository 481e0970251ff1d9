"""Consumer groups with `group.protocol=consumer` (KIP-848), on both brokers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from tests.clients.brokers import Broker
from tests.clients.contract import DEADLINE, MakeTopic, NewName, eventually
from tests.clients.test_client_groups import (
    commit,
    committed,
    fill,
    share,
    take,
)
from tests.clients.test_java import Java
from tests.clients.wire import Wire
from tests.support.serving import serving, steady_port


class Crew:
    """Consumers of one group."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.bootstrap = bootstrap
        self.group = group

    @contextmanager
    def consumer(self, *topics: str, **settings: Any) -> Iterator[Any]:
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        settings = {name.replace("_", "."): value for name, value in settings.items()}
        with closing(Consumer(config | settings)) as consumer:
            if topics:
                consumer.subscribe(list(topics))
            yield consumer


@pytest.fixture
def crew(broker: Broker, group: str) -> Crew:
    return Crew(broker.bootstrap, group)


def takes_over(crew: Crew, wire: Wire, topic: str, **settings: Any) -> None:
    """Two consumers share four partitions; one goes, and the other goes on where it stood."""
    fill(wire, topic, 4)
    with crew.consumer(topic, **settings) as second:
        with crew.consumer(topic, **settings) as first:
            share(first, second, partitions=4)
            commit(first, topic, {p.partition: 10 for p in first.assignment()})
            commit(second, topic, {p.partition: 10 for p in second.assignment()})
        eventually(
            lambda: (second.consume(100, 0.1) and None) or len(second.assignment()) == 4 or None,
            "the other takes over",
        )
        new = fill(wire, topic, 4)
        take(second, until=lambda values: new <= set(values))
        assert committed(second, topic, 4) == [10] * 4
        commit(second, topic, dict.fromkeys(range(4), 20))
    new = fill(wire, topic, 4)
    with crew.consumer(topic, **settings) as third:
        values = take(third, until=lambda values: len(values) >= 40)
        assert set(values) == new


def test_smoke(crew: Crew, wire: Wire, make_topic: MakeTopic) -> None:
    takes_over(crew, wire, make_topic(partitions=4))


@pytest.mark.compat
class TestConfluent:
    @pytest.mark.parametrize("assignor", ["uniform", "range"])
    def test_one_takes_over(
        self, crew: Crew, wire: Wire, make_topic: MakeTopic, assignor: str
    ) -> None:
        takes_over(crew, wire, make_topic(partitions=4), group_remote_assignor=assignor)

    def test_an_assignor_that_is_not_there(self, crew: Crew, topic: str) -> None:
        with crew.consumer(topic, group_remote_assignor="none") as consumer:
            message = eventually(lambda: consumer.poll(1.0), "an error")
            assert message.error().code() == KafkaError._FATAL
            assert "assignor" in message.error().str()

    def test_what_need_not_move_stays(self, crew: Crew, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=4)
        lost: list[int] = []

        def revoked(_: Any, partitions: list[Any]) -> None:
            lost.extend(p.partition for p in partitions)

        with crew.consumer() as first:
            first.subscribe([topic], on_revoke=revoked)
            share(first, partitions=4)
            with crew.consumer(topic) as second:
                share(first, second, partitions=4)
                assert len(lost) == 2
            share(first, partitions=4)
            assert len(lost) == 2

    def test_a_pattern(self, crew: Crew, wire: Wire, new_name: NewName) -> None:
        prefix = new_name()
        wire.create_topic(f"{prefix}-one", 1)
        wire.create_topic(f"other-{prefix}", 1)
        with crew.consumer(f"^{prefix}-.*") as consumer:
            old = fill(wire, f"{prefix}-one", 1)
            assert set(take(consumer, until=lambda values: len(values) >= 10)) == old
            wire.create_topic(f"{prefix}-two", 1)
            new = fill(wire, f"{prefix}-two", 1)
            assert set(take(consumer, until=lambda values: len(values) >= 10)) == new
            assert {p.topic for p in consumer.assignment()} == {f"{prefix}-one", f"{prefix}-two"}

    def test_static_members_come_back_without_a_rebalance(
        self, crew: Crew, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(partitions=4)
        rebalances: list[str] = []
        with ExitStack() as stack:
            stay = stack.enter_context(crew.consumer(group_instance_id="stay"))
            stay.subscribe(
                [topic],
                on_assign=lambda *_: rebalances.append("assign"),
                on_revoke=lambda *_: rebalances.append("revoke"),
            )
            with crew.consumer(topic, group_instance_id="come-back") as go:
                share(stay, go, partitions=4)
                before = {p.partition for p in go.assignment()}
            rebalances.clear()
            with crew.consumer(topic, group_instance_id="come-back") as again:
                eventually(lambda: again.poll(0.1) or again.assignment() or None, "assignment")
                assert {p.partition for p in again.assignment()} == before
                assert (stay.poll(6.0), rebalances) == (None, [])

    def test_the_newer_of_two_equal_static_members_is_refused(self, crew: Crew, topic: str) -> None:
        with crew.consumer(topic, group_instance_id="same") as old:
            share(old, partitions=1)
            with crew.consumer(topic, group_instance_id="same") as new:
                message = eventually(lambda: new.poll(1.0), "an error")
                assert message.error().code() in (
                    KafkaError.UNRELEASED_INSTANCE_ID,
                    KafkaError._FATAL,
                )
            commit(old, topic, {0: 1})
            assert committed(old, topic, 1) == [1]

    def test_an_empty_group_changes_its_protocol(self, crew: Crew, topic: str) -> None:
        classic = {"group_protocol": "classic"}
        with crew.consumer(topic) as new:
            share(new, partitions=1)
            commit(new, topic, {0: 5})
        with crew.consumer(topic, **classic) as old:
            share(old, partitions=1)
            assert committed(old, topic, 1) == [5]
        with crew.consumer(topic) as new:
            share(new, partitions=1)
            assert committed(new, topic, 1) == [5]

    def test_administration(self, crew: Crew, broker: Broker, topic: str) -> None:
        group = crew.group
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        with crew.consumer(topic) as consumer:
            share(consumer, partitions=1)
            commit(consumer, topic, {0: 3})
            described = admin.describe_consumer_groups([group])[group].result(DEADLINE)
            (member,) = described.members
            assert (described.state.name, described.type) == ("STABLE", ConsumerGroupType.CONSUMER)
            assert described.partition_assignor == "uniform"
            assert [p.topic for p in member.assignment.topic_partitions] == [topic]
            assert [p.topic for p in member.target_assignment.topic_partitions] == [topic]
            kind = {ConsumerGroupType.CONSUMER}
            listed = admin.list_consumer_groups(types=kind).result(DEADLINE).valid
            assert group in {found.group_id for found in listed}
            with pytest.raises(KafkaException) as refused:
                admin.delete_consumer_groups([group])[group].result(DEADLINE)
            assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        admin.delete_consumer_groups([group])[group].result(DEADLINE)


def test_members_come_back_after_a_kill(tmp_path: Path) -> None:
    """Who is a member is memory, what is committed is not."""
    address = f"127.0.0.1:{steady_port()}"
    quick = {"reconnect_backoff_max_ms": 200}
    crew = Crew(address, "crew")
    with ExitStack() as stack:
        with serving(tmp_path, kafka=address) as first, Wire(address) as wire:
            wire.create_topic("orders", 4)
            old = fill(wire, "orders", 4)
            one, two = (stack.enter_context(crew.consumer("orders", **quick)) for _ in range(2))
            take(one, two, until=lambda values: old <= set(values))
            share(one, two, partitions=4)
            for consumer in (one, two):
                commit(consumer, "orders", {p.partition: 10 for p in consumer.assignment()})
            first.kill()
        with serving(tmp_path, kafka=address), Wire(address) as wire:
            new = fill(wire, "orders", 4)
            assert new <= set(take(one, two, until=lambda values: new <= set(values)))
            share(one, two, partitions=4)
            assert committed(one, "orders", 4) == [10] * 4
            one.close()
            two.close()


# ---- Java ------------------------------------------------------------------------------------


@pytest.fixture
def java(broker: Broker) -> Java:
    return Java(broker.bootstrap)


@pytest.mark.compat
class TestJava:
    def console(self, java: Java, group: str, count: int, *more: str) -> set[bytes]:
        lines = java.run(
            "consumer.ConsoleConsumer",
            *("--group", group, "--from-beginning", "--max-messages", str(count)),
            *("--command-property", "group.protocol=consumer", "--timeout-ms", "30000", *more),
        ).splitlines()
        return {line.encode() for line in lines}

    def test_console_consumer(
        self, java: Java, wire: Wire, group: str, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(partitions=2)
        old = fill(wire, topic, 2)
        assert self.console(java, group, 20, "--topic", topic) == old
        new = fill(wire, topic, 2)
        assert self.console(java, group, 20, "--topic", topic) == new

    def test_a_pattern(self, java: Java, wire: Wire, group: str, topic: str) -> None:
        old = fill(wire, topic, 1)
        assert self.console(java, group, 10, "--include", f"{topic}.*") == old

    def test_a_static_member(self, java: Java, wire: Wire, group: str, topic: str) -> None:
        for _ in range(2):
            new = fill(wire, topic, 1)
            more = ("--topic", topic, "--command-property", "group.instance.id=one")
            assert self.console(java, group, 10, *more) == new

    def test_groups_command(self, java: Java, crew: Crew, wire: Wire, topic: str) -> None:
        fill(wire, topic, 1)
        tool, group = "consumer.group.ConsumerGroupCommand", crew.group
        with crew.consumer(topic) as consumer:
            share(consumer, partitions=1)
            commit(consumer, topic, {0: 7})
            listed = java.run(tool, "--list", "--type")
            assert re.search(rf"{group}\s+Consumer", listed)
            described = java.run(tool, "--describe", "--group", group)
            assert re.search(rf"{group}\s+{topic}\s+0\s+7\s+10\s+3\s", described)
            state = java.run(tool, "--describe", "--group", group, "--state", "--verbose")
            assert re.search(r"uniform\s+Stable\s", state)
            members = java.run(tool, "--describe", "--group", group, "--members", "--verbose")
            assert re.search(rf"{group}\s.*{topic}:0", members)
        java.run(tool, "--delete", "--group", group)
        assert group not in java.run(tool, "--list").split()
