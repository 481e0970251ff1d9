"""Compaction of a large partition: is it right, what does it take, and do producers notice?

Writes records over a number of keys straight into a data folder, as a broker would, and starts a broker
on it. A producer to another topic is timed while nothing happens, while the partition is compacted, and
again after it. Then everything that is left is read and compared with the last value of every key. The
last lines hold the verdicts, and the exit status is 1 if one is short. It takes about 4 minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tools.kafka import BrokerProcess, KafkaError, exit_on_sigterm

from benchmarks import workload
from benchmarks.brokers import TOPIC_TIMEOUT, create_topic, running_penstock
from benchmarks.report import Better, Verdict, conclude, preamble, progress, summary, table
from benchmarks.workload import WorkloadError
from penstock.broker.broker import Broker
from penstock.clock import SystemClock
from penstock.files import OsFiles
from penstock.limits import MIB
from penstock.log.store import LogStore
from penstock.log.verify import Damage, scan
from penstock.record.decode import decode
from penstock.record.encode import NewRecord, encode

TOPIC, OTHER_TOPIC = "work", "latency"
DAY_MS = 86_400_000
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(128 * MIB),
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": str(DAY_MS),  # until it is taken away, nothing is compacted
    "max.compaction.lag.ms": str(DAY_MS),
    "penstock.durability": "os",
}
BATCH_RECORDS = 500
VALUE_BYTES = 80
RATE = 1000
WINDOW_SECONDS = 4.0
IDLE_WINDOWS = 3
BEGIN_SECONDS_MAX = 60.0


class Writer:
    """A broker without listeners, whose threads are this one."""

    def __init__(self, folder: Path) -> None:
        self._turns: list[Callable[[], None]] = []
        store = LogStore(
            OsFiles(),
            folder,
            SystemClock(),
            run=self._run,
            defer=self._turns.append,
            background=lambda job: job(),
        )
        self.broker = Broker(store, SystemClock())
        self.broker.open()
        self.topic = self.broker.create_topic(TOPIC, 1, CONFIG)
        self._turn()

    def _run(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        outcome = job()
        self._turns.append(lambda: done(outcome))

    def _turn(self) -> None:
        while self._turns:
            self._turns.pop(0)()

    def write(self, records: int, keys: int) -> dict[bytes, int]:
        """Random updates; returns the number of the last one of every key."""
        rng = random.Random(1)
        last: dict[bytes, int] = {}
        now = int(time.time() * 1000)
        partition = self.topic.partition(0)
        for first in range(0, records, BATCH_RECORDS):
            batch: list[NewRecord] = []
            for number in range(first, min(first + BATCH_RECORDS, records)):
                key = b"key-%d" % rng.randrange(keys)
                last[key] = number
                batch.append(NewRecord(b"%d".ljust(VALUE_BYTES) % number, key, now))
            self.broker.appender.append(self.topic, partition, encode(batch))
            self._turn()
        # What is written last must be compacted too.
        partition.roll_if_overdue(now + 2 * DAY_MS)
        self.broker.commit.appended(partition)
        self._turn()
        self.broker.close()
        return last


def read(folder: Path) -> dict[bytes, int]:
    """The number of the record that is left of every key."""
    left: dict[bytes, int] = {}
    for found in scan(OsFiles(), folder):
        assert not isinstance(found, Damage), found
        segment = OsFiles().open(folder / f"{found.base_offset:020d}.log")
        for record in decode(segment.pread(found.header.size, found.position)):
            assert record.key is not None
            assert record.value is not None
            assert record.key not in left, f"{record.key!r} is there twice"
            left[record.key] = int(record.value)
    return left


def size_of(folder: Path) -> float:
    """MiB in segments."""
    return sum(path.stat().st_size for path in folder.glob("*.log")) / MIB


# ---- the broker at work ----------------------------------------------------------------------


@dataclass
class Measured:
    """What was seen of one compaction."""

    seconds: float = 0.0
    memory: float = 0.0
    """MiB at the most, of the process that compacts."""
    idle: list[workload.Numbers] = field(default_factory=list)
    busy: list[workload.Numbers] = field(default_factory=list)


class Watch:
    """Looks at the process that compacts, which is the broker's only child."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.memory = 0.0

    def running(self) -> bool:
        """Whether it is there; notes its memory."""
        for children in Path(f"/proc/{self._broker.pid}/task").glob("*/children"):
            for child in children.read_text().split():
                with contextlib.suppress(OSError):
                    text = Path(f"/proc/{child}/status").read_text()
                    if "VmHWM:" in text:
                        peak = int(text.partition("VmHWM:")[2].split()[0]) / 1024
                        self.memory = max(self.memory, peak)
                        return True
        return False


