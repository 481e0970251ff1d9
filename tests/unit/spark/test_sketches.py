"""Sketches: the error is the one that was promised, and merging in any order gives the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.spark.windows.aggregates import Aggregate, approx_distinct, approx_percentile
from penstock.spark.windows.parts import make, merge


def sketched(aggregate: Aggregate, pieces: Sequence[Sequence[Any]]) -> tuple[Any, pl.DataFrame]:
    """What pieces of a column give together, and what is kept."""
    panes = [
        make(
            pl.DataFrame({"id": [1] * len(some), "x": some}, strict=False), ["id"], aggregate.parts
        )
        for some in pieces
    ]
    kept = merge(pl.concat(panes), ["id"], aggregate.parts)
    return kept.select(aggregate.result().alias("found"))["found"][0], kept


NUMBERS = st.lists(
    st.floats(-1e200, 1e200, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-9),
    min_size=1,
    max_size=40,
)


@given(values=NUMBERS, share=st.sampled_from([0.0, 0.1, 0.5, 0.99, 1.0]))
@settings(max_examples=60, deadline=None)
def test_a_percentile_is_off_by_no_more_than_promised(values: list[float], share: float) -> None:
    found, _ = sketched(approx_percentile("x", share, error=0.01), [values])
    exact = sorted(values)[math.floor(share * (len(values) - 1))]
    assert found == pytest.approx(exact, rel=0.0101, abs=0)


@pytest.mark.parametrize("different", [0, 1, 100, 5_000, 60_000])
def test_a_distinct_count_is_about_as_good_as_promised(different: int) -> None:
    values = [f"user {number}" for number in range(different)]
    column: list[str | None] = [*values, *values[: different // 2], None]
    half = len(column) // 2
    found, _ = sketched(approx_distinct("x"), [column[:half] or [None], column[half:]])
    assert found == pytest.approx(different, rel=0.06)  # three standard errors


@given(values=st.lists(st.integers(-50, 50), min_size=3, max_size=30), cut=st.integers(1, 2))
@settings(max_examples=30, deadline=None)
def test_pieces_merge_to_the_same_in_any_order(values: list[int], cut: int) -> None:
    for aggregate in (approx_percentile("x", 0.5), approx_distinct("x")):
        whole = sketched(aggregate, [values])[1]
        pieces = [values[cut:], values[:cut]]
        assert sketched(aggregate, pieces)[1].equals(whole)
        assert sketched(aggregate, pieces[::-1])[1].equals(whole)


def test_what_is_kept_of_many_values_is_little() -> None:
    _, kept = sketched(approx_percentile("x", 0.5), [range(1, 100_001)])
    assert kept.select(pl.col("_buckets_x_0.01").list.len()).item() < 600


def test_values_that_are_no_numbers_are_left_out() -> None:
    values = [math.nan, math.inf, None, 3.0]
    assert sketched(approx_percentile("x", 0.5), [values])[0] == pytest.approx(3, rel=0.01)


def test_an_error_of_nothing_is_refused() -> None:
    for error in (0, 0.5):
        with pytest.raises(UsageError, match="error of a sketch"):
            approx_percentile("x", 0.5, error=error)
        with pytest.raises(UsageError, match="error of a sketch"):
            approx_distinct("x", error=error)
