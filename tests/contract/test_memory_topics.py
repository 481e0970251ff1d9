"""A topic in memory that is filled to its bound by a real client, and goes on when it is trimmed."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.support.commands import Commands
from tests.support.serving import Serving, serving

VALUE_BYTES = 50_000
BOUND = 8 * 2**20
# What is refused is tried again until the client's own time is up.
GIVE_UP = {"delivery.timeout.ms": 3000, "batch.num.messages": 1}


class Written:
    """What became of the records of one producer."""

    def __init__(self, broker: Serving) -> None:
        self._producer = Producer({"bootstrap.servers": broker.bootstrap} | GIVE_UP)
        self.acknowledged: list[bytes] = []
        self.errors: list[KafkaError] = []

    def write(self, topic: str, *values: bytes) -> None:
        for value in values:
            self._producer.produce(topic, value, on_delivery=self._done)
        assert self._producer.flush(30) == 0

    def _done(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        value = message.value()
        assert isinstance(value, bytes)
        self.acknowledged.append(value)


def read(broker: Serving, topic: str, start: int, count: int) -> list[bytes | str | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[bytes | str | None] = []
    while len(found) < count:
        message = consumer.poll(10)
        assert message is not None, f"{len(found)} of {count}"
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


def test_a_topic_in_memory_is_filled_read_trimmed_and_filled_on(tmp_path: Path) -> None:
    with serving(tmp_path, "--memory-topics", "8MiB") as broker:
        cli = Commands(broker.bootstrap)
        cli.ok("topics", "create", "scratch", "--config", "penstock.durability=memory")
        cli.ok("topics", "create", "orders")
        written = Written(broker)
        written.write("scratch", *[b"%d " % number + bytes(VALUE_BYTES) for number in range(200)])
        taken = written.acknowledged
        assert BOUND - 3 * VALUE_BYTES < sum(map(len, taken)) <= BOUND
        assert len(written.errors) == 200 - len(taken)
        assert read(broker, "scratch", 0, len(taken)) == taken
        said = cli.refused(1, "produce", "scratch", "--timeout", "1", data=bytes(VALUE_BYTES))
        assert "KAFKA_STORAGE_ERROR: topics of durability memory may hold 8388608 bytes" in said
        assert "`penstock topics trim`" in said
        cli.ok("produce", "orders", data=bytes(VALUE_BYTES))
        cli.ok("topics", "trim", "scratch", "--all", "--yes")
        again = Written(broker)
        again.write("scratch", bytes(VALUE_BYTES))
        assert not again.errors
        assert read(broker, "scratch", len(taken), 1) == [bytes(VALUE_BYTES)]
        assert broker.terminate() == 0
        assert "writes to them are refused" in broker.stderr
        assert "writes to them are accepted" in broker.stderr
