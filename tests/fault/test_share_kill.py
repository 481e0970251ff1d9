"""kill -9 of the broker under share consumers: all is accepted, and nothing comes again after that.

Consumers live as long as the broker does, so that whatever one of them is given was given out in this
life. An acceptance counts when the client has been told so; from then on nobody may be given the record.
One whose answer was lost with the broker may count or not, but is the only reason for a record not to
come again.

    PENSTOCK_SHARE_KILLS   how many kills (default 15)
    PENSTOCK_KILL_SEED     when to kill (default: another one each time; it is printed)
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    AcknowledgeType,
    KafkaError,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from tests.fault.killed_broker import CLIENT
from tests.support.serving import Serving, steady_port

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("PENSTOCK_SHARE_KILLS", "15"))
SEED = int(os.environ.get("PENSTOCK_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
TOPIC, GROUP, PARTITIONS, MEMBERS = "jobs", "crew", 2, 3
QUIET_SECONDS_MAX = 60.0
Place = tuple[int, int]


class Records:
    """What was written, given out and accepted, as the clients know it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.written: set[Place] = set()
        self.accepted: set[Place] = set()
        self.asked: set[Place] = set()
        """To be accepted, and nobody knows whether they are."""
        self.delivered = 0
        self.findings: list[str] = []

    def wrote(self, place: Place) -> None:
        with self._lock:
            self.written.add(place)

    def gave(self, place: Place) -> None:
        with self._lock:
            self.delivered += 1
            if place in self.accepted:
                self.findings.append(f"{place} was accepted, and was given out again")

    def ask(self, place: Place) -> None:
        with self._lock:
            self.asked.add(place)

    def refuse(self, places: set[Place]) -> None:
        with self._lock:
            self.asked -= places

    def accept(self, places: set[Place]) -> None:
        with self._lock:
            self.asked -= places
            self.findings += [f"{place} was accepted twice" for place in places & self.accepted]
            self.accepted |= places

    @property
    def left(self) -> int:
        with self._lock:
            return len(self.written - self.accepted - self.asked)


class Worker:
    """A share consumer on a thread of its own."""

    def __init__(self, bootstrap: str, records: Records, seed: int) -> None:
        self._records = records
        self._random = random.Random(seed)
        self._consumer = ShareConsumer(
            CLIENT
            | {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                "socket.timeout.ms": 1000,
            }
        )
        self._consumer.subscribe([TOPIC])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker")
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(KafkaException):  # the broker is away
                self._turn()

    def _turn(self) -> None:
        accepted: dict[int, set[Place]] = {}
        for message in self._consumer.poll(0.2):
            if message.error() is not None:
                continue
            place = (message.partition(), message.offset())
            self._records.gave(place)
            if self._random.random() < 0.2:
                self._consumer.acknowledge(message, AcknowledgeType.RELEASE)
            else:
                self._records.ask(place)
                self._consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                accepted.setdefault(message.partition(), set()).add(place)
        self._confirm(accepted, self._consumer.commit_sync(2.0))

    def _confirm(self, accepted: dict[int, set[Place]], told: dict[TopicPartition, Any]) -> None:
        for partition, error in told.items():
            places = accepted.get(partition.partition, set())
            if error is None:
                self._records.accept(places)
            elif error.args[0].code() == KafkaError.INVALID_RECORD_STATE:
                self._records.refuse(places)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        with suppress(KafkaException):
            self._consumer.close()


class Source:
    """An idempotent producer that lives through everything."""

    def __init__(self, bootstrap: str, records: Records) -> None:
        self._records = records
        settings = {"enable.idempotence": True, "message.timeout.ms": 0, "linger.ms": 2}
        self._producer = Producer(CLIENT | {"bootstrap.servers": bootstrap} | settings)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source")
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for _ in range(20):
                number += 1
                if len(self._producer) < 1000:
                    self._producer.produce(
                        TOPIC,
                        b"%d" % number,
                        partition=number % PARTITIONS,
                        on_delivery=self._delivered,
                    )
            self._producer.poll(0.02)

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        self._records.wrote((message.partition(), message.offset()))

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def prepare(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        made.result(30)
    settings = {
        "share.auto.offset.reset": "earliest",
        "share.delivery.count.limit": "10",
        # Locks do not run out: what is given out twice was given back, or its holder has gone.
        "share.record.lock.duration.ms": "600000",
    }
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, GROUP, incremental_configs=changes)
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(30)


def test_kill_under_share_consumers(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    bootstrap = f"127.0.0.1:{steady_port()}"
    records = Records()

    def serve() -> Serving:
        return Serving(tmp_path / "data", tmp_path / "stderr.log", kafka=bootstrap).wait_ready()

    broker = serve()
    prepare(bootstrap)
    source = Source(bootstrap, records)
    workers: list[Worker] = []
    try:
        for _ in range(KILLS):
            workers = [Worker(bootstrap, records, rng.randrange(1000)) for _ in range(MEMBERS)]
            time.sleep(rng.uniform(0.5, 2.5))
            broker.kill()
            for worker in workers:
                worker.stop()
            workers = []
            broker = serve()
        source.finish()
        workers = [Worker(bootstrap, records, number) for number in range(MEMBERS)]
        deadline = time.monotonic() + QUIET_SECONDS_MAX
        while records.left:
            assert time.monotonic() < deadline, f"seed {SEED}: {records.left} were never accepted"
            time.sleep(0.1)
        assert not records.findings, f"seed {SEED}: {records.findings[:20]}"
        print(
            f"  seed {SEED}: {KILLS} kills, {len(records.accepted):,} records accepted, "
            f"{len(records.asked):,} perhaps, {records.delivered:,} deliveries"
        )
    finally:
        for worker in workers:
            worker.stop()
        if broker.process.poll() is None:
            broker.kill()
