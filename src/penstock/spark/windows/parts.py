"""Partial aggregates: what is kept of rows so that more rows, or other parts, can be added.

A tally holds each value with how often it came, in order of the values: exact percentiles, distinct
counts and top-k come from it. It costs memory for each different value of a window. Sketches are
tallies of less (sketches.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa

from penstock.errors import UsageError
from penstock.spark.windows.sketches import bucket, registers

_VALUE: Final = "_value"
_TIMES: Final = "_times"
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Part:
    """One column of what is kept for a window."""

    kind: str
    column: str = ""
    error: float = 0.0

    @property
    def name(self) -> str:
        """The column's name in panes and in the state."""
        words = [self.kind, self.column, f"{self.error:g}" if self.error else ""]
        return "_" + "_".join(word for word in words if word)

    def type(self, schema: pa.Schema) -> pa.DataType:
        """The type of the column, given that of the rows."""
        match self.kind:
            case "rows" | "values":
                return pa.int64()
            case "total":
                return total_type(schema.field(self.column).type)
            case "tally" | "buckets" | "registers":
                value = schema.field(self.column).type if self.kind == "tally" else pa.int64()
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
    "least": pl.Expr.min,
    "most": pl.Expr.max,
}
# How equal values of a tally become one.
_TALLIES: Final[dict[str, Callable[[pl.Expr], pl.Expr]]] = {
    "tally": pl.Expr.sum,
    "buckets": pl.Expr.sum,
    "registers": pl.Expr.max,
}


def make(rows: pl.DataFrame, ids: Sequence[str], parts: Sequence[Part]) -> pl.DataFrame:
    """The parts of rows, one line for each of ids."""
    totals = [part.column for part in parts if part.kind == "total"]
    made = [
        _total(rows.schema[part.column], part.column)
        if part.kind == "total"
        else _MAKE[part.kind](part.column)
        for part in parts
        if part.kind not in _TALLIES
    ]
    names = [part.name for part in parts if part.kind not in _TALLIES]
    found = _grouped(rows, ids, totals).agg(
        one.alias(name) for one, name in zip(made, names, strict=True)
    )
    found = _narrowed(found, parts)
    for part in parts:
        if part.kind in _TALLIES:
            found = _with_tally(found, ids, part, _each(rows, ids, part))
    return found


def _each(rows: pl.DataFrame, ids: Sequence[str], part: Part) -> pl.DataFrame:
    """What a tally counts of each row."""
    named = rows.select(ids)
    match part.kind:
        case "registers":
            register, place = registers(rows[part.column], part.error)
            return named.with_columns(register.alias(_VALUE), place.alias(_TIMES))
        case "buckets":
            value = rows.select(bucket(pl.col(part.column), part.error)).to_series()
        case _:
            value = rows[part.column]
    return named.with_columns(value.alias(_VALUE), pl.lit(1, pl.Int64).alias(_TIMES))


def merge(
    panes: pl.DataFrame, ids: Sequence[str], parts: Sequence[Part], more: Iterable[pl.Expr] = ()
) -> pl.DataFrame:
    """Parts added up, one line for each of ids; `more` is what else to know of each."""
    totals = [part.name for part in parts if part.kind == "total"]
    merged = [
        _total(panes.schema[part.name], part.name)
        if part.kind == "total"
        else _MERGE[part.kind](pl.col(part.name))
        for part in parts
        if part.kind not in _TALLIES
    ]
    found = _narrowed(_grouped(panes, ids, totals).agg(*merged, *more), parts)
    for part in parts:
        if part.kind in _TALLIES:
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
    # Narrow numbers would overflow; those of 64 bits, too, without a word (_narrowed).
    if kind.is_decimal():
        return pl.col(column).sum()
    return pl.col(column).cast(pl.Int128 if kind.is_integer() else pl.Float64).sum()


def _narrowed(found: pl.DataFrame, parts: Sequence[Part]) -> pl.DataFrame:
    """Sums of integers in the 64 bits in which they are kept.

    Raises:
        UsageError: one of them does not fit.
    """
    sums = [part for part in parts if part.kind == "total" and found.schema[part.name] == pl.Int128]
    for part in sums:
        total = found[part.name]
        if not total.is_between(_INT64_MIN, _INT64_MAX).all():
            cause = "the sum of a window is beyond 64 bits"
            remedy = f"make it wider before: cast {part.column} to decimal(38, 0) or double"
            raise UsageError(f"cannot add up the column {part.column}", cause, remedy)
    return found.with_columns(pl.col(part.name).cast(pl.Int64) for part in sums)


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
        .agg(_TALLIES[part.kind](pl.col(_TIMES)))
        .sort([*ids, _VALUE])
    )
    pair = pl.struct(pl.col(_VALUE).alias("value"), pl.col(_TIMES).alias("times"))
    tallies = counted.group_by(ids, maintain_order=True).agg(pair.alias(part.name))
    return found.join(tallies, on=ids, how="left", nulls_equal=True, maintain_order="left")
