"""A file's rows against what a plain search finds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.spark.state.runs import HIGHEST, LOWEST
from penstock.spark.state.sorted_rows import DUE_ORDER, HASH, Hashes, SortedRows


def rows_of(hashes: Hashes) -> SortedRows:
    columns = {HASH: np.sort(hashes), "n": np.arange(len(hashes)), DUE_ORDER: hashes}
    return SortedRows(pa.table(columns))


def spread(count: int, seed: int) -> Hashes:
    return np.random.default_rng(seed).integers(LOWEST, HIGHEST, count, endpoint=True)


@pytest.mark.parametrize("stored", [1, 2, 40, 5000, 40_000])
@pytest.mark.parametrize("asked", [1, 200, 3000])  # few are looked for without an index
@pytest.mark.parametrize("most", [1, 3])
def test_what_is_there_is_found(stored: int, asked: int, most: int) -> None:
    rng = np.random.default_rng(stored + asked)
    hashes = np.append(np.repeat(spread(stored, 1), most), [LOWEST, HIGHEST])
    file = rows_of(hashes)
    wanted = np.append(rng.choice(hashes, asked), spread(asked, 2))
    wanted = np.unique(np.append(wanted, [LOWEST, 0, HIGHEST]))
    here, its = file.find(wanted)
    assert wanted[here].tolist() == np.intersect1d(wanted, hashes).tolist()
    assert its.column_names == [HASH, "n"]
    expected = np.flatnonzero(np.isin(np.sort(hashes), wanted))
    assert its["n"].to_pylist() == expected.tolist()


def test_hashes_that_are_not_spread_are_found_too() -> None:
    hashes = np.concatenate((np.full(5000, 7), np.arange(1000), [HIGHEST]))
    here, its = rows_of(hashes).find(np.arange(-500, 2000))
    assert here.tolist() == list(range(500, 1500))
    assert len(its) == 6000


def test_a_part_has_both_its_ends() -> None:
    file = rows_of(np.array([LOWEST, -5, 0, 0, 9, HIGHEST]))
    assert file.part(-5, 9)[HASH].to_pylist() == [-5, 0, 0, 9]
    assert file.part(LOWEST, HIGHEST).num_rows == 6
    assert file.part(1, 8).num_rows == 0
