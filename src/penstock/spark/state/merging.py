"""Merges runs in levels, a bounded part of them in each batch.

A level holds runs of about the same size, up to FANOUT times that of the level below. When the newest
runs up to some level are FANOUT of them, they become one. A large merge goes over the hashes range by
range, one at each batch, so that no batch pays for all that is stored; until it is done, hashes below
its place are read from the new run, those above from the old ones. All decisions follow from the
version before, so that every try of a batch does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

import pyarrow as pa

from penstock.spark.state.runs import HIGHEST, LOWEST, Run, hashes_of, part
from penstock.spark.state.versions import Merge

# Fewer: rows are written more often. More: a look for a key asks more runs.
FANOUT: Final = 8
# Runs up to this size are all of the first level.
_SMALL_ROWS: Final = 1024
# What a merge goes over in one batch: some ten milliseconds. Or so much more than the batch itself wrote
# that it is done before there is as much again to merge.
SLICE_ROWS: Final = 65_536
_PACE: Final = 4

Rows = Callable[[Run], pa.Table]


@dataclass(frozen=True, slots=True)
class Slice:
    """What one batch does for a merge: `members` from low to high become one file of `into`."""

    merge: Merge
    members: tuple[Run, ...]
    low: int
    high: int
    bottom: bool  # nothing older is below, so that what is gone need not be remembered

    def parts(self, rows: Rows) -> list[pa.Table]:
        """What members have in its range, the newest first."""
        return [
            part(rows(run), max(run.low, self.low), min(run.high, self.high))
            for run in self.members
        ]


def level_of(rows: int) -> int:
    """The level of a run of that many rows."""
    level = 0
    while rows > _SMALL_ROWS * FANOUT**level:
        level += 1
    return level


def merge_to_begin(runs: tuple[Run, ...], merges: tuple[Merge, ...], batch_id: int) -> Merge | None:
    """The merge to begin now, if any: of runs that are newer than all that are being merged."""
    busy = {run for merge in merges for run in (merge.into, *merge.members)}
    sizes: dict[str, int] = {}
    for run in takewhile(lambda run: run.run not in busy, runs):
        sizes[run.run] = sizes.get(run.run, 0) + run.rows
    for level in range(level_of(max(sizes.values(), default=0)) + 1):
        small = list(takewhile(lambda run: level_of(sizes[run]) <= level, sizes))  # noqa: B023
        if len(small) >= FANOUT:
            return Merge(f"{batch_id}-merged", tuple(small), LOWEST)
    return None


def next_slice(merge: Merge, runs: tuple[Run, ...], rows: Rows, written: int) -> Slice:
    """How far a merge goes in this batch, which wrote so many rows itself."""
    members = tuple(run for run in runs if run.run in merge.members and run.high >= merge.low)
    budget = max(SLICE_ROWS, _PACE * written)
    hashes = [hashes_of(part(rows(run), max(run.low, merge.low), run.high)) for run in members]
    total, high = sum(map(len, hashes)), HIGHEST
    if total > budget:
        # The largest stands for all: hashes are spread evenly.
        largest = max(hashes, key=len)
        high = int(largest[min(len(largest) - 1, budget * len(largest) // total)])
    bottom = runs[-1].run in merge.members
    return Slice(merge, members, merge.low, high, bottom)


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
