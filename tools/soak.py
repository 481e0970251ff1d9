"""Mixed load on a real broker for minutes: its memory and descriptors stay flat, nothing is lost.

    python -m tools.soak [--minutes N] [--kill-every SECONDS]

Idempotent producers and tail consumers on a topic whose old segments are removed all the time; topics
that come and go; connections that do the same, of which some misbehave. A line every ten seconds, a
summary at the end; the exit code is 1 if something grew or a record was lost.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.clients.admin_requests import delete_topic
from tests.clients.contract import Record, numbered
from tests.clients.wire import LATEST, Wire
from tests.support.serving import Serving, steady_port

_TOPIC = "soak"
_PARTITIONS = 3
_SETTINGS = {"segment.bytes": "2000000", "retention.bytes": "10000000"}
_PRODUCERS, _CONSUMERS = 2, 2
_RECORDS_PER_SECOND = 1500
_VALUE_BYTES = 300
_LINE_SECONDS = 10.0
_CATCH_UP_SECONDS = 60.0
# A fifth of the run, but not more than a minute, until caches and buffers have their size.
_WARM_UP_SHARE, _WARM_UP_SECONDS_MAX = 0.2, 60.0
_GROWTH_MAX, _GROWTH_KIB_MAX = 0.2, 10 * 1024
# Connections come and go while descriptors are counted, and so do segments, with three files each, in
# all partitions at once. A leak of one in a hundred connections is several hundred in ten minutes.
_DESCRIPTORS_MORE_MAX = 20

Key = tuple[int, int]
"""A producer and a partition: records are numbered for each of these pairs."""


class Broker:
    """`penstock serve`, which may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = f"127.0.0.1:{steady_port()}"
        self.restarts = -1
        self.start()

    def start(self) -> None:
        """Start, and wait until it is ready."""
        errors = self._folder / "stderr.log"
        self._serving = Serving(self._folder / "data", errors, kafka=self.address).wait_ready()
        self.restarts += 1

    def kill(self) -> None:
        """End it without notice."""
        self._serving.kill()

    def stop(self) -> int:
        """End it in order; its exit code."""
        return self._serving.terminate()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._serving.process.poll() is None

    @property
    def errors(self) -> str:
        """What it wrote to standard error."""
        return (self._folder / "stderr.log").read_text()

    def sample(self) -> Sample | None:
        """What it uses now; None if it is down."""
        process = Path("/proc") / str(self._serving.process.pid)
        try:
            status = (process / "status").read_text()
            resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
            descriptors = len(os.listdir(process / "fd"))  # noqa: PTH208 -- nothing but names
        except (OSError, StopIteration):
            return None
        return Sample(time.monotonic(), int(resident.split()[1]), descriptors)


class Sample(NamedTuple):
    """What the broker used at a moment."""

    time: float
    resident_kib: int
    descriptors: int


