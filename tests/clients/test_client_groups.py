"""Consumer groups with every client, on both brokers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.structs import OffsetAndMetadata
from tests.clients.brokers import Broker
from tests.clients.contract import DEADLINE, MakeTopic, eventually, numbered
from tests.clients.test_java import Java
from tests.clients.wire import Wire

from kafka import KafkaConsumer
from kafka import TopicPartition as PyPartition

SESSION_MS = 6_000


class Confluent:
    """Consumers of one group."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.bootstrap = bootstrap
        self.group = group

    @contextmanager
    def consumer(self, *topics: str, **settings: Any) -> Iterator[Any]:
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 300,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        settings = {name.replace("_", "."): value for name, value in settings.items()}
        with closing(Consumer(config | settings)) as consumer:
            if topics:
                consumer.subscribe(list(topics))
            yield consumer


@pytest.fixture
def confluent(broker: Broker, group: str) -> Confluent:
    return Confluent(broker.bootstrap, group)


def take(*consumers: Any, until: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Poll consumers in turn until it is enough; the values."""
    values: list[bytes] = []

    def poll() -> bool | None:
        for consumer in consumers:
            for message in consumer.consume(100, timeout=0.1):
                assert message.error() is None, message.error()
                values.append(message.value())
        return until(values) or None

    eventually(poll, "enough records")
    return values


def expected(count: int, prefix: str) -> set[bytes]:
    return {record.value or b"" for record in numbered(count, prefix)}


def fill(wire: Wire, topic: str, partitions: int, count: int = 10) -> set[bytes]:
    """Write to every partition; all values."""
    everything: set[bytes] = set()
    for partition in range(partitions):
        prefix = f"p{partition}-{time.monotonic_ns()}"
        wire.write(topic, numbered(count, prefix), partition=partition)
        everything |= expected(count, prefix)
    return everything


def share(*consumers: Any, partitions: int) -> None:
    """Poll until all partitions are assigned, and everybody has as many as the others."""
    part = partitions // len(consumers)

    def shared() -> bool | None:
        for consumer in consumers:
            for message in consumer.consume(1, timeout=0.1):
                assert message.error() is None, message.error()
        return all(len(consumer.assignment()) == part for consumer in consumers) or None

    eventually(shared, "partitions are shared")
    assigned = {p.partition for consumer in consumers for p in consumer.assignment()}
    assert assigned == set(range(partitions))


def committed(consumer: Any, topic: str, partitions: int) -> list[int]:
    wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
    return [found.offset for found in consumer.committed(wanted, timeout=DEADLINE)]


def commit(consumer: Any, topic: str, offsets: dict[int, int]) -> None:
    wanted = [TopicPartition(topic, n, offset) for n, offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)


def takes_over(confluent: Confluent, wire: Wire, topic: str, strategy: str) -> None:
    """Two consumers share four partitions; one goes, and the other goes on where it stood."""
    fill(wire, topic, 4)
    settings = {"partition_assignment_strategy": strategy}
    with confluent.consumer(topic, **settings) as second:
        with confluent.consumer(topic, **settings) as first:
            share(first, second, partitions=4)
            commit(first, topic, {p.partition: 10 for p in first.assignment()})
            commit(second, topic, {p.partition: 10 for p in second.assignment()})
        eventually(
            lambda: (second.consume(100, 0.1) and None) or len(second.assignment()) == 4 or None,
            "the other takes over",
        )
        new = fill(wire, topic, 4)
        values = take(second, until=lambda values: new <= set(values))
        assert committed(second, topic, 4) == [10] * 4
        commit(second, topic, dict.fromkeys(range(4), 20))
    new = fill(wire, topic, 4)
    with confluent.consumer(topic, **settings) as third:
        values = take(third, until=lambda values: len(values) >= 40)
        assert set(values) == new


def test_smoke(confluent: Confluent, wire: Wire, make_topic: MakeTopic) -> None:
    takes_over(confluent, wire, make_topic(partitions=4), "range")


@pytest.mark.compat
class TestConfluent:
    @pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
    def test_one_takes_over(
        self, confluent: Confluent, wire: Wire, make_topic: MakeTopic, strategy: str
    ) -> None:
        takes_over(confluent, wire, make_topic(partitions=4), strategy)

    def test_cooperative_keeps_what_need_not_move(
        self, confluent: Confluent, wire: Wire, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(partitions=4)
        lost: list[int] = []

        def revoked(_: Any, partitions: list[Any]) -> None:
            lost.extend(p.partition for p in partitions)

        sticky = {"partition_assignment_strategy": "cooperative-sticky"}
        with confluent.consumer(**sticky) as first:
            first.subscribe([topic], on_revoke=revoked)
            share(first, partitions=4)
            with confluent.consumer(topic, **sticky) as second:
                share(first, second, partitions=4)
                assert len(lost) == 2
            share(first, partitions=4)
            assert len(lost) == 2

    def test_static_members_come_back_without_a_rebalance(
        self, confluent: Confluent, wire: Wire, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(partitions=4)
        rebalances: list[str] = []
        with ExitStack() as stack:
            stay = stack.enter_context(confluent.consumer(group_instance_id="stay"))
            stay.subscribe(
                [topic],
                on_assign=lambda *_: rebalances.append("assign"),
                on_revoke=lambda *_: rebalances.append("revoke"),
            )
            with confluent.consumer(topic, group_instance_id="come-back") as go:
                share(stay, go, partitions=4)
                before = {p.partition for p in go.assignment()}
            rebalances.clear()
            with confluent.consumer(topic, group_instance_id="come-back") as again:
                eventually(lambda: again.poll(0.1) or again.assignment() or None, "assignment")
                assert {p.partition for p in again.assignment()} == before
                assert (stay.poll(1.0), rebalances) == (None, [])

    def test_the_older_of_two_equal_static_members_is_fenced(
        self, confluent: Confluent, topic: str
    ) -> None:
        with confluent.consumer(topic, group_instance_id="same") as old:
            share(old, partitions=1)
            commit(old, topic, {0: 1})
            with confluent.consumer(topic, group_instance_id="same") as new:
                share(new, partitions=1)
                with pytest.raises(KafkaException) as refused:
                    commit(old, topic, {0: 2})
                error = refused.value.args[0]
                assert error.code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)
                assert committed(new, topic, 1) == [1]

    def test_commits_with_words(self, confluent: Confluent, topic: str, wire: Wire) -> None:
        words = "half-way, naïve and simple " + "x" * 2000
        with confluent.consumer() as consumer:
            offset = TopicPartition(topic, 0, 42, metadata=words)
            consumer.commit(offsets=[offset], asynchronous=False)
        with confluent.consumer() as other:
            (found,) = other.committed([TopicPartition(topic, 0)], timeout=DEADLINE)
            assert (found.offset, found.metadata) == (42, words)

    @pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
    def test_without_a_committed_offset(
        self, confluent: Confluent, wire: Wire, topic: str, reset: str
    ) -> None:
        old = fill(wire, topic, 1)
        with confluent.consumer(topic, auto_offset_reset=reset) as consumer:
            if reset == "earliest":
                values = take(consumer, until=lambda values: len(values) >= 10)
                assert set(values) == old
            elif reset == "latest":
                eventually(lambda: consumer.poll(0.1) or consumer.assignment() or None, "a start")
                assert consumer.poll(2.0) is None  # by then it has asked where the end is
                new = fill(wire, topic, 1)
                assert set(take(consumer, until=lambda values: len(values) >= 10)) == new
            else:
                message = eventually(lambda: consumer.poll(1.0), "an error")
                assert message.error().code() == KafkaError._AUTO_OFFSET_RESET

    def test_a_member_that_does_not_poll_in_time_is_out(
        self, confluent: Confluent, wire: Wire, topic: str
    ) -> None:
        fill(wire, topic, 1)
        with confluent.consumer(topic, max_poll_interval_ms=SESSION_MS) as consumer:
            take(consumer, until=lambda values: len(values) >= 10)
            time.sleep(SESSION_MS / 1000 + 1)
            with pytest.raises(KafkaException) as refused:
                commit(consumer, topic, {0: 10})
            assert refused.value.args[0].code() in (
                KafkaError.UNKNOWN_MEMBER_ID,
                KafkaError.ILLEGAL_GENERATION,
                KafkaError._STATE,
            )

    def test_administration(
        self, confluent: Confluent, broker: Broker, wire: Wire, topic: str
    ) -> None:
        group = confluent.group
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        with confluent.consumer(topic) as consumer:
            share(consumer, partitions=1)
            commit(consumer, topic, {0: 3})
            described = admin.describe_consumer_groups([group])[group].result(DEADLINE)
            (member,) = described.members
            assert described.state.name == "STABLE"
            assert described.partition_assignor == "range"
            assert [p.topic for p in member.assignment.topic_partitions] == [topic]
            listed = admin.list_consumer_groups().result(DEADLINE).valid
            assert group in {found.group_id for found in listed}
            with pytest.raises(KafkaException) as refused:
                admin.delete_consumer_groups([group])[group].result(DEADLINE)
            assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        admin.delete_consumer_groups([group])[group].result(DEADLINE)
        with confluent.consumer() as consumer:
            assert committed(consumer, topic, 1) == [-1001]


# ---- kafka-python ----------------------------------------------------------------------------


def kafka_python(broker: Broker, group: str, *topics: str, **settings: Any) -> Any:
    defaults = {
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 300,
    }
    return KafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, **(defaults | settings))


def poll_all(consumer: Any, count: int) -> set[bytes]:
    values: set[bytes] = set()

    def poll() -> bool | None:
        for records in consumer.poll(timeout_ms=200).values():
            values.update(record.value for record in records)
        return len(values) >= count or None

    eventually(poll, f"{count} records")
    return values


def test_smoke_kafka_python(broker: Broker, wire: Wire, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    old = fill(wire, topic, 2)
    with closing(kafka_python(broker, group, topic)) as consumer:
        assert poll_all(consumer, 20) == old
        consumer.commit()
    new = fill(wire, topic, 2)
    with closing(kafka_python(broker, group, topic)) as consumer:
        assert poll_all(consumer, 20) == new


@pytest.mark.compat
class TestKafkaPython:
    def test_two_share(self, broker: Broker, group: str, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=4)
        first = kafka_python(broker, group, topic)
        second = kafka_python(broker, group, topic)
        with closing(second):
            with closing(first):

                def shared() -> bool | None:
                    for consumer in (first, second):
                        consumer.poll(timeout_ms=200)
                    return len(first.assignment()) == len(second.assignment()) == 2 or None

                eventually(shared, "partitions are shared")
                assert len(first.assignment() | second.assignment()) == 4

            def alone() -> bool | None:
                second.poll(timeout_ms=200)
                return len(second.assignment()) == 4 or None

            eventually(alone, "the other takes over")

    def test_commits_with_words(self, broker: Broker, group: str, topic: str) -> None:
        partition = PyPartition(topic, 0)
        with closing(kafka_python(broker, group)) as consumer:
            consumer.assign([partition])
            consumer.commit({partition: OffsetAndMetadata(42, "wörds", 0)})
        with closing(kafka_python(broker, group)) as other:
            found = other.committed(partition, metadata=True)
            assert (found.offset, found.metadata) == (42, "wörds")

    def test_static_member(self, broker: Broker, group: str, wire: Wire, topic: str) -> None:
        fill(wire, topic, 1)
        generations: list[int] = []
        for _ in range(2):
            consumer = kafka_python(broker, group, topic, group_instance_id="one")
            with closing(consumer):
                poll_all(consumer, 10)
                (described,) = wire.call(DescribeGroupsRequest(groups=[group]), 5).groups
                assert [m.group_instance_id for m in described.members] == ["one"]
                generations.append(consumer._coordinator.generation_if_stable().generation_id)
        assert generations[0] == generations[1]


# ---- aiokafka --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [pytest.param(1, id="one"), pytest.param(2, id="two")])
def test_smoke_aiokafka(
    broker: Broker, wire: Wire, group: str, make_topic: MakeTopic, count: int
) -> None:
    topic = make_topic(partitions=2)
    old = fill(wire, topic, 2)

    def consumer() -> Any:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
        )

    async def consume() -> None:
        consumers = [consumer() for _ in range(count)]
        await asyncio.gather(*(one.start() for one in consumers))
        try:
            values: set[bytes] = set()
            while values != old:
                for one in consumers:
                    batches = await one.getmany(timeout_ms=200)
                    values |= {r.value for records in batches.values() for r in records}
            while {len(one.assignment()) for one in consumers} != {2 // count}:
                await asyncio.gather(*(one.getmany(timeout_ms=200) for one in consumers))
            for one in consumers:
                await one.commit({partition: (10, "words") for partition in one.assignment()})
            partition = AioPartition(topic, 0)
            assert await consumers[0].committed(partition) == 10
        finally:
            for one in consumers:
                await one.stop()

    asyncio.run(asyncio.wait_for(consume(), DEADLINE))


# ---- Java ------------------------------------------------------------------------------------


@pytest.fixture
def java(broker: Broker) -> Java:
    return Java(broker.bootstrap)


@pytest.mark.compat
class TestJava:
    def console(self, java: Java, topic: str, group: str, count: int, *more: str) -> list[str]:
        return java.run(
            "consumer.ConsoleConsumer",
            *("--topic", topic, "--group", group, "--from-beginning"),
            *("--max-messages", str(count), "--timeout-ms", "30000", *more),
        ).splitlines()

    def test_console_consumer(
        self, java: Java, wire: Wire, group: str, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(partitions=2)
        old = fill(wire, topic, 2)
        assert {line.encode() for line in self.console(java, topic, group, 20)} == old
        new = fill(wire, topic, 2)
        assert {line.encode() for line in self.console(java, topic, group, 20)} == new

    def test_static_console_consumer(self, java: Java, wire: Wire, group: str, topic: str) -> None:
        old = fill(wire, topic, 1)
        more = ("--command-property", "group.instance.id=one")
        assert {line.encode() for line in self.console(java, topic, group, 10, *more)} == old

    def test_groups_command(self, java: Java, wire: Wire, group: str, topic: str) -> None:
        fill(wire, topic, 1)
        self.console(java, topic, group, 7)
        tool = "consumer.group.ConsumerGroupCommand"
        assert group in java.run(tool, "--list").split()
        described = java.run(tool, "--describe", "--group", group)
        assert re.search(rf"{group}\s+{topic}\s+0\s+7\s+10\s+3\s", described)
        state = java.run(tool, "--describe", "--group", group, "--state")
        assert "Empty" in state
        reset = ("--reset-offsets", "--to-offset", "2", "--topic", topic, "--execute")
        java.run(tool, "--group", group, *reset)
        described = java.run(tool, "--describe", "--group", group)
        assert re.search(rf"{topic}\s+0\s+2\s+10\s+8\s", described)
        java.run(tool, "--delete-offsets", "--group", group, "--topic", topic)
        java.run(tool, "--delete", "--group", group)
        assert group not in java.run(tool, "--list").split()
