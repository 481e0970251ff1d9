"""How much of a state a batch goes over, with files that only say how many rows they have."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pytest

from penstock.spark.state.merging import (
    EVERY,
    FANOUT,
    SLICE_ROWS,
    after,
    budget_of,
    merge_to_begin,
    next_slice,
    progressed,
)
from penstock.spark.state.runs import HIGHEST, LOWEST, Run
from penstock.spark.state.sorted_rows import HASH, SortedRows
from penstock.spark.state.versions import Merge


def evenly(rows: int, low: int = LOWEST, high: int = HIGHEST) -> SortedRows:
    """So many hashes over a range."""
    step = (high - low) // max(1, rows - 1)
    hashes = low + np.arange(rows, dtype=np.int64) * step
    return SortedRows(pa.table({HASH: hashes}))


@dataclass
class Bucket:
    """Runs without files: what is merged is as large as its parts, but for keys that are there twice."""

    keys: int
    runs: tuple[Run, ...] = ()
    merges: tuple[Merge, ...] = ()
    gone_over: int = 0
    files: dict[str, SortedRows] = field(default_factory=dict)

    def rows(self, run: Run) -> SortedRows:
        if run.file not in self.files:  # when it is new, its range is that of its file
            self.files[run.file] = evenly(run.rows, run.low, run.high)
        return self.files[run.file]

    def batch(self, number: int, written: int) -> int:
        """Run a batch; how many rows it went over."""
        budget, spent, left = budget_of(number, self.runs, written), 0, []
        begun = merge_to_begin(self.runs, self.merges, number) if budget else None
        for place, merge in enumerate((begun, *self.merges) if begun else self.merges):
            if budget - spent <= 0:
                left.append(merge)
                continue
            piece = next_slice(merge, self.runs, self.rows, budget - spent)
            width = (piece.high - piece.low) / 2**64
            rows = max(1, min(piece.rows, int(self.keys * width)))
            file = f"{number}-{place}"
            made = Run(merge.into, file, rows, 0, piece.low, piece.high)
            self.runs = after(piece, made, self.runs)
            spent += piece.rows
            left += [further] if (further := progressed(piece)) else []
        self.runs = (Run(str(number), str(number), written, 0), *self.runs)
        for run in self.runs:
            self.rows(run)
        self.merges = tuple(left)
        self.gone_over += spent
        return spent


@pytest.mark.parametrize("keys", [25_000, 250_000, 2_500_000])
def test_merging_keeps_up_and_no_batch_does_much_of_it(keys: int) -> None:
    written, batches = 2500, 2000
    bucket = Bucket(keys, (Run("first", "first", keys, 0),))
    most, stored = 0, 0
    for number in range(batches):
        spent = bucket.batch(number, written)
        assert not spent or (number + 1) % EVERY == 0
        assert spent <= SLICE_ROWS * 1.05
        most = max(most, len({run.run for run in bucket.runs}))
        stored = max(stored, sum(run.rows for run in bucket.runs))
    assert most <= 4 * FANOUT + EVERY
    assert stored <= 4 * keys + 20 * written * FANOUT
    assert bucket.gone_over <= 6 * batches * written


def test_large_batches_are_merged_as_fast_as_they_come() -> None:
    bucket = Bucket(10**7)
    for number in range(60):
        bucket.batch(number, 200_000)
        assert len({run.run for run in bucket.runs}) <= 2 * FANOUT + EVERY


def test_a_run_of_several_files_is_gone_over_in_parts_as_well() -> None:
    files = 20
    cuts = [LOWEST + 2**64 * n // files for n in range(files)]
    ends = [*(cut - 1 for cut in cuts[1:]), HIGHEST]
    old = [
        Run("old", str(n), SLICE_ROWS, 0, low, high)
        for n, (low, high) in enumerate(zip(cuts, ends, strict=True))
    ]
    runs, merge = (Run("new", "new", 100, 0), *old), Merge("both", ("new", "old"), LOWEST)
    piece = next_slice(merge, runs, lambda run: evenly(run.rows, run.low, run.high), SLICE_ROWS)
    assert SLICE_ROWS * 0.9 < piece.rows <= SLICE_ROWS
    assert piece.high < cuts[2]
    left = after(piece, replace(runs[0], file="made"), runs)
    assert {run.file for run in left} >= {"made", "new", "19"}


def test_a_merge_of_nothing_but_one_key_ends() -> None:
    same = SortedRows(pa.table({HASH: np.zeros(1000, np.int64)}))
    runs, merge, parts = (Run("a", "a", 1000, 0), Run("b", "b", 1000, 0)), None, 0
    merge = Merge("both", ("a", "b"), LOWEST)
    while merge is not None:
        merge = progressed(next_slice(merge, runs, lambda _: same, 10))
        parts += 1
        assert parts < 10_000
