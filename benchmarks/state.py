"""Keyed state: beside Spark's transformWithState, and from 100 thousand to 10 million stored keys.

    python -m benchmarks.state [--only spark|growth] [--folder DIR]

One part counts rows by key in two queries over the same files, in turn. The other runs the store as a
task does, without Spark, whose floor would hide what it costs: batches of 10 thousand keys on states of
100 thousand, a million and ten million keys in turn.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks.report import Better, Verdict, conclude, preamble, progress, summary, table
from penstock.spark import keyed, session, write_stream
from penstock.spark.batch import Times
from penstock.spark.state.bucket import Bucket, open_bucket
from penstock.spark.state.opened import Opened
from penstock.spark.state.operators import Operator
from penstock.spark.state.places import LocalPlace
from penstock.spark.state.sorted_rows import HASH

KEYS = 100_000
LARGER = {"1M": 1_000_000, "10M": 10_000_000}
ROWS = 1_000_000
TURNS = 4
TOUCHED = 10_000
ROUNDS = 5
BATCHES = 40  # of a round
BUCKETS = 4
WARM = 16  # the first ones open files and finish merges of storing
STATE = pa.schema([("user", pa.int64()), ("n", pa.int64())])


def count(state: pa.Table, rows: pa.Table, times: Times) -> tuple[pa.Table, pa.Table]:
    """Rows by key."""
    ones = pa.array(np.ones(len(rows), np.int64))
    new = pa.table([rows["user"], ones], schema=STATE)
    both = pa.concat_tables([state, new]).group_by("user").aggregate([("n", "sum")])
    totals = both.rename_columns(["user", "n"])
    return totals, totals


# -- against transformWithState


class Nothing:
    """A sink that only asks for the rows."""

    name = "nothing"

    def prepare(self, frame: DataFrame) -> None:
        """Nothing to prepare."""

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Compute all of it."""
        batch.write.format("noop").mode("overwrite").save()


