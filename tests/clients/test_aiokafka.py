"""aiokafka, which speaks old versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource
from aiokafka.errors import BrokerResponseError, OffsetOutOfRangeError
from tests.clients.brokers import Broker
from tests.clients.contract import (
    DEADLINE,
    MEBIBYTE,
    Record,
    Refused,
    Stored,
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

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, within the deadline; the client's errors as ours."""
    with refusals():
        return asyncio.run(asyncio.wait_for(work, DEADLINE))


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise Refused(error.errno) from error


class AioKafka:
    """The adapter."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @asynccontextmanager
    async def producer(self, **settings: Any) -> AsyncIterator[Any]:
        defaults = {"linger_ms": 100, "max_request_size": 12 * MEBIBYTE}
        async with AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, **(defaults | settings)
        ) as producer:
            yield producer

    @asynccontextmanager
    async def consumer(self, **settings: Any) -> AsyncIterator[Any]:
        defaults = {"auto_offset_reset": "none", "enable_auto_commit": False}
        async with AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, **(defaults | settings)
        ) as consumer:
            yield consumer

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

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

        async def work() -> None:
            async with self.producer(**settings) as producer:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition,
                        record.timestamp,
                        list(record.headers),
                    )
                    for record in records
                ]
                await asyncio.gather(*sent)

        run(work())

    def write_everywhere(self, topic: str, values: Mapping[int, bytes]) -> None:
        async def work() -> None:
            async with self.producer() as producer:
                await asyncio.gather(
                    *[
                        await producer.send(topic, value, partition=partition)
                        for partition, value in values.items()
                    ]
                )

        run(work())

    def read(
        self, topic: str, count: int, *, partition: int = 0, start: int | None = None
    ) -> list[Stored]:
        async def work() -> list[Stored]:
            async with self.consumer() as consumer:
                place = TopicPartition(topic, partition)
                consumer.assign([place])
                if start is None:
                    await consumer.seek_to_beginning(place)
                else:
                    consumer.seek(place, start)
                return [stored(await consumer.getone()) for _ in range(count)]

        return run(work())

    def read_everywhere(self, topic: str, partitions: int) -> dict[int, list[bytes | None]]:
        async def work() -> dict[int, list[bytes | None]]:
            found: dict[int, list[bytes | None]] = {}
            async with self.consumer() as consumer:
                consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
                await consumer.seek_to_beginning()
                for _ in range(partitions):
                    record = await consumer.getone()
                    found.setdefault(record.partition, []).append(record.value)
            return found

        return run(work())

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        async def work() -> tuple[int, int]:
            place = TopicPartition(topic, partition)
            async with self.consumer() as consumer:
                low = await consumer.beginning_offsets([place])
                high = await consumer.end_offsets([place])
                return low[place], high[place]

        return run(work())

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        async def work() -> int | None:
            place = TopicPartition(topic, partition)
            async with self.consumer() as consumer:
                found = (await consumer.offsets_for_times({place: timestamp}))[place]
                return None if found is None else int(found.offset)

        return run(work())

    def read_out_of_range(self, topic: str, start: int) -> int:
        async def work() -> int:
            async with self.consumer() as consumer:
                place = TopicPartition(topic, 0)
                consumer.assign([place])
                consumer.seek(place, start)
                with pytest.raises(OffsetOutOfRangeError) as error:
                    await consumer.getone()
                return int(error.value.errno)

        return run(work())

    # ---- administration ------------------------------------------------------------------

    def create(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        async def work() -> Any:
            new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
            async with self.admin() as admin:
                return await admin.create_topics([new])

        check(run(work()).topic_errors)

    def delete(self, topic: str) -> None:
        async def work() -> Any:
            async with self.admin() as admin:
                return await admin.delete_topics([topic])

        check(run(work()).topic_error_codes)

    def topics(self) -> set[str]:
        async def work() -> set[str]:
            async with self.admin() as admin:
                return set(await admin.list_topics())

        return run(work())

    def partitions(self, topic: str) -> int:
        async def work() -> int:
            async with self.admin() as admin:
                (found,) = await admin.describe_topics([topic])
                return len(found["partitions"])

        return run(work())

    def grow(self, topic: str, partitions: int) -> None:
        async def work() -> None:
            async with self.admin() as admin:
                await admin.create_partitions({topic: NewPartitions(partitions)})

        run(work())

    def delete_records(self, topic: str, before: int, partition: int = 0) -> int:
        async def work() -> int:
            place = TopicPartition(topic, partition)
            async with self.admin() as admin:
                found = await admin.delete_records({place: RecordsToDelete(before)})
                return int(found[place])

        return run(work())

    def configs(self, topic: str) -> dict[str, str | None]:
        async def work() -> Any:
            async with self.admin() as admin:
                (answer,) = await admin.describe_configs([ConfigResource("TOPIC", topic)])
                return answer

        ((_code, _message, _kind, _name, entries),) = run(work()).resources
        return {entry[0]: entry[1] for entry in entries}

    def configure(self, topic: str, configs: Mapping[str, str]) -> None:
        async def work() -> Any:
            async with self.admin() as admin:
                resource = ConfigResource("TOPIC", topic, dict(configs))
                (answer,) = await admin.alter_configs([resource])
                return answer

        ((code, *_),) = run(work()).resources
        if code:
            raise Refused(code)

    def cluster(self) -> tuple[str, list[str]]:
        async def work() -> Any:
            async with self.admin() as admin:
                return await admin.describe_cluster()

        found = run(work())
        brokers = [f"{broker['host']}:{broker['port']}" for broker in found["brokers"]]
        return found["cluster_id"], brokers


def check(errors: Sequence[Sequence[Any]]) -> None:
    """Raise the error of the only topic in an answer."""
    ((_topic, code, *_),) = errors
    if code:
        raise Refused(code)


def stored(record: Any) -> Stored:
    return Stored(record.offset, record.value, record.key, tuple(record.headers), record.timestamp)


@pytest.fixture
def client(broker: Broker) -> AioKafka:
    return AioKafka(broker.bootstrap)


def test_smoke(client: AioKafka, topic: str) -> None:
    client.write(topic, numbered(100), codec="lz4", idempotent=True)
    assert [record.value for record in client.read(topic, 100)] == [
        record.value for record in numbered(100)
    ]


class TestWriting(WritingScenarios):
    pass


class TestRecords(RecordScenarios):
    null_alone = False


class TestReading(ReadingScenarios):
    pass


class TestWide(WideScenarios):
    pass


class TestAdmin(AdminScenarios):
    pass


@pytest.mark.compat
class TestMore:
    """What only this client shows."""

    def test_many_producers_and_consumers_at_once(
        self, client: AioKafka, wire: Wire, topic: str
    ) -> None:
        writers, each = 8, 250

        async def write(number: int) -> None:
            async with client.producer(linger_ms=0, enable_idempotence=True) as producer:
                for sequence in range(each):
                    await producer.send(topic, f"{number}:{sequence}".encode(), partition=0)
                await producer.flush()

        async def read() -> list[str]:
            async with client.consumer() as consumer:
                place = TopicPartition(topic, 0)
                consumer.assign([place])
                consumer.seek(place, 0)
                return [(await consumer.getone()).value.decode() for _ in range(writers * each)]

        async def work() -> list[list[str]]:
            async with asyncio.TaskGroup() as group:
                readers = [group.create_task(read()) for _ in range(4)]
                for number in range(writers):
                    group.create_task(write(number))
            return [reader.result() for reader in readers]

        first, *others = run(work())
        assert others == [first] * 3
        for number in range(writers):
            mine = [value for value in first if value.startswith(f"{number}:")]
            assert mine == [f"{number}:{sequence}" for sequence in range(each)]
        assert len(wire.stored(topic)) == writers * each

    def test_out_of_range_is_reset(self, client: AioKafka, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(5))

        async def work() -> int:
            async with client.consumer(auto_offset_reset="earliest") as consumer:
                place = TopicPartition(topic, 0)
                consumer.assign([place])
                consumer.seek(place, 99)
                return int((await consumer.getone()).offset)

        assert run(work()) == 0

    def test_high_watermark(self, client: AioKafka, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(8))

        async def work() -> int:
            async with client.consumer() as consumer:
                place = TopicPartition(topic, 0)
                consumer.assign([place])
                consumer.seek(place, 0)
                await consumer.getone()
                return int(consumer.highwater(place))

        assert run(work()) == 8
