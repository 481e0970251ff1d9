"""Keyed state: beside Spark's transformWithState, and from 100 thousand to 10 million stored keys.

    python -m benchmarks.state [--keys-large N] [--folder DIR]

The first part counts rows by key in two queries over the same files, in turn. The second runs the store
as a task does, without Spark, whose floor would hide what it costs: batches of 10 thousand keys on a
small and a large state in turn.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks.report import Better, Verdict, conclude, preamble, progress, summary, table
from penstock.spark import keyed, session, write_stream
from penstock.spark.batch import Times
from penstock.spark.state.bucket import open_bucket
from penstock.spark.state.operators import Operator
from penstock.spark.state.places import LocalPlace
from penstock.spark.state.runs import HASH, Opened

KEYS = 100_000
ROWS = 1_000_000
TOUCHED = 10_000
BATCHES = 60
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
    spark = session("state", master="local[2]")
    spark.sparkContext.setLogLevel("OFF")
    took: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2):
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
    """Four buckets with so many keys."""

    def __init__(self, folder: Path, keys: int) -> None:
        self.keys, self.batch = keys, 0
        self._root, self._opened = LocalPlace(folder), Opened()
        self._operator = Operator("n", ("user",), count, STATE, STATE)
        for part in np.array_split(np.arange(keys), max(1, keys // 1_000_000)):
            self.run(part)

    def run(self, users: np.ndarray) -> float:
        """A batch of rows with these keys; its seconds."""
        hashes = (users.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
        rows = pa.table({HASH: hashes, "user": users})
        buckets = np.mod(hashes, 4)
        parts = [rows.filter(pa.array(buckets == number)) for number in range(4)]
        begin = time.perf_counter()
        for number, part in enumerate(parts):
            bucket = open_bucket(self._root, number, 4, STATE, ("user",), self.batch, self._opened)
            self._operator.apply(bucket, self.batch, part, Times(None, None))
        self.batch += 1
        return time.perf_counter() - begin


def growth(folder: Path, large: int) -> list[Verdict]:
    """The same batches on a small and on a large state, in turn."""
    stores = []
    for keys in (KEYS, large):
        progress(f"storing {keys:,} keys")
        stores.append(Stored(folder / str(keys), keys))
    rng = np.random.default_rng(7)
    took: list[list[float]] = [[], []]
    progress(f"{BATCHES} batches of {TOUCHED:,} keys on each")
    for number in range(BATCHES + 10):
        for store, seen in zip(stores, took, strict=True):
            lasted = store.run(rng.choice(store.keys, TOUCHED, replace=False))
            if number >= 10:  # the first ones open files and finish the merges of storing
                seen.append(lasted)
    table(
        (f"{TOUCHED:,} keys touched", "ms of a batch"),
        [
            (f"{store.keys:,} stored", summary(seen, 1000, 1))
            for store, seen in zip(stores, took, strict=True)
        ],
    )
    small, big = (statistics.median(seen) for seen in took)
    return [
        Verdict("state-growth", big / small, Better.LESS, 1.2),
        Verdict("state-slowest-batch", max(took[1]) / big, Better.LESS, 3),
    ]


def main() -> int:
    """Both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys-large", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--only", choices=("spark", "growth"))
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=chosen.folder))
    preamble("benchmarks.state", folder)
    try:
        verdicts = [] if chosen.only == "spark" else growth(folder, chosen.keys_large)
        verdicts += [] if chosen.only == "growth" else [against_spark(folder)]
    finally:
        shutil.rmtree(folder)
    return conclude(verdicts)


if __name__ == "__main__":
    sys.exit(main())