class Ledger:
    """What was acknowledged and what was read, and every contradiction between the two."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged: Counter[Key] = Counter()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def add(self, what: str, count: int = 1) -> None:
        """Count something for the report."""
        with self._lock:
            self.counts[what] += count

    def acknowledge(self, key: Key, number: int) -> None:
        """A record is durable."""
        with self._lock:
            self.counts["written"] += 1
            if self.acknowledged[key] != number:
                self.wrong.append(f"{key}: {number} acknowledged, {self.acknowledged[key]} next")
            self.acknowledged[key] = number + 1

    def complain(self, what: str) -> None:
        """Something that must not happen has happened."""
        with self._lock:
            self.wrong.append(what)


class Load:
    """The threads that make the load, until they are told to stop."""

    def __init__(self, address: str, ledger: Ledger, *, interrupted: bool) -> None:
        self._address = address
        self._ledger = ledger
        self._interrupted = interrupted
        # A broker that is killed is reported by every client several times a second otherwise.
        self._client = {"bootstrap.servers": address, "log_level": 0 if interrupted else 6}
        self._stop = threading.Event()
        self._stop_reading = threading.Event()
        self._seen: list[Counter[Key]] = [Counter() for _ in range(_CONSUMERS)]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin: readers first, so that they see the first record."""
        with Wire(self._address) as wire:
            wire.create_topic(_TOPIC, _PARTITIONS, _SETTINGS)
        for number in range(_CONSUMERS):
            self._spawn(partial(self._consume, number))
        for number in range(_PRODUCERS):
            self._spawn(partial(self._produce, number))
        for job in (self._connect, self._misbehave, self._make_topics):
            self._spawn(partial(self._again_and_again, job))

    def _spawn(self, job: Callable[[], None]) -> None:
        def run() -> None:
            try:
                job()
            except Exception as error:
                self._ledger.complain(f"{type(error).__name__}: {error}")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)

    def finish(self) -> None:
        """Stop writing, let the readers catch up, and stop them."""
        self._stop.set()
        for thread in self._threads[_CONSUMERS:]:
            thread.join()
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        while time.monotonic() < deadline and any(
            seen != self._ledger.acknowledged for seen in self._seen
        ):
            time.sleep(0.1)
        self._stop_reading.set()
        for thread in self._threads:
            thread.join()
        for number, seen in enumerate(self._seen):
            missing = self._ledger.acknowledged - seen
            if missing:
                self._ledger.complain(f"consumer {number} misses {dict(missing)}")

    # -- records

    def _produce(self, producer: int) -> None:
        client = Producer({**self._client, "enable.idempotence": True, "linger.ms": 5})
        filler = b"x" * _VALUE_BYTES
        sent: Counter[int] = Counter()
        began = time.monotonic()
        while not self._stop.is_set():
            partition = sum(sent.values()) % _PARTITIONS
            number = sent[partition]
            sent[partition] += 1
            client.produce(
                _TOPIC,
                b"%d %d " % (producer, number) + filler,
                partition=partition,
                on_delivery=self._delivered((producer, partition), number),
            )
            client.poll(0)
            ahead = sum(sent.values()) / _RECORDS_PER_SECOND - (time.monotonic() - began)
            if ahead > 0.01:
                time.sleep(ahead)
        if client.flush(_CATCH_UP_SECONDS):
            self._ledger.complain(f"producer {producer} has records that were never acknowledged")

    def _delivered(self, key: Key, number: int) -> Callable[[Any, Any], None]:
        def report(error: Any, _message: Any) -> None:
            if error is None:
                self._ledger.acknowledge(key, number)
            else:
                self._ledger.complain(f"{key}: {number} was not written: {error}")

        return report

    def _consume(self, number: int) -> None:
        settings = {
            **self._client,
            "group.id": f"soak-{number}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
        client = Consumer(settings)
        client.assign([TopicPartition(_TOPIC, at, 0) for at in range(_PARTITIONS)])
        seen = self._seen[number]
        while not self._stop_reading.is_set():
            for message in client.consume(500, 0.2):
                if message.error() is None:
                    self._read(seen, message.partition(), message.value())
                elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                    self._ledger.complain(f"consumer {number} fell off the end")
        client.close()

    def _read(self, seen: Counter[Key], partition: int, value: bytes) -> None:
        producer, number, _ = value.split(b" ", 2)
        key = int(producer), partition
        if seen[key] != int(number):
            self._ledger.complain(f"{key}: read {int(number)} where {seen[key]} was next")
        seen[key] = int(number) + 1
        self._ledger.add("read")

    # -- everything else

    def _again_and_again(self, job: Callable[[], None]) -> None:
        """Connections fail while the broker is down, which is no news."""
        while not self._stop.is_set():
            try:
                job()
            except (OSError, AssertionError):
                if not self._interrupted:
                    raise
                self._ledger.add("failed while down")
                time.sleep(0.2)

    def _connect(self) -> None:
        with Wire(self._address, timeout=10) as wire:
            wire.versions()
            wire.offset(_TOPIC, LATEST)
        self._ledger.add("connections")
        time.sleep(0.02)

    def _misbehave(self) -> None:
        """Halves of frames, strangers, and connections that are reset."""
        host, _, port = self._address.rpartition(":")
        hello = struct.pack(">ihhih", 10, 18, 0, 1, -1)
        for data in (hello[:3], hello, hello + b"\x00\x01", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 8):
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                if len(data) % 2:
                    linger = struct.pack("ii", 1, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.sendall(data)
            self._ledger.add("connections")
        time.sleep(0.1)

    def _make_topics(self) -> None:
        name = f"passing-{time.monotonic_ns()}"
        with Wire(self._address, timeout=10) as wire:
            wire.create_topic(name, 2)
            wire.write(name, numbered(10))
            wire.write(name, [Record(b"x" * 500_000)], partition=1)
            if len(wire.stored(name)) != 10:
                self._ledger.complain(f"{name}: records are missing")
            wire.call(delete_topic(name), 4)
        self._ledger.add("topics")
        time.sleep(0.5)


def _growth(samples: Sequence[Sample]) -> Iterator[str]:
    """What grew, by the medians of the first and the last quarter after the warm-up."""
    length = samples[-1].time - samples[0].time
    start = samples[0].time + min(_WARM_UP_SHARE * length, _WARM_UP_SECONDS_MAX)
    warm = [sample for sample in samples if sample.time >= start]
    quarter = max(1, len(warm) // 4)
    first, last = (
        (
            statistics.median(sample.resident_kib for sample in part),
            statistics.median(sample.descriptors for sample in part),
        )
        for part in (warm[:quarter], warm[-quarter:])
    )
    print(
        f"memory {first[0] / 1024:.1f} -> {last[0] / 1024:.1f} MiB, "
        f"descriptors {first[1]:.0f} -> {last[1]:.0f} (medians of first and last quarter)"
    )
    if last[0] > first[0] * (1 + _GROWTH_MAX) + _GROWTH_KIB_MAX:
        yield "memory grew"
    if last[1] > first[1] + _DESCRIPTORS_MORE_MAX:
        yield "descriptors grew"


def _watch(
    broker: Broker, ledger: Ledger, seconds: float, kill_every: float | None
) -> list[Sample]:
    """Take a sample every second and say something every ten."""
    samples: list[Sample] = []
    began = told = killed = time.monotonic()
    while (now := time.monotonic()) - began < seconds and not ledger.wrong:
        if kill_every is not None and now - killed > kill_every:
            broker.kill()
            broker.start()
            killed = now
        sample = broker.sample()
        if sample is not None:
            samples.append(sample)
        if sample is not None and now - told >= _LINE_SECONDS:
            told = now
            counts = ", ".join(f"{count:,} {what}" for what, count in sorted(ledger.counts.items()))
            print(
                f"{now - began:5.0f} s  {sample.resident_kib / 1024:6.1f} MiB "
                f"{sample.descriptors:4} descriptors  {counts}",
                flush=True,
            )
        time.sleep(1)
    return samples


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kill-every", type=float, metavar="SECONDS", help="kill -9 and restart")
    options = parser.parse_args(arguments)
    ledger = Ledger()
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        broker = Broker(Path(folder))
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: broker.kill() if broker.is_running else None)
            load = Load(broker.address, ledger, interrupted=options.kill_every is not None)
            load.start()
            samples = _watch(broker, ledger, 60 * options.minutes, options.kill_every)
            load.finish()
            wrong = list(ledger.wrong)
            if options.kill_every is None and samples:
                wrong += _growth(samples)
            code = broker.stop()
        if code != 0:
            wrong.append(f"the broker ended with status {code}")
        if "Traceback" in broker.errors:
            wrong.append(f"the broker reported a mistake of its own:\n{broker.errors[-3000:]}")
    for what, count in sorted(ledger.counts.items()):
        print(f"{count:12,} {what}")
    print(f"{broker.restarts} restarts; {'; '.join(wrong[:20]) or 'nothing grew, nothing lost'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
