"""What is kept of many values in little memory, with an error that is known beforehand.

Both are tallies, like the exact ones, of something coarser than the values, so they merge in any order
to the same bytes:

- buckets, for percentiles (DDSketch, Masson and others, VLDB 2019): each bucket is wider than the one
  before it by the same factor, so the middle of a bucket is within a share of every value in it;
- registers, for distinct counts (HyperLogLog, Flajolet and others, 2007): the longest run of zeros that
  the hashes of a register had. Its standard error is 1.04 by the root of the number of registers.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Final

import polars as pl

# What is nearer to zero counts as zero.
_LEAST: Final = 1e-12
# Above the number of any bucket: positive values are above it, negative ones below its negative.
_POSITIVE: Final = 2**40
_HASH_BITS: Final = 64
_REGISTER_BITS_MIN: Final = 7  # below, the constant of the estimate is another


def bucket(value: pl.Expr, error: float) -> pl.Expr:
    """The number of a value's bucket; null if it is no finite number."""
    number = value.cast(pl.Float64)
    size = number.abs()
    place = (size.log() / math.log(_factor(error))).ceil()
    signed = (place + _POSITIVE) * number.sign()
    found = pl.when(size < _LEAST).then(0.0).otherwise(signed)
    return pl.when(number.is_finite()).then(found).cast(pl.Int64)


def bucket_value(number: pl.Expr, error: float) -> pl.Expr:
    """The value that a bucket stands for."""
    factor = _factor(error)
    place = number.abs().cast(pl.Float64) - _POSITIVE
    size = (place * math.log(factor)).exp() * 2 / (factor + 1)
    return pl.when(number == 0).then(0.0).otherwise(size * number.sign())


def _factor(error: float) -> float:
    return (1 + error) / (1 - error)


def register_bits(error: float) -> int:
    """How many bits of a hash choose the register, for a standard error."""
    return max(_REGISTER_BITS_MIN, math.ceil(2 * math.log2(1.04 / error)))


def registers(values: pl.Series, error: float) -> tuple[pl.Series, pl.Series]:
    """For each value its register, and the place of the first one in the rest of its hash."""
    bits = register_bits(error)
    different = values.unique().drop_nulls()
    hashes = [_hash(value) for value in different.to_list()]
    rest = _HASH_BITS - bits
    found = pl.DataFrame(
        {
            "value": different,
            "register": pl.Series([one >> rest for one in hashes], dtype=pl.Int64),
            "place": pl.Series(
                [rest - (one & ((1 << rest) - 1)).bit_length() + 1 for one in hashes],
                dtype=pl.Int64,
            ),
        }
    )
    each = values.to_frame("value").join(found, on="value", how="left", maintain_order="left")
    return each["register"], each["place"]


def _hash(value: object) -> int:
    # The same in every process and version, unlike the hashes of Python and of polars.
    text = value if isinstance(value, bytes) else str(value).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def registers_estimate(tally: pl.Expr, error: float) -> pl.Expr:
    """How many different values there were, from a list of registers with their places."""
    size = 1 << register_bits(error)
    place = pl.element().struct.field("times").cast(pl.Float64)
    weights = tally.list.eval((-place * math.log(2)).exp().sum()).list.first()
    empty = size - tally.list.len().cast(pl.Float64)
    raw = 0.7213 / (1 + 1.079 / size) * size * size / (empty + weights)
    few = (raw <= 2.5 * size) & (empty > 0)
    counted = pl.when(few).then((size / empty).log() * size).otherwise(raw)
    return counted.round().cast(pl.Int64).fill_null(0)
