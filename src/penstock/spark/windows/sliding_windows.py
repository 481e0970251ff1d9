"""Sliding windows: each row sees the rows of its key within a stretch of time up to its own.

What is kept is one pane for each time at which there were rows. A result is made of all panes that its
window holds.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from penstock.spark.windows.columns import END, NEW, PUBLISHED, START
from penstock.spark.windows.folding import Folded, flags, kept, results, together
from penstock.spark.windows.kinds import Sliding
from penstock.spark.windows.parts import merge
from penstock.spark.windows.plan import Plan

_KEY: Final = "_key"
_AT: Final = "_at"
_FIRST: Final = "_first"
_NEWEST: Final = "_newest"
_PANES: Final = "_panes"
_TARGET: Final = "_target"


def fold(plan: Plan, state: pl.DataFrame, panes: pl.DataFrame, mark_us: int) -> Folded:
    """Add panes, and find whose windows hold them."""
    assert isinstance(plan.window, Sliding)
    more = [*flags(), pl.col(END).first()]
    merged = merge(together(plan, state, panes), plan.ids, plan.parts, more)
    size = plan.window.size_us
    marked = _with_newest(_numbered(merged, plan, size))
    changed = pl.col(_NEWEST) > pl.col(START)
    to_show = marked.filter(plan.shown(mark_us) & (changed | ~pl.col(PUBLISHED)))
    was_out = marked.filter(changed & pl.col(PUBLISHED)).select(plan.ids)
    old = _numbered(state.sort(plan.ids), plan, size)
    out = old.join(was_out, on=plan.ids, how="semi", nulls_equal=True, maintain_order="left")
    return Folded(
        kept(plan, merged, mark_us),
        results(plan, _rolled(plan, old, out)),
        results(plan, _rolled(plan, marked, to_show)),
        pl.Series(dtype=pl.Int64),
    )


def _numbered(panes: pl.DataFrame, plan: Plan, size_us: int) -> pl.DataFrame:
    """Panes in order of key and time, each with its number and the first one in its window."""
    key = pl.struct(plan.by).rle_id() if plan.by else pl.lit(0, pl.UInt32)
    numbered = panes.with_columns(key.alias(_KEY)).with_row_index(_AT)
    numbered = numbered.with_columns(pl.col(_AT).cast(pl.Int64))
    ends = numbered.select(_KEY, END, (pl.col(_AT) + 1).alias(_FIRST))
    found = numbered.join_asof(
        ends,
        left_on=START,
        right_on=END,
        by=_KEY,
        coalesce=False,
        suffix="_",
        check_sortedness=False,
    )
    first = pl.col(_FIRST).fill_null(pl.col(_AT).min().over(_KEY))
    return found.with_columns(first).select(*numbered.columns, _FIRST)


def _with_newest(panes: pl.DataFrame) -> pl.DataFrame:
    """With the time of the newest change in a window, or before it."""
    newest = pl.when(pl.col(NEW)).then(pl.col(END)).forward_fill().over(_KEY)
    return panes.with_columns(newest.alias(_NEWEST))


def _rolled(plan: Plan, panes: pl.DataFrame, targets: pl.DataFrame) -> pl.DataFrame:
    """The panes of each target's window added up."""
    held = targets.select(
        pl.col(_AT).alias(_TARGET), pl.int_ranges(_FIRST, pl.col(_AT) + 1).alias(_PANES)
    ).explode(_PANES)
    parts = panes.select(_AT, *(part.name for part in plan.parts))
    each = held.join(parts, left_on=_PANES, right_on=_AT, how="left")
    rolled = merge(each, [_TARGET], plan.parts)
    named = targets.select(pl.col(_AT).alias(_TARGET), *plan.ids, END)
    return named.join(rolled, on=_TARGET, how="left", maintain_order="left")
