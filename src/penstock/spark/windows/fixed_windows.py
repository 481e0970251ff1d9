"""Tumbling and hopping windows: a row's windows follow from its time alone."""

from __future__ import annotations

import polars as pl

from penstock.spark.windows.columns import END, NEW, PUBLISHED, START
from penstock.spark.windows.folding import Folded, flags, kept, results, together
from penstock.spark.windows.kinds import Fixed
from penstock.spark.windows.parts import merge
from penstock.spark.windows.plan import Plan


def newest_start(window: Fixed, time: pl.Expr) -> pl.Expr:
    """The last window of a time: the one that closes last."""
    return time // window.step_us * window.step_us


def with_windows(window: Fixed, rows: pl.DataFrame, time: str) -> pl.DataFrame:
    """Each row once for each of its windows."""
    back = [pl.lit(hop * window.step_us) for hop in range(-(-window.size_us // window.step_us))]
    newest = newest_start(window, pl.col(time))
    starts = pl.concat_list(newest - hop for hop in back)
    spread = rows.with_columns(starts.alias(START)).explode(START)
    spread = spread.with_columns((pl.col(START) + window.size_us).alias(END))
    return spread.filter(pl.col(END) > pl.col(time))


def fold(plan: Plan, state: pl.DataFrame, panes: pl.DataFrame, mark_us: int) -> Folded:
    """Add panes to their windows."""
    more = [*flags(), pl.col(END).first()]
    merged = merge(together(plan, state, panes), plan.ids, plan.parts, more)
    changed = merged.filter(pl.col(NEW)).select(plan.ids)
    out = state.filter(pl.col(PUBLISHED)).join(changed, on=plan.ids, how="semi", nulls_equal=True)
    to_show = merged.filter(plan.shown(mark_us) & (pl.col(NEW) | ~pl.col(PUBLISHED)))
    return Folded(
        kept(plan, merged, mark_us),
        results(plan, out),
        results(plan, to_show),
        pl.Series(dtype=pl.Int64),
    )
