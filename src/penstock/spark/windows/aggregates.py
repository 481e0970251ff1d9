"""What can be known of the rows of a window.

All are exact but those called `approx`. Nulls are left out, as in SQL; a window whose values are all
null has a null sum, mean, least, most and percentile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import polars as pl
import pyarrow as pa

from penstock.errors import UsageError
from penstock.spark.windows.columns import END, START
from penstock.spark.windows.kinds import OPERATION, duration_us
from penstock.spark.windows.parts import Part, total_type
from penstock.spark.windows.sketches import bucket_value, registers_estimate


class Aggregate(Protocol):
    """One column of the results."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is kept for it."""
        ...

    def result(self) -> pl.Expr:
        """From what is kept."""
        ...

    def type(self, schema: pa.Schema) -> pa.DataType:
        """The type of the column, given that of the rows.

        Raises:
            UsageError: it cannot be made of such a column.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Count:
    column: str | None

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("rows") if self.column is None else Part("values", self.column),)

    def result(self) -> pl.Expr:
        return pl.col(self.parts[0].name)

    def type(self, schema: pa.Schema) -> pa.DataType:
        del schema
        return pa.int64()


@dataclass(frozen=True, slots=True)
class _Rate:
    per_us: int

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("rows"),)

    def result(self) -> pl.Expr:
        length = pl.col(END) - pl.col(START)
        return pl.col(Part("rows").name).cast(pl.Float64) * self.per_us / length

    def type(self, schema: pa.Schema) -> pa.DataType:
        del schema
        return pa.float64()


@dataclass(frozen=True, slots=True)
class _Sum:
    column: str

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("total", self.column), Part("values", self.column))

    def result(self) -> pl.Expr:
        total, values = (pl.col(part.name) for part in self.parts)
        return pl.when(values > 0).then(total)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return total_type(_number("the sum", schema, self.column))


@dataclass(frozen=True, slots=True)
class _Mean:
    column: str

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("total", self.column), Part("values", self.column))

    def result(self) -> pl.Expr:
        total, values = (pl.col(part.name) for part in self.parts)
        return pl.when(values > 0).then(total.cast(pl.Float64) / values)

    def type(self, schema: pa.Schema) -> pa.DataType:
        _number("the mean", schema, self.column)
        return pa.float64()


@dataclass(frozen=True, slots=True)
class _Extreme:
    kind: str
    column: str

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(self.kind, self.column),)

    def result(self) -> pl.Expr:
        return pl.col(self.parts[0].name)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return schema.field(self.column).type


@dataclass(frozen=True, slots=True)
class _Distinct:
    column: str

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("tally", self.column),)

    def result(self) -> pl.Expr:
        return pl.col(self.parts[0].name).list.len().fill_null(0).cast(pl.Int64)

    def type(self, schema: pa.Schema) -> pa.DataType:
        del schema
        return pa.int64()


@dataclass(frozen=True, slots=True)
class _Percentile:
    column: str
    share: float

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("tally", self.column),)

    def result(self) -> pl.Expr:
        place = self.share * (pl.element().struct.field("times").sum() - 1)
        low, high = _at(place.floor()), _at(place.ceil())
        point = low + (high - low) * (place - place.floor())
        return pl.col(self.parts[0].name).list.eval(point).list.first()

    def type(self, schema: pa.Schema) -> pa.DataType:
        _number("a percentile", schema, self.column)
        return pa.float64()


def _at(place: pl.Expr) -> pl.Expr:
    """The value at a place of all values in order, inside a tally."""
    upto = pl.element().struct.field("times").cum_sum()
    return pl.element().struct.field("value").cast(pl.Float64).filter(upto > place).first()


@dataclass(frozen=True, slots=True)
class _ApproxPercentile:
    column: str
    share: float
    error: float

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("buckets", self.column, self.error),)

    def result(self) -> pl.Expr:
        times, value = (pl.element().struct.field(name) for name in ("times", "value"))
        place = (self.share * (times.sum() - 1)).floor()
        number = value.filter(times.cum_sum() > place).first()
        found = pl.col(self.parts[0].name).list.eval(number).list.first()
        return bucket_value(found, self.error)

    def type(self, schema: pa.Schema) -> pa.DataType:
        _number("a percentile", schema, self.column)
        return pa.float64()


@dataclass(frozen=True, slots=True)
class _ApproxDistinct:
    column: str
    error: float

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("registers", self.column, self.error),)

    def result(self) -> pl.Expr:
        return registers_estimate(pl.col(self.parts[0].name), self.error)

    def type(self, schema: pa.Schema) -> pa.DataType:
        del schema
        return pa.int64()


@dataclass(frozen=True, slots=True)
class _TopK:
    column: str
    k: int

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("tally", self.column),)

    def result(self) -> pl.Expr:
        times, value = (pl.element().struct.field(name) for name in ("times", "value"))
        often = pl.element().sort_by(times, value, descending=[True, False])
        return pl.col(self.parts[0].name).list.eval(often.head(self.k))

    def type(self, schema: pa.Schema) -> pa.DataType:
        return self.parts[0].type(schema)


def count(column: str | None = None) -> Aggregate:
    """How many rows there are, or how many have a value in a column."""
    return _Count(column)


def rate(per: str = "1 second") -> Aggregate:
    """How many rows there are for each second, or whatever is named, of the window's length."""
    return _Rate(duration_us("per", per))


