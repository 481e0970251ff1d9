"""Merges runs in levels, a bounded part of them in some batches.

A level holds runs of about the same size, up to FANOUT times that of the level below. FANOUT runs of a
level become one, and so does everything when the newer runs have as many rows as the oldest. Merging is
the work of every EVERY-th batch, so that most do not pay for it at all, and a large merge goes over the
hashes range by range, one in each of these batches, so that none pays for all that is stored; until it
is done, hashes below its place are read from the new run, those above from the old ones. All decisions
follow from the version before, so that every try of a batch does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.spark.state.runs import HIGHEST, LOWEST, Run
from penstock.spark.state.sorted_rows import SortedRows
from penstock.spark.state.versions import Merge

# Fewer: rows are written more often. More: a look for a key asks more runs.
FANOUT: Final = 8
# Runs up to this size are all of the first level.
_SMALL_ROWS: Final = 1024
# The batches that merge are those whose number is one less than a multiple of this.
EVERY: Final = 4
# What such a batch goes over: about ten milliseconds, so that it takes not much longer than others.
# Smaller parts make more files, each of which every batch looks into.
SLICE_ROWS: Final = 131_072
# Or so many times what was written since the last one, that each level is done before it is full again.
_PACE: Final = 6
# Hashes are spread evenly: a part of a merge ends at one of so many places.
_CUTS: Final = 1024

Rows = Callable[[Run], SortedRows]


@dataclass(frozen=True, slots=True)
class Slice:
    """What one batch does for a merge: `members` from low to high become one file of `into`."""

    merge: Merge
    members: tuple[Run, ...]
    low: int
    high: int
    rows: int  # what it goes over
    bottom: bool  # nothing older is below, so that what is gone need not be remembered

    def parts(self, rows: Rows) -> list[pa.Table]:
        """What members have in its range, the newest first."""
        return [
            rows(run).part(max(run.low, self.low), min(run.high, self.high))
            for run in self.members
            if run.low <= self.high
        ]


def level_of(rows: int) -> int:
    """The level of a run of that many rows."""
    level = 0
    while rows > _SMALL_ROWS * FANOUT**level:
        level += 1
    return level


def budget_of(batch_id: int, runs: tuple[Run, ...], written: int) -> int:
    """How many rows a batch may go over that writes so many itself; 0: it does not merge."""
    if (batch_id + 1) % EVERY:
        return 0
    recent = {str(number) for number in range(batch_id - EVERY + 1, batch_id)}
    written += sum(run.rows for run in runs if run.run in recent)
    return max(SLICE_ROWS, _PACE * written)


def merge_to_begin(runs: tuple[Run, ...], merges: tuple[Merge, ...], batch_id: int) -> Merge | None:
    """The merge to begin now, if any: of runs that are newer than all that are being merged."""
    busy = {run for merge in merges for run in (merge.into, *merge.members)}
    sizes: dict[str, int] = {}
    for run in takewhile(lambda run: run.run not in busy, runs):
        sizes[run.run] = sizes.get(run.run, 0) + run.rows
    chosen: list[str] = []
    for level in range(level_of(max(sizes.values(), default=0)) + 1):
        small = list(takewhile(lambda run: level_of(sizes[run]) <= level, sizes))  # noqa: B023
        here = sum(level_of(sizes[run]) == level for run in small[len(chosen) :])
        if here + bool(chosen) >= FANOUT:
            chosen = small
    *newer, oldest = sizes or [""]
    if newer and not busy and sum(sizes[run] for run in newer) >= sizes[oldest]:
        chosen = list(sizes)
    return Merge(f"{batch_id}-merged", tuple(chosen), LOWEST) if chosen else None


def next_slice(merge: Merge, runs: tuple[Run, ...], rows: Rows, budget: int) -> Slice:
    """How far a merge goes in this batch if it may go over so many rows."""
    members = tuple(run for run in runs if run.run in merge.members and run.high >= merge.low)
    cuts = [merge.low + (HIGHEST - merge.low) * n // _CUTS for n in range(1, _CUTS + 1)]
    ends, total = np.array(cuts, np.int64), np.zeros(_CUTS, np.int64)
    for run in members:
        begin, end = rows(run).place(max(run.low, merge.low), run.high)
        total += np.searchsorted(rows(run).hashes[begin:end], ends, "right")
    # At least one range, so that it comes to an end.
    last = max(0, int(np.searchsorted(total, budget, "right")) - 1)
    bottom = runs[-1].run in merge.members
    return Slice(merge, members, merge.low, cuts[last], int(total[last]), bottom)


def after(piece: Slice, made: Run | None, runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """The runs when a slice is done; `made` is its file, None if nothing was left of it."""
    place = next((i for i, run in enumerate(runs) if run in piece.members), 0)
    kept: list[Run] = []
    for run in runs:
        if run not in piece.members:
            kept.append(run)
        elif run.high > piece.high:
            kept.append(replace(run, low=max(run.low, piece.high + 1)))
    new = () if made is None else (made,)
    return (*kept[:place], *new, *kept[place:])


def progressed(piece: Slice) -> Merge | None:
    """The merge after a slice; None: it is done."""
    if piece.high == HIGHEST:
        return None
    return replace(piece.merge, low=piece.high + 1)
