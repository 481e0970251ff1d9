"""What clients do to a broker whose own cost is measured, each workload in a process of its own.

A benchmark calls `run("steady", ...)`; this module starts itself as a child process, does the work
there with librdkafka (confluent-kafka) and hands back the numbers. The child's processor time and
interpreter lock are thus never the harness's, and every workload starts from the same client state.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

Numbers = dict[str, float]

TIME_LIMIT = 180.0
"""Seconds after which a workload counts as hung."""

STALL_LIMIT = 30.0
"""Seconds without any progress after which a workload gives up by itself."""


class WorkloadError(Exception):
    """The workload did not do what it should have; its numbers would mean nothing."""


def run(
    name: str, module: str = "benchmarks.workload", /, **parameters: str | int | float
) -> Numbers:
    """Do the workload of that name in a child process and return what it measured."""
    child = start(name, module, **parameters)
    try:
        output, problems = child.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        raise WorkloadError(f"workload {name} {parameters} hangs") from None
    finally:
        child.kill()
        child.wait()
    if child.returncode:
        raise WorkloadError(f"workload {name} {parameters} failed:\n{problems}")
    numbers: Numbers = json.loads(output)
    return numbers


def start(
    name: str, module: str = "benchmarks.workload", /, **parameters: str | int | float
) -> subprocess.Popen[str]:
    """Start the workload of that name in a child process, which is the caller's to end."""
    command = [sys.executable, "-m", module, name, json.dumps(parameters)]
    root = Path(__file__).resolve().parent.parent
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=root, stdout=pipe, stderr=pipe, text=True)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which that share of the ordered values lies (nearest rank)."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


# ---- clients ---------------------------------------------------------------------------------


class _Failures:
    """Counts records that were not delivered; with only errors reported this costs nothing else."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def __call__(self, error: object, _: object) -> None:
        if error is not None:
            self.count += 1
            self.first = self.first or str(error)

    def check(self, left: int) -> None:
        if self.count or left:
            raise WorkloadError(f"{self.count} records failed ({self.first}), {left} unanswered")


def _producer(bootstrap: str, **settings: Any) -> Any:
    return Producer({"bootstrap.servers": bootstrap, "acks": "all"} | settings)


def _consumer(bootstrap: str, topic: str, partitions: int, **settings: Any) -> Any:
    """A consumer at the start of every partition; assigned, so that no group has to be formed."""
    base: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "benchmark",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    consumer = Consumer(base | settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    return consumer


def _value(message: Message) -> bytes:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    value: bytes = message.value()
    return value


# ---- workloads -------------------------------------------------------------------------------


def steady(bootstrap: str, topic: str, partitions: int, rate: int, records: int) -> Numbers:
    """Produce at a steady rate while a consumer follows: the same requests on a busy machine.

    The batches depend on the rate and on the linger time only, so that processor time per record
    can be compared between brokers in different states. Records are consumed from the end.
    """
    failures = _Failures()
    producer = _producer(
        bootstrap,
        **{
            "linger.ms": 5,
            "queue.buffering.max.messages": 300_000,
            "delivery.report.only.error": True,
            "on_delivery": failures,
        },
    )
    producer.list_topics(topic)
    consumer = _tail(bootstrap, topic, partitions)
    reader = _Counter(consumer, records)
    reader.start()
    value = bytes(100)
    step = rate // 200  # 5 ms
    started = time.perf_counter()
    for number in range(0, records, step):
        wait = started + number / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        for _ in range(min(step, records - number)):
            producer.produce(topic, value)
        producer.poll(0)
    failures.check(producer.flush(STALL_LIMIT))
    reader.join(STALL_LIMIT)
    seconds = time.perf_counter() - started
    if reader.problem is not None or reader.is_alive():
        raise WorkloadError(f"the consumer stopped after {reader.seen}: {reader.problem}")
    return {"seconds": seconds, "rate": records / seconds}


def _tail(bootstrap: str, topic: str, partitions: int) -> Any:
    """A consumer at the present end of every partition, by offset: nothing sent later is missed."""
    consumer = _consumer(bootstrap, topic, partitions, **{"fetch.queue.backoff.ms": 1})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, number), STALL_LIMIT)[1]
        for number in range(partitions)
    ]
    consumer.assign([TopicPartition(topic, number, end) for number, end in enumerate(ends)])
    return consumer


class _Counter(threading.Thread):
    """Consumes in the background until so many records were seen."""

    def __init__(self, consumer: Any, records: int) -> None:
        super().__init__(daemon=True)
        self.consumer = consumer
        self.records = records
        self.seen = 0
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            while self.seen < self.records:
                messages = self.consumer.consume(10_000, 0.05)
                if messages:
                    _value(messages[-1])
                    self.seen += len(messages)
        except BaseException as problem:  # handed to the thread that waits for us
            self.problem = problem


def burst(bootstrap: str, topic: str, partitions: int, rounds: int) -> Numbers:
    """One record to every partition at once, again when all are answered; the delay of each."""
    delays: list[float] = []
    rounds_ms: list[float] = []
    failures = _Failures()
    producer = _producer(bootstrap, **{"linger.ms": 0, "socket.nagle.disable": True})
    producer.list_topics(topic)
    value = bytes(100)
    for _ in range(rounds):
        started = time.perf_counter()

        def delivered(error: object, message: object, since: float = started) -> None:
            delays.append((time.perf_counter() - since) * 1000)
            failures(error, message)

        for number in range(partitions):
            producer.produce(topic, value, partition=number, on_delivery=delivered)
        failures.check(producer.flush(STALL_LIMIT))
        rounds_ms.append((time.perf_counter() - started) * 1000)
    # The first round opens files and learns leaders; it is kept apart, not thrown away.
    steady_delays = sorted(delays[partitions:]) or sorted(delays)
    return {
        "p50": percentile(steady_delays, 0.50),
        "p99": percentile(steady_delays, 0.99),
        "max": steady_delays[-1],
        "first": rounds_ms[0],
    }


def acknowledged(bootstrap: str, topic: str, rate: int, seconds: float) -> Numbers:
    """Records at a steady rate, each sent by itself: from before it is sent until it is acknowledged."""
    delays: list[float] = []
    failures = _Failures()
    producer = _producer(bootstrap, **{"linger.ms": 0, "socket.nagle.disable": True})
    producer.list_topics(topic)
    warm_up = rate // 2
    value = bytes(100)
    records = int(rate * seconds) + warm_up
    started = time.perf_counter()
    for number in range(records):
        wait = started + number / rate - time.perf_counter()
        if wait > 0:
            producer.poll(wait)

        def delivered(error: object, message: object, since: float = time.perf_counter()) -> None:
            delays.append((time.perf_counter() - since) * 1000)
            failures(error, message)

        producer.produce(topic, value, on_delivery=delivered)
    failures.check(producer.flush(STALL_LIMIT))
    measured = sorted(delays[warm_up:])
    return {share: percentile(measured, part) for share, part in (("p50", 0.5), ("p99", 0.99))}


_WORKLOADS: dict[str, Callable[..., Numbers]] = {
    "steady": steady,
    "burst": burst,
    "acknowledged": acknowledged,
}


def main(workloads: Mapping[str, Callable[..., Numbers]]) -> None:
    """The child's side: the workload's name and parameters as arguments, its numbers as JSON."""
    name, parameters = sys.argv[1:]
    print(json.dumps(workloads[name](**json.loads(parameters))), flush=True)
    # Members of a group may still poll on their threads: librdkafka, taken down under them, crashes.
    os._exit(0)


if __name__ == "__main__":
    main(_WORKLOADS)