def latency(broker: BrokerProcess) -> workload.Numbers:
    """One window of a producer that sends record by record."""
    return workload.run(
        "acknowledged",
        bootstrap=broker.bootstrap,
        topic=OTHER_TOPIC,
        rate=RATE,
        seconds=WINDOW_SECONDS,
    )


def begin(broker: BrokerProcess, watch: Watch) -> None:
    """Let the broker compact the topic, and wait until it does."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    change = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[change])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(TOPIC_TIMEOUT)
    deadline = time.monotonic() + BEGIN_SECONDS_MAX
    while not watch.running():
        if time.monotonic() > deadline:
            raise WorkloadError("the broker does not begin to compact")
        time.sleep(0.01)


def measure(broker: BrokerProcess, folder: Path, windows: int) -> Measured:
    """Latency without, during and after a compaction."""
    found = Measured()
    create_topic(broker.bootstrap, OTHER_TOPIC, 1)
    latency(broker)  # not measured: everything gets warm
    watch = Watch(broker)

    def idle() -> None:
        for _ in range(windows):
            found.idle.append(latency(broker))
            progress(f"  idle: p99 {found.idle[-1]['p99']:.2f} ms")

    idle()
    before = size_of(folder)
    begin(broker, watch)
    started = time.monotonic()
    while watch.running():
        numbers = latency(broker)
        if watch.running() or not found.busy:
            found.busy.append(numbers)
            progress(f"  compacting: p99 {numbers['p99']:.2f} ms")
    found.seconds = time.monotonic() - started
    found.memory = watch.memory
    progress(f"{before:,.0f} MiB are {size_of(folder):,.0f} MiB")
    idle()
    return found


def show(found: Measured, records: int) -> None:
    """The table of delays with their spread, and what the pass took."""
    rows = [
        [share, *(summary([one[share] for one in side]) for side in (found.idle, found.busy))]
        for share in ("p50", "p99")
    ]
    table(["acknowledged after ms, median (smallest-largest)", "idle", "compacting"], rows)
    print(
        f"\n{records:,} records in about {found.seconds:.0f} s "
        f"({records / found.seconds:,.0f} records/s), {found.memory:,.0f} MiB at the most"
    )


def verdicts(found: Measured, wrong: int) -> list[Verdict]:
    """Right, and hardly noticed."""
    middle = [statistics.median(one["p99"] for one in side) for side in (found.busy, found.idle)]
    return [
        Verdict("compaction-wrong-keys", wrong, Better.LESS, 0),
        Verdict("compaction-p99-to-idle", middle[0] / middle[1], Better.LESS, 2.0),
        Verdict("compaction-memory-MiB", found.memory, Better.LESS, 128),
    ]


# ---- command line ----------------------------------------------------------------------------


async def write(folder: Path, records: int, keys: int) -> dict[bytes, int]:
    """Fill the folder; in a loop of its own, which the log's parts expect."""
    return Writer(folder).write(records, keys)


def main() -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compaction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--windows", type=int, default=IDLE_WINDOWS, help="idle ones, twice")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on a real disk")
    options = parser.parse_args()
    exit_on_sigterm()
    preamble("benchmarks.compaction", options.folder)
    try:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="penstock-bench-") as name:
            home = Path(name)
            progress(f"writing {options.records:,} records of {options.keys:,} keys")
            last = asyncio.run(write(home / "data", options.records, options.keys))
            segments = home / "data" / "topics" / f"{TOPIC}-0"
            with running_penstock(home) as broker:
                found = measure(broker, segments, options.windows)
            left = read(segments)
    except (KafkaError, WorkloadError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    show(found, options.records)
    wrong = sum(left.get(key) != number for key, number in last.items())
    return conclude(verdicts(found, wrong + len(left.keys() - last.keys())))


if __name__ == "__main__":
    sys.exit(main())
