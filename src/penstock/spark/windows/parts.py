"""Partial aggregates: what is kept of rows so that more rows, or other parts, can be added.

A tally holds each value with how often it came, in order of the values: exact percentiles, distinct
counts and top-k come from it. It costs memory for each different value of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa

_VALUE: Final = "_value"
_TIMES: Final = "_times"


@dataclass(frozen=True, slots=True)
class Part:
    """One column of what is kept for a window."""

    kind: str
    column: str = ""

    @property
    def name(self) -> str:
        """The column's name in panes and in the state."""
        return f"_{self.kind}_{self.column}" if self.column else f"_{self.kind}"

    def type(self, schema: pa.Schema) -> pa.DataType:
        """The type of the column, given that of the rows."""
        match self.kind:
            case "rows" | "values":
                return pa.int64()
            case "total":
                return total_type(schema.field(self.column).type)
            case "tally":
                value = schema.field(self.column).type
                return pa.list_(pa.struct([("value", value), ("times", pa.int64())]))
            case _:
                return schema.field(self.column).type


def total_type(of: pa.DataType) -> pa.DataType:
    """What a sum is kept in."""
    if pa.types.is_integer(of):
        return pa.int64()
    return pa.decimal128(38, of.scale) if pa.types.is_decimal(of) else pa.float64()


_MAKE: Final[dict[str, Callable[[str], pl.Expr]]] = {
    "rows": lambda _: pl.len().cast(pl.Int64),
    "values": lambda column: pl.col(column).count().cast(pl.Int64),
    "least": lambda column: pl.col(column).min(),
    "most": lambda column: pl.col(column).max(),
}
_MERGE: Final[dict[str, Callable[[pl.Expr], pl.Expr]]] = {
    "rows": pl.Expr.sum,
    "values": pl.Expr.sum,
    "total": pl.Expr.sum,
    "least": pl.Expr.min,
    "most": pl.Expr.max,
}


def make(rows: pl.DataFrame, ids: Sequence[str], parts: Sequence[Part]) -> pl.DataFrame:
    """The parts of rows, one line for each of ids."""
    totals = [part.column for part in parts if part.kind == "total"]
    made = [
        _total(rows.schema[part.column], part.column)
        if part.kind == "total"
        else _MAKE[part.kind](part.column)
        for part in parts
        if part.kind != "tally"
    ]
    names = [part.name for part in parts if part.kind != "tally"]
    found = _grouped(rows, ids, totals).agg(
        one.alias(name) for one, name in zip(made, names, strict=True)
    )
    for part in parts:
        if part.kind == "tally":
            each = rows.select(
                *ids, pl.col(part.column).alias(_VALUE), pl.lit(1, pl.Int64).alias(_TIMES)
            )
            found = _with_tally(found, ids, part, each)
    return found


def merge(
    panes: pl.DataFrame, ids: Sequence[str], parts: Sequence[Part], more: Iterable[pl.Expr] = ()
) -> pl.DataFrame:
    """Parts added up, one line for each of ids; `more` is what else to know of each."""
    totals = [part.name for part in parts if part.kind == "total"]
    found = _grouped(panes, ids, totals).agg(
        *(_MERGE[part.kind](pl.col(part.name)) for part in parts if part.kind in _MERGE), *more
    )
    for part in parts:
        if part.kind == "tally":
            tally = panes.select(*ids, pl.col(part.name).alias(_VALUE))
            each = (
                tally.filter(pl.col(_VALUE).list.len() > 0)
                .explode(_VALUE)
                .with_columns(
                    pl.col(_VALUE).struct.field("value").alias(_VALUE),
                    pl.col(_VALUE).struct.field("times").alias(_TIMES),
                )
            )
            found = _with_tally(found, ids, part, each)
    return found


def _total(kind: pl.DataType, column: str) -> pl.Expr:
    # Narrow numbers would overflow.
    if kind.is_decimal():
        return pl.col(column).sum()
    return pl.col(column).cast(pl.Int64 if kind.is_integer() else pl.Float64).sum()


def _grouped(
    frame: pl.DataFrame, ids: Sequence[str], totals: Sequence[str]
) -> pl.dataframe.GroupBy:
    # Sums of floats depend on the order, and the order of rows on how Spark moved them. A batch that
    # runs again must give the same bytes.
    ordered = frame.sort(list(dict.fromkeys([*ids, *totals])))
    return ordered.group_by(ids, maintain_order=True)


def _with_tally(
    found: pl.DataFrame, ids: Sequence[str], part: Part, each: pl.DataFrame
) -> pl.DataFrame:
    counted = (
        each.filter(pl.col(_VALUE).is_not_null())
        .group_by([*ids, _VALUE])
        .agg(pl.col(_TIMES).sum())
        .sort([*ids, _VALUE])
    )
    pair = pl.struct(pl.col(_VALUE).alias("value"), pl.col(_TIMES).alias("times"))
    tallies = counted.group_by(ids, maintain_order=True).agg(pair.alias(part.name))
    return found.join(tallies, on=ids, how="left", nulls_equal=True, maintain_order="left")
