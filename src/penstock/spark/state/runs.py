"""Runs: rows sorted by the hash of their key, of which newer ones hide older ones.

A run says for every key it names all that there is of it: its rows, or that it is gone. A run may be
several files, each with a range of hashes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.state.sorted_rows import DUE_ORDER, HASH, Hashes, SortedRows

GONE: Final = "_gone"  # the key has no rows any more
TOUCHED: Final = "_touched"  # when its rows were written, in ms, for those that expire
DUE: Final = "_due"  # the user's own: when a row wants to be seen again
LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Run:
    """The part of a file whose hashes are from `low` to `high`, both included.

    `due_first` is the earliest due time in it; all up to `due_seen` have been handed over.
    """

    run: str
    file: str
    rows: int
    checksum: int
    low: int = LOWEST
    high: int = HIGHEST
    due_first: int | None = None
    due_seen: int | None = None

    def to_json(self) -> dict[str, Any]:
        """For a header."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def find(runs: Sequence[Run], rows: Callable[[Run], SortedRows], wanted: Hashes) -> list[pa.Table]:
    """What the newest run that names a hash has of it, for sorted hashes that are all different."""
    found: list[pa.Table] = []
    firsts = np.searchsorted(wanted, np.array([run.low for run in runs], np.int64), "left")
    lasts = np.searchsorted(wanted, np.array([run.high for run in runs], np.int64), "right")
    missing = np.ones(len(wanted), np.bool_)
    for run, first, last in zip(runs, firsts, lasts, strict=True):
        asked = np.flatnonzero(missing[first:last]) + first
        if not len(asked):
            continue
        here, its = rows(run).find(wanted[asked])
        if len(here):
            found.append(its)
            missing[asked[here]] = False
    return found


def due(run: Run, rows: pa.Table, now_ms: int) -> Hashes:
    """Hashes of rows that became due since the last time somebody asked, hidden ones included."""
    if run.due_first is None or run.due_first > now_ms:
        return np.empty(0, np.int64)
    order, times = rows[DUE_ORDER].chunk(0), rows[DUE].chunk(0)
    timed = len(times) - times.null_count
    begin = 0 if run.due_seen is None else _first_after(order, times, timed, run.due_seen)
    end = _first_after(order, times, timed, now_ms)
    hashes = np.unique(rows[HASH].take(order.slice(begin, end - begin)).to_numpy())
    return hashes[(hashes >= run.low) & (hashes <= run.high)]


def _first_after(order: pa.Array, times: pa.Array, timed: int, moment: int) -> int:
    """How many of the rows in order of their due time are due at a moment."""
    low, high = 0, timed
    while low < high:
        middle = (low + high) // 2
        if times[order[middle].as_py()].as_py() <= moment:
            low = middle + 1
        else:
            high = middle
    return low


def sorted_rows(rows: pa.Table) -> pa.Table:
    """Rows as a file has them; those of one key stay in the order they have."""
    order = np.argsort(rows[HASH].to_numpy(), kind="stable")
    return with_due_order(rows.take(pa.array(order)))


def newest(tables: Sequence[pa.Table]) -> pa.Table:
    """One run out of several, the newest first."""
    rows = pa.concat_tables(tables)
    hashes = rows[HASH].to_numpy()
    ages = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    order = np.argsort(hashes, kind="stable")
    hashes, ages = hashes[order], ages[order]
    begins = np.concatenate(([True], hashes[1:] != hashes[:-1])) if len(hashes) else hashes > 0
    first = np.maximum.accumulate(np.where(begins, np.arange(len(hashes)), 0))
    return rows.take(pa.array(order[ages == ages[first]]))


def with_due_order(rows: pa.Table) -> pa.Table:
    """Rows with the column by which those that are due are found."""
    rows = rows.combine_chunks()
    if DUE not in rows.column_names:
        return rows
    order = pc.sort_indices(rows[DUE]).cast(pa.int64())  # nulls last
    return rows.append_column(DUE_ORDER, order)


def earliest_due(rows: pa.Table) -> int | None:
    """The first due time of rows."""
    if DUE not in rows.column_names:
        return None
    first: int | None = pc.min(rows[DUE]).as_py()
    return first
