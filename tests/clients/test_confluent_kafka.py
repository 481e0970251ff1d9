"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from tests.clients.brokers import Broker
from tests.clients.contract import (
    DEADLINE,
    MEBIBYTE,
    Code,
    MakeTopic,
    Record,
    Refused,
    Stored,
    eventually,
    numbered,
)
from tests.clients.scenarios import (
    AdminScenarios,
    ReadingScenarios,
    RecordScenarios,
    WideScenarios,
    WritingScenarios,
)
from tests.clients.wire import Wire


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise Refused(error.args[0].code()) from error


class Confluent:
    """The adapter."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def producer(self, **settings: Any) -> Any:
        config = {
            "bootstrap.servers": self.bootstrap,
            "linger.ms": 100,
            "message.max.bytes": 12 * MEBIBYTE,
            "topic.metadata.propagation.max.ms": 10_000,
        }
        return Producer(config | {name.replace("_", "."): v for name, v in settings.items()})

    def consumer(self, **settings: Any) -> Any:
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "unused",  # required, though assigned partitions need no group
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 12 * MEBIBYTE,
            "check.crcs": True,
        }
        return Consumer(config | {name.replace("_", "."): v for name, v in settings.items()})

    @cached_property
    def admin(self) -> Any:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    # ---- writing and reading -------------------------------------------------------------

    def write(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        failed: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error.code())

        producer = self.producer(compression_type=codec, acks=acks, enable_idempotence=idempotent)
        for record in records:
            more = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                on_delivery=delivered,
                headers=list(record.headers),
                **more,
            )
        assert producer.flush(DEADLINE) == 0
        if failed:
            raise Refused(failed[0])

    def write_everywhere(self, topic: str, values: Mapping[int, bytes]) -> None:
        producer = self.producer()
        for partition, value in values.items():
            producer.produce(topic, value, partition=partition)
        assert producer.flush(DEADLINE) == 0

    def read(
        self, topic: str, count: int, *, partition: int = 0, start: int | None = None
    ) -> list[Stored]:
        with closing(self.consumer()) as consumer:
            offset = OFFSET_BEGINNING if start is None else start
            consumer.assign([TopicPartition(topic, partition, offset)])
            return [stored(message) for message in take(consumer, count)]

    def read_everywhere(self, topic: str, partitions: int) -> dict[int, list[bytes | None]]:
        found: dict[int, list[bytes | None]] = {}
        with closing(self.consumer()) as consumer:
            consumer.assign(
                [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)]
            )
            for message in take(consumer, partitions):
                found.setdefault(message.partition(), []).append(message.value())
        return found

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        with closing(self.consumer()) as consumer:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), DEADLINE)
            return low, high

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        with closing(self.consumer()) as consumer:
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, partition, timestamp)], DEADLINE
            )
            return None if found.offset < 0 else int(found.offset)

    def read_out_of_range(self, topic: str, start: int) -> int:
        with closing(self.consumer()) as consumer:
            consumer.assign([TopicPartition(topic, 0, start)])
            message = consumer.poll(DEADLINE)
            assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
            assert "Broker: Offset out of range" in message.error().str()
            return Code.OFFSET_OUT_OF_RANGE

    # ---- administration ------------------------------------------------------------------

    def create(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, 1, config=dict(configs or {}))
        with refusals():
            only(self.admin.create_topics([new]))

    def delete(self, topic: str) -> None:
        with refusals():
            only(self.admin.delete_topics([topic]))

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=DEADLINE).topics)

    def partitions(self, topic: str) -> int:
        with refusals():
            found = only(self.admin.describe_topics(TopicCollection([topic])))
        return len(found.partitions)

    def grow(self, topic: str, partitions: int) -> None:
        with refusals():
            only(self.admin.create_partitions([NewPartitions(topic, partitions)]))

    def delete_records(self, topic: str, before: int, partition: int = 0) -> int:
        with refusals():
            deleted = only(self.admin.delete_records([TopicPartition(topic, partition, before)]))
        return int(deleted.low_watermark)

    def configs(self, topic: str) -> dict[str, str | None]:
        entries = only(self.admin.describe_configs([ConfigResource("topic", topic)]))
        return {name: entry.value for name, entry in entries.items()}

    def configure(self, topic: str, configs: Mapping[str, str]) -> None:
        self.change(topic, {name: ("SET", value) for name, value in configs.items()})

    def change(self, topic: str, changes: Mapping[str, tuple[str, str | None]]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType[operation])
            for name, (operation, value) in changes.items()
        ]
        resource = ConfigResource("topic", topic, incremental_configs=entries)
        with refusals():
            only(self.admin.incremental_alter_configs([resource]))

    def cluster(self) -> tuple[str, list[str]]:
        found = self.admin.describe_cluster().result(DEADLINE)
        return found.cluster_id, [f"{node.host}:{node.port}" for node in found.nodes]


def only(futures: Any) -> Any:
    """The result of the only one of a call's futures."""
    (future,) = futures.values()
    return future.result(DEADLINE)


