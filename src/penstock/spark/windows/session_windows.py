"""Sessions: rows of a key that follow each other within a gap. New rows extend and join them.

Whether a row is late depends on the sessions that are there:

- a row that touches a session that is closed for good is late: it would change what is final;
- else a row whose own gap has not passed is in time, and extends, joins or begins a session;
- else it is in time only inside a session that is still open.

So the sessions are always those of a batch over all rows that were not late. Closed sessions are kept
for one more gap, to know what touches them.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from penstock.spark.windows.columns import END, NEW, PUBLISHED, START
from penstock.spark.windows.folding import Folded, flags, kept, results, together
from penstock.spark.windows.kinds import Sessions
from penstock.spark.windows.parts import make, merge
from penstock.spark.windows.plan import Plan

AT: Final = "_at"
_KEY: Final = "_key"
_SESSION: Final = "_session"
_OTHER_START: Final = "_other_start"
_OTHER_END: Final = "_other_end"
_TOUCHED: Final = "_touched"


def fold(plan: Plan, state: pl.DataFrame, rows: pl.DataFrame, mark_us: int) -> Folded:
    """Add rows, each with its number and its time as the start of a window, to sessions."""
    assert isinstance(plan.window, Sessions)
    limit = mark_us - plan.corrections_us
    state, rows = _with_key(plan, state, rows)
    rows = rows.with_columns((pl.col(START) + plan.window.gap_us).alias(END))
    closed, still_open = state.filter(pl.col(END) <= limit), state.filter(pl.col(END) > limit)
    fresh = _apart(rows.filter(pl.col(END) > limit), closed)
    spans = _spans(pl.concat([_edges(still_open), _edges(fresh)]))
    inside = _inside(rows.filter(pl.col(END) <= limit), spans)
    taken = pl.concat([fresh.select(inside.columns), inside])
    merged = _merged(plan, still_open, taken, spans)
    touched = merged.filter(pl.col(NEW)).select(_KEY, START, END)
    was_out = _within(still_open.filter(pl.col(PUBLISHED)), touched)
    quiet = closed.with_columns(pl.lit(value=False).alias(NEW)).select(merged.columns)
    all_of_them = pl.concat([merged, quiet])
    to_show = all_of_them.filter(plan.shown(mark_us) & (pl.col(NEW) | ~pl.col(PUBLISHED)))
    return Folded(
        kept(plan, all_of_them, mark_us).sort(plan.ids),
        results(plan, was_out),
        results(plan, to_show),
        rows.filter(~pl.col(AT).is_in(taken[AT].implode()))[AT],
    )


def _with_key(
    plan: Plan, state: pl.DataFrame, rows: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both with a number for each key: nulls in keys are equal here, and not everywhere."""
    if not plan.by:
        number = pl.lit(0, pl.UInt32).alias(_KEY)
        return state.with_columns(number), rows.with_columns(number)
    keys = pl.concat([state.select(plan.by), rows.select(plan.by)]).unique().sort(plan.by)
    keys = keys.with_row_index(_KEY)
    found = [
        frame.join(keys, on=plan.by, how="left", nulls_equal=True, maintain_order="left")
        for frame in (state, rows)
    ]
    return found[0], found[1]


def _edges(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(_KEY, START, END)


def _apart(fresh: pl.DataFrame, closed: pl.DataFrame) -> pl.DataFrame:
    """Rows that touch none of the closed sessions: fresh ones end after all of these."""
    others = closed.sort(END).select(_KEY, pl.col(END).alias(_OTHER_END))
    found = fresh.sort(START).join_asof(
        others.with_columns(pl.col(_OTHER_END).alias(_TOUCHED)),
        left_on=START,
        right_on=_OTHER_END,
        by=_KEY,
        strategy="forward",
        check_sortedness=False,
    )
    return found.filter(pl.col(_TOUCHED).is_null()).select(fresh.columns)


def _spans(edges: pl.DataFrame) -> pl.DataFrame:
    """Stretches that touch each other, joined."""
    ordered = edges.sort(_KEY, START, END)
    reached = pl.col(END).cum_max().shift(1).over(_KEY)
    begins = (pl.col(START) > reached).fill_null(value=True)
    numbered = ordered.with_columns(begins.cum_sum().alias(_SESSION))
    return (
        numbered.group_by(_SESSION, maintain_order=True)
        .agg(pl.col(_KEY).first(), pl.col(START).min(), pl.col(END).max())
        .sort(START)
    )


def _within(frame: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """What begins inside one of the spans."""
    others = _edges(spans).sort(START).rename({START: _OTHER_START, END: _OTHER_END})
    found = frame.sort(START).join_asof(
        others, left_on=START, right_on=_OTHER_START, by=_KEY, check_sortedness=False
    )
    return found.filter(pl.col(START) <= pl.col(_OTHER_END))


def _inside(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    return _within(rows, spans).select(rows.columns)


def _merged(
    plan: Plan, still_open: pl.DataFrame, taken: pl.DataFrame, spans: pl.DataFrame
) -> pl.DataFrame:
    """The sessions of spans, from kept ones and rows; with the names of their keys."""
    ids = [*plan.by, _KEY, START, END]
    panes = make(_in_span(taken, spans), ids, plan.parts)
    old = _in_span(still_open, spans)
    both = together(plan, old, panes).with_columns(pl.concat([old[_KEY], panes[_KEY]]))
    return merge(both, ids, plan.parts, flags())


def _in_span(frame: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """With the start and the end of the span that each belongs to."""
    others = _edges(spans).sort(START).rename({START: _OTHER_START, END: _OTHER_END})
    found = frame.sort(START).join_asof(
        others, left_on=START, right_on=_OTHER_START, by=_KEY, check_sortedness=False
    )
    bounds = (pl.col(_OTHER_START).alias(START), pl.col(_OTHER_END).alias(END))
    return found.with_columns(*bounds).select(frame.columns)
