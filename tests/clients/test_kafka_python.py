"""kafka-python, which speaks the newest versions and keeps fetch sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pytest
from kafka.admin import AlterConfigOp, ConfigFilterType, ConfigResource, OffsetSpec
from kafka.errors import BrokerResponseError, OffsetOutOfRangeError
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

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

MILLISECONDS = int(DEADLINE * 1000)


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise Refused(error.errno) from error


class KafkaPython:
    """The adapter."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def producer(self, **settings: Any) -> Any:
        defaults = {"linger_ms": 100, "max_request_size": 12 * MEBIBYTE}
        return KafkaProducer(bootstrap_servers=self.bootstrap, **(defaults | settings))

    def consumer(self, **settings: Any) -> Any:
        defaults = {"auto_offset_reset": "none", "enable_auto_commit": False}
        return KafkaConsumer(bootstrap_servers=self.bootstrap, **(defaults | settings))

    @contextmanager
    def admin(self) -> Iterator[Any]:
        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin, refusals():
            yield admin

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
        settings = {
            "compression_type": None if codec == "none" else codec,
            "acks": acks if acks == "all" else int(acks),
            "enable_idempotence": idempotent,
        }
        with closing(self.producer(**settings)) as producer, refusals():
            sent = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    partition,
                    record.timestamp,
                )
                for record in records
            ]
            producer.flush(DEADLINE)
            for future in sent:
                future.get(DEADLINE)

    def write_everywhere(self, topic: str, values: Mapping[int, bytes]) -> None:
        with closing(self.producer()) as producer, refusals():
            for partition, value in values.items():
                producer.send(topic, value, partition=partition)
            producer.flush(DEADLINE)

    def read(
        self, topic: str, count: int, *, partition: int = 0, start: int | None = None
    ) -> list[Stored]:
        with closing(self.consumer()) as consumer:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            if start is None:
                consumer.seek_to_beginning(place)
            else:
                consumer.seek(place, start)
            return [stored(record) for record in take(consumer, count)]

    def read_everywhere(self, topic: str, partitions: int) -> dict[int, list[bytes | None]]:
        found: dict[int, list[bytes | None]] = {}
        with closing(self.consumer()) as consumer:
            consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
            consumer.seek_to_beginning()
            for record in take(consumer, partitions):
                found.setdefault(record.partition, []).append(record.value)
        return found

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        with closing(self.consumer()) as consumer:
            low, high = consumer.beginning_offsets([place]), consumer.end_offsets([place])
            return low[place], high[place]

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        place = TopicPartition(topic, partition)
        with closing(self.consumer()) as consumer:
            found = consumer.offsets_for_times({place: timestamp})[place]
            return None if found is None else int(found.offset)

    def read_out_of_range(self, topic: str, start: int) -> int:
        with closing(self.consumer()) as consumer:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, start)
            with pytest.raises(OffsetOutOfRangeError) as error:
                take(consumer, 1)
            return int(error.value.errno)

    # ---- administration ------------------------------------------------------------------

    def create(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        options = {
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": dict(configs or {}),
        }
        with self.admin() as admin:
            admin.create_topics({topic: options})

    def delete(self, topic: str) -> None:
        with self.admin() as admin:
            admin.delete_topics([topic])

    def topics(self) -> set[str]:
        with self.admin() as admin:
            return set(admin.list_topics())

    def partitions(self, topic: str) -> int:
        with self.admin() as admin:
            (found,) = admin.describe_topics([topic])
            return len(found["partitions"])

    def grow(self, topic: str, partitions: int) -> None:
        with self.admin() as admin:
            admin.create_partitions({topic: partitions})

    def delete_records(self, topic: str, before: int, partition: int = 0) -> int:
        place = TopicPartition(topic, partition)
        with self.admin() as admin:
            return int(admin.delete_records({place: before})[place]["low_watermark"])

    def entries(self, topic: str) -> dict[str, dict[str, Any]]:
        resource = ConfigResource("TOPIC", topic)
        with self.admin() as admin:
            found = admin.describe_configs([resource], config_filter=ConfigFilterType.ALL)
            return dict(found["topic"][topic])

    def configs(self, topic: str) -> dict[str, str | None]:
        return {name: entry["value"] for name, entry in self.entries(topic).items()}

    def configure(self, topic: str, configs: Mapping[str, str]) -> None:
        self.change(topic, configs)

    def change(self, topic: str, changes: Mapping[str, Any], *, incremental: bool = True) -> None:
        resource = ConfigResource("TOPIC", topic, dict(changes))
        with self.admin() as admin:
            result = admin.alter_configs([resource], incremental=incremental)["topic"][topic]
        if result != "OK":
            # The client turns the code into words: "[Error 40] InvalidConfigurationError: ..."
            raise Refused(int(result.partition("]")[0].rpartition(" ")[2]))

    def cluster(self) -> tuple[str, list[str]]:
        with self.admin() as admin:
            found = admin.describe_cluster()
        brokers = [f"{broker['host']}:{broker['port']}" for broker in found["brokers"]]
        return found["cluster_id"], brokers


def take(consumer: Any, count: int) -> list[Any]:
    """The next records of all assigned partitions."""
    records: list[Any] = []

    def poll() -> bool | None:
        for found in consumer.poll(timeout_ms=1000, max_records=count - len(records)).values():
            records.extend(found)
        return len(records) == count or None

    eventually(poll, f"{count} records")
    return records


def stored(record: Any) -> Stored:
    return Stored(record.offset, record.value, record.key, tuple(record.headers), record.timestamp)


@pytest.fixture
def client(broker: Broker) -> KafkaPython:
    return KafkaPython(broker.bootstrap)


def test_smoke(client: KafkaPython, topic: str) -> None:
    client.write(topic, numbered(100), codec="gzip", idempotent=True)
    assert [record.value for record in client.read(topic, 100)] == [
        record.value for record in numbered(100)
    ]


class TestWriting(WritingScenarios):
    pass


class TestRecords(RecordScenarios):
    null_alone = False
    null_header = False


class TestReading(ReadingScenarios):
    pass


class TestWide(WideScenarios):
    pass


class TestAdmin(AdminScenarios):
    pass


@pytest.mark.compat
class TestMore:
    """What only this client shows."""

    def test_fetch_session_sees_partitions_come_and_go(
        self, client: KafkaPython, wire: Wire, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(partitions=3)
        places = [TopicPartition(topic, index) for index in range(3)]
        with closing(client.consumer(auto_offset_reset="earliest")) as consumer:
            for rounds, assigned in enumerate([places, places[:2], places[1:]]):
                consumer.assign(assigned)
                consumer.seek_to_end()
                for place in assigned:
                    consumer.position(place)
                for place in assigned:
                    value = f"{place.partition} in round {rounds}".encode()
                    wire.write(topic, [Record(value)], partition=place.partition)
                found = take(consumer, len(assigned))
                assert {record.value for record in found} == {
                    f"{place.partition} in round {rounds}".encode() for place in assigned
                }

    def test_out_of_range_is_reset(self, client: KafkaPython, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(5))
        with closing(client.consumer(auto_offset_reset="earliest")) as consumer:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, 99)
            assert take(consumer, 5)[0].offset == 0

    def test_high_watermark(self, client: KafkaPython, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(8))
        with closing(client.consumer(auto_offset_reset="earliest")) as consumer:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            take(consumer, 1)
            assert consumer.highwater(place) == 8

    def test_offset_specs(self, client: KafkaPython, wire: Wire, topic: str) -> None:
        wire.write(topic, [Record(b"x", timestamp=1000 * n) for n in (5, 9, 7)])
        wire.write(topic, [Record(b"x", timestamp=1000 * n) for n in (8, 6)])
        place = TopicPartition(topic, 0)
        specs = {
            OffsetSpec.EARLIEST: (0, -1),
            OffsetSpec.LATEST: (5, -1),
            OffsetSpec.MAX_TIMESTAMP: (1, 9000),
            OffsetSpec.EARLIEST_LOCAL: (0, -1),
            7500: (1, 9000),
            9001: (-1, -1),
        }
        with client.admin() as admin:
            for spec, expected in specs.items():
                found = admin.list_partition_offsets({place: spec})[place]
                assert (found.offset, found.timestamp) == expected, spec

    def test_append_and_subtract(self, client: KafkaPython, topic: str) -> None:
        def policies() -> set[str]:
            return set((client.configs(topic)["cleanup.policy"] or "").split(","))

        client.change(topic, {"cleanup.policy": (AlterConfigOp.APPEND, "compact")})
        eventually(lambda: policies() == {"delete", "compact"} or None, "appended")
        client.change(topic, {"cleanup.policy": (AlterConfigOp.SUBTRACT, "delete")})
        eventually(lambda: policies() == {"compact"} or None, "subtracted")
        client.change(topic, {"cleanup.policy": (AlterConfigOp.DELETE, None)})
        eventually(lambda: policies() == {"delete"} or None, "back to the default")

    def test_alter_configs_replaces_all(self, client: KafkaPython, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"retention.ms": "3600000"})
        client.change(topic, {"max.message.bytes": "2000000"}, incremental=False)
        eventually(
            lambda: client.configs(topic)["max.message.bytes"] == "2000000" or None, "it is set"
        )
        # The client adds what was set before, or it would be reset.
        assert client.configs(topic)["retention.ms"] == "3600000"

    def test_settings_tell_where_they_come_from(
        self, client: KafkaPython, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(configs={"retention.ms": "3600000"})
        entries = client.entries(topic)
        assert entries["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
        assert entries["retention.bytes"]["config_source"] == "DEFAULT_CONFIG"

    def test_create_with_defaults_of_the_broker(self, client: KafkaPython, topic: str) -> None:
        with client.admin() as admin:
            (made,) = admin.create_topics([f"{topic}-2"])["topics"]
        assert (made["num_partitions"], made["replication_factor"]) == (1, 1)
        assert made["configs"]["cleanup.policy"]["value"] == "delete"

    def test_validate_only(self, client: KafkaPython, wire: Wire, topic: str) -> None:
        with client.admin() as admin:
            admin.create_topics([f"{topic}-2"], validate_only=True)
        assert wire.metadata(f"{topic}-2").error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_describe_topic_partitions(self, client: KafkaPython, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=5)
        with client.admin() as admin:
            found = admin.describe_topic_partitions([topic], response_partition_limit=2)
        (described,) = found["topics"]
        assert [one["partition_index"] for one in described["partitions"]] == [0, 1]
        assert found["next_cursor"] == {"topic_name": topic, "partition_index": 2}

    def test_log_folders(self, client: KafkaPython, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(10))
        with client.admin() as admin:
            (described,) = admin.describe_log_dirs([topic])
        (folder,) = described["log_dirs"]
        (found,) = folder["topics"]
        assert (folder["error_code"], found["name"]) == (Code.NONE, topic)
        (partition,) = found["partitions"]
        assert partition["partition_size"] > 100
        assert (partition["offset_lag"], partition["is_future_key"]) == (0, False)
        assert folder["total_bytes"] >= folder["usable_bytes"] > 0
