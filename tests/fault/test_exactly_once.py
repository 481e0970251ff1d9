"""Exactly once: a transactional copy, while broker and workers are killed at random.

Workers copy a topic in transactions that also commit their offsets: three with librdkafka, in the older
one of Kafka's protocols, or two of Java's own copier, in the newer one, which also abort now and then.
In the end a reader of committed records must find every record once, and the records of each partition
in order; it must see nothing of a transaction that was cut off.

    PENSTOCK_KILL_SECONDS   how long to kill (default 60; `make fault-groups` takes 600)
    PENSTOCK_KILL_SEED      when to kill whom (default: another one each time; it is printed)
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.fault.killed_broker import CLIENT
from tests.support.serving import Serving, steady_port
from tools.kafka import java_command

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1800)]

SECONDS = float(os.environ.get("PENSTOCK_KILL_SECONDS", "60"))
SEED = int(os.environ.get("PENSTOCK_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
PARTITIONS = 4
SOURCE, TARGET, GROUP = "source", "target", "copiers"
ROOT = Path(__file__).resolve().parents[2]


class Kind(NamedTuple):
    """A kind of worker."""

    name: str
    workers: int
    pause: float
    """How long to leave all of them alone, at most."""
    command: Callable[[str, str], list[str]]
    """By bootstrap and transactional id."""
    copy: Callable[[bytes], bytes]
    """What it makes of a value."""


def confluent_copier(bootstrap: str, name: str) -> list[str]:
    return [sys.executable, "-m", "tests.fault.copier", bootstrap, name, GROUP, SOURCE, TARGET]


def java_copier(bootstrap: str, name: str) -> list[str]:
    """It ends by itself where its input ended when it began, and is then started again."""
    program, *rest = java_command(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", bootstrap, "--transactional-id", name, "--consumer-group", GROUP),
        *("--input-topic", SOURCE, "--input-partition", "-1", "--output-topic", TARGET),
        *("--transaction-size", "100", "--transaction-timeout", "10000"),
        *("--group-mode", "--use-group-metadata", "--enable-random-aborts"),
        heap="128m",
    )
    # A quick start: it is killed before it could become fast.
    return [program, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *rest]


CONFLUENT = Kind("confluent", 3, 4.0, confluent_copier, lambda value: value[::-1])
JAVA = Kind("java", 2, 12.0, java_copier, lambda value: value)


class Pipeline:
    """A broker and its workers, each of which is started again when it ends."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self._folder = folder
        self._kind = kind
        self.bootstrap = f"127.0.0.1:{steady_port()}"
        self.broker = self._start_broker()
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.counts: Counter[str] = Counter()

    def _start_broker(self) -> Serving:
        data, errors = self._folder / "data", self._folder / "stderr.log"
        return Serving(data, errors, kafka=self.bootstrap).wait_ready()

    def keep_workers(self) -> None:
        for number in range(self._kind.workers):
            worker = self.workers.get(number)
            if worker is not None and worker.poll() is None:
                continue
            if worker is not None and worker.returncode == 1:
                self.counts["gave up by themselves"] += 1
            command = self._kind.command(self.bootstrap, f"copier-{number}")
            with (self._folder / f"copier-{number}.log").open("ab") as errors:
                self.workers[number] = subprocess.Popen(
                    command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors
                )

    def kill_worker(self, number: int) -> None:
        self.workers[number].kill()
        self.workers[number].wait()
        self.counts["workers killed"] += 1

    def kill_broker(self) -> None:
        self.broker.kill()
        self.counts["brokers killed"] += 1
        self.broker = self._start_broker()

    def close(self) -> None:
        for worker in self.workers.values():
            worker.kill()
            worker.wait()
        if self.broker.process.poll() is None:
            self.broker.kill()


class Source:
    """An idempotent producer of numbered records, partition by partition."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            CLIENT
            | {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "queue.buffering.max.messages": 10_000,
            }
        )
        self.sent = [0] * PARTITIONS

    def produce(self, count: int) -> None:
        for _ in range(count):
            for partition in range(PARTITIONS):
                if len(self._producer) > 9_000:
                    break
                value = value_of(partition, self.sent[partition])
                self._producer.produce(SOURCE, value, partition=partition)
                self.sent[partition] += 1
        self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(60) == 0


def value_of(partition: int, number: int) -> bytes:
    return b"%d/%08d" % (partition, number)


def committed(pipeline: Pipeline, wanted: list[int]) -> list[list[bytes]]:
    """Everything a reader of committed records sees, when there is as much as was sent, or more."""
    consumer = Consumer(
        CLIENT
        | {
            "bootstrap.servers": pipeline.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TARGET, number, 0) for number in range(PARTITIONS)])
    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    at_end: set[int] = set()
    deadline = time.monotonic() + 180
    while True:
        pipeline.keep_workers()
        for message in consumer.consume(10_000, 0.5):
            if message.error():
                at_end.add(message.partition())
            else:
                values[message.partition()].append(message.value())
                at_end.discard(message.partition())
        complete = all(len(v) >= n for v, n in zip(values, wanted, strict=True))
        if complete and len(at_end) == PARTITIONS:
            consumer.close()
            return values
        assert time.monotonic() < deadline, f"{[len(v) for v in values]} of {wanted}"


@pytest.mark.parametrize("kind", [CONFLUENT, JAVA], ids=lambda kind: kind.name)
def test_every_record_is_copied_once(tmp_path: Path, kind: Kind) -> None:
    print(f"seed {SEED}, {SECONDS:.0f} s")
    chance = random.Random(SEED)
    with ExitStack() as stack:
        pipeline = Pipeline(tmp_path, kind)
        stack.callback(pipeline.close)
        admin = AdminClient(CLIENT | {"bootstrap.servers": pipeline.bootstrap})
        topics = [NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)]
        for made in admin.create_topics(topics).values():
            made.result(30)
        source = Source(pipeline.bootstrap)
        end = time.monotonic() + SECONDS
        next_kill = time.monotonic() + 5
        while time.monotonic() < end:
            pipeline.keep_workers()
            source.produce(5)
            time.sleep(0.02)
            if time.monotonic() > next_kill:
                if chance.random() < 0.4:
                    pipeline.kill_broker()
                else:
                    pipeline.kill_worker(chance.randrange(kind.workers))
                next_kill = time.monotonic() + chance.uniform(0.2, kind.pause)
        source.finish()
        found = committed(pipeline, source.sent)
        print(dict(pipeline.counts), f"{sum(source.sent)} records")
        for partition, values in enumerate(found):
            sent = range(source.sent[partition])
            assert values == [kind.copy(value_of(partition, n)) for n in sent]
        assert pipeline.counts["brokers killed"] and pipeline.counts["workers killed"]