def sum_of(column: str) -> Aggregate:
    """The sum of a column."""
    return _Sum(column)


def mean_of(column: str) -> Aggregate:
    """The mean of a column."""
    return _Mean(column)


def min_of(column: str) -> Aggregate:
    """The least value of a column."""
    return _Extreme("least", column)


def max_of(column: str) -> Aggregate:
    """The greatest value of a column."""
    return _Extreme("most", column)


def distinct(column: str) -> Aggregate:
    """How many different values there are."""
    return _Distinct(column)


def percentile(column: str, share: float) -> Aggregate:
    """The value below which that share of all values is; between two values, in proportion.

    Raises:
        UsageError: the share is not between 0 and 1.
    """
    return _Percentile(column, _share(share))


def approx_percentile(column: str, share: float, *, error: float = 0.01) -> Aggregate:
    """The value at that share of all values, in little memory: it is off by at most that part of itself.

    Values that are not finite are left out, and those nearer to zero than 1e-12 are taken for zero.

    Raises:
        UsageError: the share is not between 0 and 1, or the error is out of range.
    """
    return _ApproxPercentile(column, _share(share), _error(error))


def approx_distinct(column: str, *, error: float = 0.02) -> Aggregate:
    """How many different values there are, in little memory, with that standard error.

    Raises:
        UsageError: the error is out of range.
    """
    return _ApproxDistinct(column, _error(error))


def top_k(column: str, k: int) -> Aggregate:
    """The k values that came most often, each with how often; of equals the lesser value first.

    Raises:
        UsageError: k is not positive.
    """
    if k < 1:
        raise UsageError(OPERATION, f"top_k with k={k}", "ask for at least one")
    return _TopK(column, k)


def _share(share: float) -> float:
    if not 0 <= share <= 1:
        raise UsageError(OPERATION, f"the share of a percentile is {share}", "write 0.99 for 99 %")
    return share


def _error(error: float) -> float:
    if not 0.001 <= error <= 0.1:
        cause = f"the error of a sketch is {error}"
        raise UsageError(OPERATION, cause, "take one from 0.001 to 0.1, that is 10 %")
    return error


def _number(what: str, schema: pa.Schema, column: str) -> pa.DataType:
    kind = schema.field(column).type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return kind
    raise UsageError(OPERATION, f"{what} of {column}, which is {kind}", "take a column of numbers")
