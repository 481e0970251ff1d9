"""What members of groups and transactional producers do to a broker, with librdkafka.

Each workload runs in a process of its own, as those of workload.py, which starts it.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.workload import STALL_LIMIT, Numbers, WorkloadError, main, percentile

# How often members of a classic group tell the broker that they are there, and hear of a rebalance. It
# is the client's own setting, 3 s by default: so rarely, a measure of brokers would measure the client.
HEARTBEAT_MS = 100

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": HEARTBEAT_MS},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": HEARTBEAT_MS,
    },
    "consumer": {"group.protocol": "consumer"},
}
"""How a group shares out its work; the last is that of KIP-848, where the broker says how often."""


def _consumer(bootstrap: str, group: str, **settings: Any) -> Any:
    base: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "socket.nagle.disable": True,
        "log_level": 3,
    }
    return Consumer(base | settings)


def _new_group() -> str:
    return f"benchmark-{uuid.uuid4().hex[:12]}"


# ---- how long it takes -----------------------------------------------------------------------


def first_record(bootstrap: str, topic: str, protocol: str) -> Numbers:
    """From a new consumer in a new group to its first record."""
    started = time.perf_counter()
    consumer = _consumer(bootstrap, _new_group(), **PROTOCOLS[protocol])
    consumer.subscribe([topic])
    message = consumer.poll(STALL_LIMIT)
    seconds = time.perf_counter() - started
    if message is None or message.error() is not None:
        raise WorkloadError(f"no record: {message and message.error()}")
    consumer.close()
    return {"seconds": seconds}


class _Group:
    """Members of one group, each with a thread; knows who has which partitions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, protocol: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.protocol = protocol
        self.name = _new_group()
        self.changed = threading.Condition()
        self.owned: dict[_Member, set[int]] = {}

    def join(self) -> _Member:
        member = _Member(self)
        with self.changed:
            self.owned[member] = set()
        member.start()
        return member

    def wait(self) -> float:
        """Until every partition is somebody's and everybody has some; the time at which it was."""
        with self.changed:
            if not self.changed.wait_for(self._shared_out, 2 * STALL_LIMIT):
                raise WorkloadError(f"the group of {len(self.owned)} is not shared out")
            return time.perf_counter()

    def _shared_out(self) -> bool:
        shares = list(self.owned.values())
        fair = self.partitions // len(shares)
        return (
            sum(map(len, shares)) == self.partitions
            and len(set().union(*shares)) == self.partitions
            and all(len(share) >= fair for share in shares)
        )


class _Member(threading.Thread):
    def __init__(self, group: _Group) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.leaving = threading.Event()

    def run(self) -> None:
        group = self.group
        consumer = _consumer(group.bootstrap, group.name, **PROTOCOLS[group.protocol])
        consumer.subscribe([group.topic], on_assign=self._assigned, on_revoke=self._revoked)
        while not self.leaving.is_set():
            consumer.poll(0.1)
        with group.changed:
            del group.owned[self]  # what it has counts as nobody's from now on
        consumer.close()

    def leave(self) -> None:
        self.leaving.set()

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        numbers = {one.partition for one in partitions}
        if self.group.protocol == "eager":
            consumer.assign(partitions)
        else:
            consumer.incremental_assign(partitions)
        consumer.pause(partitions)  # the group is measured, not the reading
        self._own(lambda share: share | numbers)

    def _revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        numbers = {one.partition for one in partitions}
        self._own(lambda share: share - numbers)
        if self.group.protocol == "eager":
            consumer.unassign()
        else:
            consumer.incremental_unassign(partitions)

    def _own(self, change: Callable[[set[int]], set[int]]) -> None:
        with self.group.changed:
            if self in self.group.owned:
                self.group.owned[self] = change(self.group.owned[self])
                self.group.changed.notify_all()


def rebalance(
    bootstrap: str, topic: str, partitions: int, protocol: str, members: int, times: int
) -> Numbers:
    """One more member comes to a group of so many, and goes; until all is shared out again."""
    group = _Group(bootstrap, topic, partitions, protocol)
    for _ in range(members):
        group.join()
    group.wait()
    joins: list[float] = []
    leaves: list[float] = []
    for number in range(times):
        # At different times between two heartbeats of the others, as members come in life.
        time.sleep(0.2 + HEARTBEAT_MS / 1000 * (number + 0.5) / times)
        started = time.perf_counter()
        another = group.join()
        joins.append(group.wait() - started)
        time.sleep(0.2 + HEARTBEAT_MS / 1000 * (number + 0.5) / times)
        started = time.perf_counter()
        another.leave()
        another.join(STALL_LIMIT)
        leaves.append(group.wait() - started)
    return {"join": percentile(sorted(joins), 0.5), "leave": percentile(sorted(leaves), 0.5)}


# ---- how many in a second --------------------------------------------------------------------


def _member_of_its_own(bootstrap: str, topic: str) -> Any:
    """A consumer that has got its partitions and reads nothing."""
    consumer = _consumer(bootstrap, _new_group(), **PROTOCOLS["eager"])
    ready = threading.Event()

    def assigned(consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)
        ready.set()

    consumer.subscribe([topic], on_assign=assigned)
    deadline = time.monotonic() + STALL_LIMIT
    while not ready.is_set():
        if time.monotonic() > deadline:
            raise WorkloadError("no partitions were assigned")
        consumer.poll(0.1)
    return consumer


def transactions(
    bootstrap: str, topic: str, count: int, records: int, offsets: bool = False
) -> Numbers:
    """Transactions of one producer, each with so many records, and with a consumer's offsets."""
    producer: Any = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": _new_group(),
            "linger.ms": 0,
            "socket.nagle.disable": True,
            "log_level": 3,
        }
    )
    producer.init_transactions(STALL_LIMIT)
    consumer = _member_of_its_own(bootstrap, topic) if offsets else None
    value = bytes(100)
    started = time.perf_counter()
    for number in itertools.count():
        if number == 5:  # the first ones look for the coordinator and the leaders
            started = time.perf_counter()
        if number == count + 5:
            break
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, value, partition=0)
        if consumer is not None:
            position = [TopicPartition(topic, 0, number)]
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        producer.commit_transaction(STALL_LIMIT)
    return {"rate": count / (time.perf_counter() - started)}


if __name__ == "__main__":
    main(
        {
            "first-record": first_record,
            "rebalance": rebalance,
            "transactions": transactions,
        }
    )
