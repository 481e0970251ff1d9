"""The clients of the kill tests: they live through every death of the broker, and keep the journal.

Producers are idempotent and retry for ever. Their records name themselves in every byte, so that a
reader can tell a changed one.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.fault.client_history import Entry, History, Spot

SMALL, BULK = "small", "bulk"
# Segments as small as they can be for their batches: rolls and checkpoints happen all the time.
TOPICS = {
    SMALL: (4, {"segment.bytes": "65536", "index.interval.bytes": "1024"}),
    BULK: (2, {"segment.bytes": "1048576"}),
}
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
SPOTS = [Spot(topic, number) for topic, (count, _) in TOPICS.items() for number in range(count)]
CLIENT = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    # By default a client that lost all brokers starts from scratch, and takes a second or more.
    "metadata.recovery.strategy": "none",
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,  # that the broker goes away is what is tested
}
READ_SECONDS_MAX = 60.0


class Style(NamedTuple):
    """What one producer is like."""

    topic: str
    size: range
    per_turn: int
    settings: dict[str, Any]


STYLES = [
    Style(SMALL, range(20, 100), 8, {"linger.ms": 0, "batch.size": 16_384}),
    Style(SMALL, range(20, 300), 12, {"linger.ms": 5, "batch.size": 16_384}),
    Style(SMALL, range(20, 200), 8, {"linger.ms": 2, "compression.type": "lz4"}),
    # Large batches: a kill can cut a write in two between any two pages.
    Style(BULK, range(10_000, 60_000), 1, {"linger.ms": 20, "batch.size": 500_000}),
]


def make_value(producer: int, number: int, size: int) -> bytes:
    """A record that names itself."""
    head = b"%d/%d/%d/" % (producer, number, size)
    return (head * (size // len(head) + 1))[:size]


def name_of(value: bytes) -> bytes:
    """The record's name; the bytes themselves if they are not as somebody sent them."""
    parts = value.split(b"/", 3)
    if len(parts) == 4 and all(part.isdigit() for part in parts[:3]):
        producer, number, size = map(int, parts[:3])
        if size == len(value) and value == make_value(producer, number, size):
            return b"/".join(parts[:3])
    return value


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(name, count, 1, config=config | FOR_EVER)
        for name, (count, config) in TOPICS.items()
    ]
    for made in admin.create_topics(topics).values():
        made.result(30)


class Load:
    """Producers on one thread; what is acknowledged goes to the journal."""

    def __init__(self, bootstrap: str, history: History, seed: int) -> None:
        self._history = history
        self._random = random.Random(seed)
        self._producers = [Producer(self._config(bootstrap) | style.settings) for style in STYLES]
        self._numbers = [0] * len(STYLES)
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def _config(self, bootstrap: str) -> dict[str, Any]:
        return CLIENT | {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": 0,  # retry for ever
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 100,
            "queue.buffering.max.messages": 1000,
            "error_cb": self._failed,
        }

    def _failed(self, error: KafkaError) -> None:
        """That the broker is away is no failure; that a producer has given up is."""
        if error.fatal():
            self.failures.append(f"a producer gave up: {error}")

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                for producer in range(len(STYLES)):
                    self._turn(producer)
                time.sleep(0.005)
        except Exception as error:  # the test reads it; a thread can tell nobody else
            self.failures.append(repr(error))

    def _turn(self, producer: int) -> None:
        style = STYLES[producer]
        client = self._producers[producer]
        client.poll(0)
        for _ in range(style.per_turn):
            # Full queues are asked for, not found out: what is noted as sent must be sent.
            if len(client) >= 990:
                return
            spot = Spot(style.topic, self._random.randrange(TOPICS[style.topic][0]))
            value = make_value(producer, self._numbers[producer], self._random.choice(style.size))
            self._numbers[producer] += 1
            name = name_of(value)
            self._history.sent(spot, producer, name)
            delivered = partial(self._delivered, spot, name)
            client.produce(spot.topic, value, partition=spot.partition, on_delivery=delivered)

    def _delivered(self, spot: Spot, name: bytes, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(f"{name!r} was given up: {error}")
        elif Spot(message.topic(), message.partition()) != spot or message.offset() < 0:
            self.failures.append(f"{name!r} acknowledged nowhere: {message.offset()}")
        else:
            self._history.acknowledged(spot, name, message.offset())

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def finish(self) -> None:
        """Send no more, and wait until everything was acknowledged."""
        self.stop()
        for producer in self._producers:
            left = producer.flush(60)
            if left:
                self.failures.append(f"{left} records still wait for an acknowledgement")


class TailReader:
    """Follows every partition, through all of the broker's lives, and remembers what it saw."""

    def __init__(self, bootstrap: str, history: History) -> None:
        self._history = history
        self._consumer = _consumer(bootstrap)
        self._consumer.assign([TopicPartition(*spot, 0) for spot in history.spots])
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail reader")
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                for message in self._consumer.consume(500, 0.1):
                    self._note(message)
        except Exception as error:  # the test reads it; a thread can tell nobody else
            self.failures.append(repr(error))

    def _note(self, message: Any) -> None:
        if message.error() is None:
            spot = Spot(message.topic(), message.partition())
            self._history.saw(spot, message.offset(), name_of(message.value()))
        elif not _broker_is_away(message.error()):
            # Such as an offset out of range: the log got shorter than what this reader read.
            self.failures.append(f"a reader was told {message.error()}")

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()


@contextmanager
def running(bootstrap: str, history: History, seed: int) -> Iterator[tuple[Load, TailReader]]:
    """The clients, until the end of the block."""
    load = Load(bootstrap, history, seed)
    reader = TailReader(bootstrap, history)
    try:
        yield load, reader
    finally:
        load.stop()
        reader.stop()


def read_everything(bootstrap: str, spots: list[Spot]) -> dict[Spot, list[Entry]]:
    """Every partition from offset 0 to where it ends now, by a new client."""
    logs: dict[Spot, list[Entry]] = {spot: [] for spot in spots}
    with closing(_consumer(bootstrap)) as consumer:
        ends: dict[Spot, int] = {}
        for spot in spots:
            start, ends[spot] = consumer.get_watermark_offsets(TopicPartition(*spot), timeout=30)
            assert start == 0, f"{spot} begins at {start}"
        left = {spot for spot in spots if ends[spot] > 0}
        consumer.assign([TopicPartition(*spot, 0) for spot in left])
        deadline = time.monotonic() + READ_SECONDS_MAX
        while left:
            assert time.monotonic() < deadline, f"{left} were not read to {ends}"
            for message in consumer.consume(2000, 0.2):
                if message.error() is not None:
                    raise KafkaException(message.error())
                spot = Spot(message.topic(), message.partition())
                if message.offset() < ends[spot]:
                    logs[spot].append(Entry(message.offset(), name_of(message.value())))
                if message.offset() + 1 >= ends[spot]:
                    left.discard(spot)
    return logs


def _consumer(bootstrap: str) -> Any:
    return Consumer(
        CLIENT
        | {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",  # required, though assigned partitions need no group
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 10,
            "enable.partition.eof": False,
        }
    )


def _broker_is_away(error: KafkaError) -> bool:
    return error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)
