"""What folding the rows of a batch into the windows of a key gives, whatever the kind of window."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from penstock.spark.windows.columns import END, NEW, PUBLISHED, START
from penstock.spark.windows.plan import Plan


@dataclass(frozen=True, slots=True)
class Folded:
    """Windows after a batch.

    `kept` is the new state; `before` and `after` are the results that were out and are to be out, of
    windows that changed; `late` are the numbers of rows that came too late for any window.
    """

    kept: pl.DataFrame
    before: pl.DataFrame
    after: pl.DataFrame
    late: pl.Series


def results(plan: Plan, windows: pl.DataFrame) -> pl.DataFrame:
    """What is known of windows, from what is kept."""
    found = (one.result().alias(name) for name, one in plan.aggregates.items())
    return windows.select(*plan.by, START, END, *found)


def kept(plan: Plan, windows: pl.DataFrame, mark_us: int) -> pl.DataFrame:
    """Windows that something to come may still meet, with what has been published by now."""
    staying = windows.filter(plan.forgotten_us() > mark_us)
    return staying.with_columns(plan.shown(mark_us).alias(PUBLISHED))


def together(plan: Plan, state: pl.DataFrame, panes: pl.DataFrame) -> pl.DataFrame:
    """Kept windows and new panes in one table, told apart by two columns."""
    names = [*plan.ids, END, *(part.name for part in plan.parts)]
    old = state.select(*names, PUBLISHED, pl.lit(value=False).alias(NEW))
    new = panes.select(*names, pl.lit(value=False).alias(PUBLISHED), pl.lit(value=True).alias(NEW))
    return pl.concat([old, new])


def flags() -> list[pl.Expr]:
    """How the two columns are merged."""
    return [pl.col(PUBLISHED).any(), pl.col(NEW).any()]
