"""A machine that stops between any two file operations of a batch, and runs the batch again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.spark.state.stores import Row, Store

from penstock.spark.state import merging
from penstock.spark.state.places import LocalPlace
from penstock.testing.faulty import Crash, FaultyFiles
from penstock.testing.power_failure import Keep

_BATCHES = 9


def batch(number: int) -> list[Row]:
    return [(key, 1, None) for key in range(number % 3, 20, 3)]


def run(files: FaultyFiles, first: int) -> int:
    """Run batches from the first on; how many are done when the machine stops."""
    store = Store(LocalPlace(Path("/checkpoint/state"), files))
    done = first
    try:
        for number in range(first, _BATCHES):
            store.run(number, batch(number))
            done = number + 1
    except Crash:
        pass
    return done


@pytest.mark.parametrize("policy", list(Keep))
def test_every_batch_that_was_done_counts_once(
    policy: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "EVERY", 2)
    monkeypatch.setattr(merging, "SLICE_ROWS", 8)
    monkeypatch.setattr(merging, "_PACE", 1)
    monkeypatch.setattr(merging, "FANOUT", 3)
    expected: dict[int, int] = {}
    for number in range(_BATCHES):
        for key, amount, _ in batch(number):
            expected[key] = expected.get(key, 0) + amount
    crashes, rng = 0, random.Random(5)
    while True:
        files = FaultyFiles(crash_at=crashes + 1)
        done = run(files, 0)
        if done == _BATCHES:
            break
        crashes += 1
        found = files.after_crash(policy, rng)
        assert run(found, done) == _BATCHES
        assert Store(LocalPlace(Path("/checkpoint/state"), found)).all(_BATCHES - 1) == expected
    assert crashes > 5 * _BATCHES
