"""What a windowed query is, checked once, and the shapes of everything that follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa

from penstock.errors import UsageError
from penstock.spark.windows.aggregates import Aggregate
from penstock.spark.windows.columns import (
    CHANGE,
    DUE,
    END,
    LATE,
    LATE_BY,
    PUBLISHED,
    ROW,
    START,
    WATERMARK,
)
from penstock.spark.windows.kinds import OPERATION, Fixed, Sessions, Sliding, Window
from penstock.spark.windows.parts import Part

EARLY: Final = "early"
FINAL: Final = "final"
MOMENT: Final = pa.timestamp("us", tz="UTC")
# Before all times, and far enough from the end of 64 bits to subtract from.
NEVER_US: Final = -(2**61)


@dataclass(frozen=True, slots=True)
class Plan:
    """A windowed query."""

    rows: pa.Schema
    time: str
    by: tuple[str, ...]
    window: Window
    aggregates: dict[str, Aggregate]
    emit: str
    corrections_us: int

    @property
    def ids(self) -> list[str]:
        """What tells one window from another."""
        return [*self.by, START]

    @property
    def parts(self) -> list[Part]:
        """What is kept for each window; what two aggregates need is kept once."""
        needed = (part for aggregate in self.aggregates.values() for part in aggregate.parts)
        return list(dict.fromkeys(needed))

    @property
    def columns(self) -> list[str]:
        """The columns of rows that are looked at."""
        used = [*self.by, *(part.column for part in self.parts)]
        return list(dict.fromkeys([self.time, *(name for name in used if name)]))

    @property
    def pane_schema(self) -> pa.Schema:
        """What goes to the keeper of a key."""
        row = pa.struct(list(self.rows))
        return pa.schema([*self._window_fields, (LATE, pa.bool_()), (ROW, row), *self._part_fields])

    @property
    def state_schema(self) -> pa.Schema:
        """What is kept between batches."""
        flags = [(PUBLISHED, pa.bool_()), (DUE, pa.int64())]
        return pa.schema([*self._window_fields, *self._part_fields, *flags])

    @property
    def result_schema(self) -> pa.Schema:
        """A change of a result."""
        found = [(name, one.type(self.rows)) for name, one in self.aggregates.items()]
        return pa.schema(
            [(CHANGE, pa.string()), *self._window_fields, *found, (WATERMARK, MOMENT)],
        )

    @property
    def late_schema(self) -> pa.Schema:
        """A row that came too late."""
        more = [(START, MOMENT), (END, MOMENT), (LATE_BY, pa.int64()), (WATERMARK, MOMENT)]
        return pa.schema([*self.rows, *more])

    @property
    def _window_fields(self) -> list[pa.Field]:
        keys = [self.rows.field(name) for name in self.by]
        return [*keys, pa.field(START, MOMENT), pa.field(END, MOMENT)]

    @property
    def _part_fields(self) -> list[pa.Field]:
        return [pa.field(part.name, part.type(self.rows)) for part in self.parts]

    def closes_us(self) -> pl.Expr:
        """The watermark at which a window is complete."""
        # A sliding window has its end inside.
        return pl.col(END) + (1 if isinstance(self.window, Sliding) else 0)

    def forgotten_us(self) -> pl.Expr:
        """The watermark at which nothing that is still to come can meet a window."""
        return self.closes_us() + self.corrections_us + self._reach_us

    @property
    def _reach_us(self) -> int:
        match self.window:
            case Fixed():
                return 0
            case Sliding(size_us):
                return size_us  # later rows look back at it
            case Sessions(gap_us):
                return gap_us  # rows that would touch it must be told apart from new sessions

    def shown(self, mark_us: int) -> pl.Expr:
        """Whether the results of a window may be out."""
        return pl.lit(value=True) if self.emit == EARLY else self.closes_us() <= mark_us

    def due_ms(self) -> pl.Expr:
        """When there is next something to do for a window without rows."""
        due = self.forgotten_us()
        if self.emit == FINAL:
            due = pl.when(pl.col(PUBLISHED)).then(due).otherwise(self.closes_us())
        return -(-due // 1000)


def check(
    rows: pa.Schema,
    time: str,
    by: Sequence[str],
    window: Window,
    aggregates: Mapping[str, Aggregate],
    emit: str,
) -> None:
    """Say what is wrong with a query before it starts.

    Raises:
        UsageError: it makes no sense.
    """
    used = [*by, *(part.column for one in aggregates.values() for part in one.parts)]
    missing = [name for name in (time, *used) if name and name not in rows.names]
    if missing:
        cause = f"there is no column {', '.join(missing)} among {', '.join(rows.names)}"
        raise UsageError(OPERATION, cause, "name columns that are there")
    if not pa.types.is_timestamp(rows.field(time).type):
        cause = f"{time} is {rows.field(time).type}"
        raise UsageError(OPERATION, cause, "take a column of type timestamp")
    if not by and not isinstance(window, Fixed):
        cause = "these windows are kept by key, and there is none"
        remedy = "name columns with `by`; a constant one makes one key of all rows"
        raise UsageError(OPERATION, cause, remedy)
    if not aggregates:
        raise UsageError(OPERATION, "there are no aggregates", "name at least one")
    if emit not in (EARLY, FINAL):
        raise UsageError(OPERATION, f"emit is '{emit}'", f"write {EARLY} or {FINAL}")
    taken = {START, END, WATERMARK, CHANGE}
    twice = taken & {*by, *aggregates} | {*by} & {*aggregates}
    twice |= {START, END, WATERMARK, LATE_BY} & {*rows.names}
    if twice:
        cause = f"{', '.join(sorted(twice))} would be there twice"
        raise UsageError(OPERATION, cause, "give the column another name")
    for one in aggregates.values():
        one.type(rows)