class Counting(StatefulProcessor):  # type: ignore[misc]  # pyspark is not followed
    """The same count, a key at a time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """One value for each key."""
        self._count = handle.getValueState("n", "n long")

    def handleInputRows(
        self, key: tuple[int], rows: Iterator[Row], timerValues: object
    ) -> Iterator[Row]:
        """Add them."""
        before = self._count.get()[0] if self._count.exists() else 0
        total = before + len(list(rows))
        self._count.update((total,))
        yield Row(user=key[0], n=total)

    def close(self) -> None:
        """Nothing is open."""


def seconds(spark: SparkSession, source: Path, folder: Path, *, ours: bool) -> float:
    """The time of the second of two batches, when all is warm."""
    frame = (
        spark.readStream.schema("user long").option("maxFilesPerTrigger", 1).parquet(str(source))
    )
    if ours:
        made = keyed(
            frame, by=["user"], function=count, state="n long", output="user long, n long", name="n"
        )
    else:
        made = frame.groupBy("user").transformWithState(
            Counting(), "user long, n long", "Update", "None"
        )
    query = write_stream(
        made,
        Nothing(),
        checkpoint=str(folder),
        output_mode="append" if ours else "update",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    took: int = [p["durationMs"]["addBatch"] for p in query.recentProgress if p["numInputRows"]][-1]
    return took / 1000


def against_spark(folder: Path) -> Verdict:
    """The count by key, both ways in turn."""
    source = folder / "rows"
    source.mkdir()
    rng = np.random.default_rng(5)
    for number in range(2):
        rows = pa.table({"user": rng.integers(0, KEYS, ROWS)})
        pq.write_table(rows, source / f"{number}.parquet", row_group_size=ROWS // 4)
    # The same for both: RocksDB, as transformWithState needs, with its changelog, as Spark advises,
    # and as many partitions as there are buckets.
    spark = session("state", master="local[2]")
    spark.sparkContext.setLogLevel("OFF")
    took: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(TURNS):
        for ours in (True, False):
            progress(f"{'keyed' if ours else 'transformWithState'}, turn {turn + 1}")
            took[ours].append(seconds(spark, source, folder / f"{turn}-{ours}", ours=ours))
    spark.stop()
    rows = [("keyed", summary(took[True])), ("transformWithState", summary(took[False]))]
    table((f"{ROWS:,} rows, {KEYS:,} keys", "seconds of a batch"), rows)
    ratio = statistics.median(took[False]) / statistics.median(took[True])
    return Verdict("keyed-against-transformWithState", ratio, Better.MORE, 10)


# -- growth


class Stored:
    """Buckets with so many keys."""

    def __init__(self, folder: Path, keys: int) -> None:
        self.keys, self.batch = keys, 0
        self._root, self._opened = LocalPlace(folder), Opened()
        self._operator = Operator("n", ("user",), count, STATE, STATE)
        for part in np.array_split(np.arange(keys), max(1, keys // 1_000_000)):
            self._store(part)

    def _store(self, users: np.ndarray) -> None:
        """A batch that brings new keys, without the function that would find none of them."""
        for number, part in enumerate(_shared_out(users)):
            bucket = self._bucket(number)
            count = pa.array(np.ones(len(part), np.int64))
            lives = pa.array(np.zeros(len(part), bool))
            bucket.write(
                self.batch,
                pa.table(
                    [part[HASH], lives, pa.nulls(len(part), pa.int64()), part["user"], count],
                    schema=bucket.stored_schema(),
                ),
            )
        self.batch += 1

    def run(self, users: np.ndarray) -> tuple[float, int]:
        """A batch of rows with these keys; its seconds, and how many bytes it merged."""
        parts = _shared_out(users)
        begin = time.perf_counter()
        for number, part in enumerate(parts):
            self._operator.apply(self._bucket(number), self.batch, part, Times(None, None))
        took = time.perf_counter() - begin
        merged = sum(file.stat().st_size for file in self._root.folder.glob(f"*/{self.batch}-*"))
        self.batch += 1
        return took, merged

    def _bucket(self, number: int) -> Bucket:
        return open_bucket(self._root, number, BUCKETS, STATE, ("user",), self.batch, self._opened)


def _shared_out(users: np.ndarray) -> list[pa.Table]:
    """Rows with these keys for each bucket."""
    hashes = (users.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    buckets = np.mod(hashes, BUCKETS)
    return [
        pa.table({HASH: hashes[buckets == number], "user": users[buckets == number]})
        for number in range(BUCKETS)
    ]


@dataclass
class Seen:
    """Seconds of batches on one store: medians of rounds, and those that merged, beside their median."""

    rounds: list[float] = field(default_factory=list)
    merging: list[tuple[int, float]] = field(default_factory=list)
    slowest: float = 0.0

    def add(self, batches: list[tuple[float, int]]) -> None:
        """Another round."""
        median = statistics.median(seconds for seconds, _ in batches)
        self.rounds.append(median)
        self.merging += [(merged, seconds / median) for seconds, merged in batches if merged]
        self.slowest = max(self.slowest, max(seconds for seconds, _ in batches) / median)

    def most_merging(self) -> list[float]:
        """That half of the merging batches which merged the most."""
        return [times for _, times in sorted(self.merging)[len(self.merging) // 2 :]]


def growth(folder: Path) -> list[Verdict]:
    """The same batches on states of several sizes, in turn."""
    stores, seen = {}, {}
    for name, keys in {"100k": KEYS, **LARGER}.items():
        progress(f"storing {keys:,} keys")
        stores[name], seen[name] = Stored(folder / name, keys), Seen()
    rng = np.random.default_rng(7)
    for turn in range(-1, ROUNDS):
        progress(f"{TOUCHED:,} keys a batch, round {turn + 1}")
        took: dict[str, list[tuple[float, int]]] = {name: [] for name in stores}
        for _ in range(WARM if turn < 0 else BATCHES):
            for name, store in stores.items():
                took[name].append(store.run(rng.choice(store.keys, TOUCHED, replace=False)))
        if turn >= 0:
            for name, batches in took.items():
                seen[name].add(batches)
    table(
        (f"{TOUCHED:,} keys touched", "ms of a batch", "merging much, times that", "slowest"),
        [
            (
                f"{stores[name].keys:,} stored",
                summary(each.rounds, 1000, 1),
                summary(each.most_merging()),
                f"{each.slowest:.2f}",
            )
            for name, each in seen.items()
        ],
    )
    # Of a pair of rounds that ran at the same time, so that what else the machine does is in both.
    growths = [
        Verdict(
            f"state-growth-100k-to-{name}",
            statistics.median(
                large / small
                for large, small in zip(seen[name].rounds, seen["100k"].rounds, strict=True)
            ),
            Better.LESS,
            1.2,
        )
        for name in LARGER
    ]
    merging = max(statistics.median(each.most_merging()) for each in seen.values())
    return [*growths, Verdict("state-compacting-batch", merging, Better.LESS, 3)]


def main() -> int:
    """Both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--only", choices=("spark", "growth"))
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=chosen.folder))
    preamble("benchmarks.state", folder)
    try:
        verdicts = [] if chosen.only == "spark" else growth(folder)
        verdicts += [] if chosen.only == "growth" else [against_spark(folder)]
    finally:
        shutil.rmtree(folder)
    return conclude(verdicts)


if __name__ == "__main__":
    sys.exit(main())
