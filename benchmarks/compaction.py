"""Compaction of a large partition: is it right, how long does it take, how much memory does it need?

Writes records over a number of keys straight into a data folder, as a broker would, lets the process
that compacts make its passes, reads everything that is left and compares it with the last value of every
key. The last line is the verdict, and the exit status is 1 if a key is wrong or one is there twice.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.broker.broker import Broker
from penstock.clock import SystemClock
from penstock.files import OsFiles
from penstock.limits import MIB
from penstock.log.store import LogStore
from penstock.log.verify import Damage, scan
from penstock.record.decode import decode
from penstock.record.encode import NewRecord, encode
from penstock.server.cleaner import CleanerProcess

CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(128 * MIB),
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "86400000",
    "penstock.durability": "os",
}
BATCH_RECORDS = 500
VALUE_BYTES = 80
TWO_DAYS_MS = 2 * 86_400_000


class Bench:
    """A broker without listeners, whose threads are this one."""

    def __init__(self, folder: Path) -> None:
        self._turns: list[Callable[[], None]] = []
        self.cleaner = CleanerProcess(asyncio.get_running_loop())
        self.folder = folder / "topics" / "work-0"
        store = LogStore(
            OsFiles(),
            folder,
            SystemClock(),
            run=self._run,
            defer=self._turns.append,
            background=lambda job: job(),
            compact=self.cleaner.start,
        )
        self.compactor = store.compactor
        self.broker = Broker(store, SystemClock())
        self.broker.open()
        self.topic = self.broker.create_topic("work", 1, CONFIG)
        self.turn()

    def _run(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        outcome = job()
        self._turns.append(lambda: done(outcome))

    def turn(self) -> None:
        """Do what waits."""
        while self._turns:
            self._turns.pop(0)()

    def write(self, records: int, keys: int) -> dict[bytes, int]:
        """Random updates; returns the number of the last one of every key."""
        rng = random.Random(1)
        last: dict[bytes, int] = {}
        now = int(time.time() * 1000)
        for first in range(0, records, BATCH_RECORDS):
            batch: list[NewRecord] = []
            for number in range(first, min(first + BATCH_RECORDS, records)):
                key = b"key-%d" % rng.randrange(keys)
                last[key] = number
                batch.append(NewRecord(b"%d".ljust(VALUE_BYTES) % number, key, now))
            self.broker.appender.append(self.topic, self.topic.partition(0), encode(batch))
            self.turn()
        # What is written last must be compacted too.
        self.topic.partition(0).roll_if_overdue(now + TWO_DAYS_MS)
        self.broker.commit.appended(self.topic.partition(0))
        self.turn()
        return last

    async def compact(self) -> None:
        """Make passes until nothing is left to do."""
        assert self.compactor is not None
        self.broker.keep_retention()
        self.turn()
        while self.compactor.running:
            await asyncio.sleep(0.01)
            self.turn()

    def read(self) -> dict[bytes, int]:
        """The number of the record that is left of every key."""
        left: dict[bytes, int] = {}
        for found in scan(OsFiles(), self.folder):
            assert not isinstance(found, Damage), found
            segment = OsFiles().open(self.folder / f"{found.base_offset:020d}.log")
            for record in decode(segment.pread(found.header.size, found.position)):
                assert record.key is not None
                assert record.value is not None
                assert record.key not in left, f"{record.key!r} is there twice"
                left[record.key] = int(record.value)
        return left


async def run(folder: Path, records: int, keys: int) -> bool:
    """One measurement; whether everything was right."""
    bench = Bench(folder)
    last = bench.write(records, keys)
    before = bench.topic.partition(0).size_bytes
    started = time.monotonic()
    await bench.compact()
    seconds = time.monotonic() - started
    after = bench.topic.partition(0).size_bytes
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    right = bench.read() == last
    sys.stdout.write(
        f"{records:,} records of {len(last):,} keys, {before / MIB:,.0f} MiB to {after / MIB:,.0f} MiB\n"
        f"{seconds:.1f} s ({records / seconds:,.0f} records/s), {memory:,.0f} MB at the most\n"
        f"{'right' if right else 'WRONG'}: the last value of every key\n"
    )
    return right


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-compaction-") as folder:
        return 0 if asyncio.run(run(Path(folder), wanted.records, wanted.keys)) else 1


if __name__ == "__main__":
    sys.exit(main())