def take(consumer: Any, count: int) -> list[Any]:
    """The next messages; an error is one that no test expects."""
    messages: list[Any] = []

    def poll() -> bool | None:
        messages.extend(consumer.consume(count - len(messages), timeout=1.0))
        return len(messages) == count or None

    eventually(poll, f"{count} messages")
    assert [message.error() for message in messages] == [None] * count
    return messages


def stored(message: Any) -> Stored:
    return Stored(
        message.offset(),
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )


@pytest.fixture
def client(broker: Broker) -> Confluent:
    return Confluent(broker.bootstrap)


def test_smoke(client: Confluent, topic: str) -> None:
    client.write(topic, numbered(100), codec="zstd", idempotent=True)
    assert [record.value for record in client.read(topic, 100)] == [
        record.value for record in numbered(100)
    ]


class TestWriting(WritingScenarios):
    pass


class TestRecords(RecordScenarios):
    pass


class TestReading(ReadingScenarios):
    pass


class TestWide(WideScenarios):
    pass


class TestAdmin(AdminScenarios):
    pass


@pytest.mark.compat
class TestMore:
    """What only this client shows."""

    @pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", 5)])
    def test_out_of_range_is_reset(
        self, client: Confluent, wire: Wire, topic: str, reset: str, expected: int
    ) -> None:
        wire.write(topic, numbered(5))
        with closing(client.consumer(auto_offset_reset=reset)) as consumer:
            consumer.assign([TopicPartition(topic, 0, 99)])
            if reset == "latest":  # nothing comes until something is written after the reset
                consumer.poll(0)
                eventually(lambda: late_record(consumer, wire, topic), "a record after the reset")
            else:
                assert take(consumer, 5)[0].offset() == expected

    def test_end_of_partition_is_reported(self, client: Confluent, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(5))
        with closing(client.consumer(enable_partition_eof=True)) as consumer:
            consumer.assign([TopicPartition(topic, 0, 3)])
            take(consumer, 2)
            end = consumer.poll(DEADLINE)
            assert (end.error().code(), end.offset()) == (KafkaError._PARTITION_EOF, 5)

    def test_unknown_topic(self, client: Confluent, topic: str) -> None:
        with pytest.raises(Refused) as refused:
            client.partitions(f"{topic}-not")
        assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_offset_specs(self, client: Confluent, wire: Wire, topic: str) -> None:
        wire.write(topic, [Record(b"x", timestamp=1000 * n) for n in (5, 9, 7)])
        wire.write(topic, [Record(b"x", timestamp=1000 * n) for n in (8, 6)])
        specs = {
            OffsetSpec.earliest(): 0,
            OffsetSpec.latest(): 5,
            OffsetSpec.max_timestamp(): 1,
            OffsetSpec.for_timestamp(7500): 1,
            OffsetSpec.for_timestamp(9001): -1,
        }
        for spec, expected in specs.items():
            found = only(client.admin.list_offsets({TopicPartition(topic, 0): spec}))
            assert found.offset == expected

    def test_append_and_subtract(self, client: Confluent, topic: str) -> None:
        def policies() -> set[str]:
            return set((client.configs(topic)["cleanup.policy"] or "").split(","))

        client.change(topic, {"cleanup.policy": ("APPEND", "compact")})
        eventually(lambda: policies() == {"delete", "compact"} or None, "appended")
        client.change(topic, {"cleanup.policy": ("SUBTRACT", "delete")})
        eventually(lambda: policies() == {"compact"} or None, "subtracted")
        client.change(topic, {"cleanup.policy": ("DELETE", None)})
        eventually(lambda: policies() == {"delete"} or None, "back to the default")

    def test_settings_tell_where_they_come_from(
        self, client: Confluent, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(configs={"retention.ms": "3600000"})
        entries = only(client.admin.describe_configs([ConfigResource("topic", topic)]))
        assert not entries["retention.ms"].is_default
        assert entries["retention.bytes"].is_default
        assert not entries["retention.ms"].is_read_only

    def test_settings_of_the_broker(self, client: Confluent) -> None:
        (node,) = client.admin.describe_cluster().result(DEADLINE).nodes
        resource = ConfigResource("broker", str(node.id))
        entries = only(client.admin.describe_configs([resource]))
        assert entries["default.replication.factor"].value == "1"
        assert entries["auto.create.topics.enable"].value == "true"


def late_record(consumer: Any, wire: Wire, topic: str) -> bool | None:
    """Write, and see whether it is read: the first try may come before the consumer's reset."""
    wire.write(topic, [Record(b"late")])
    message = consumer.poll(1.0)
    if message is None:
        return None
    assert message.error() is None
    assert message.value() == b"late"
    return True
