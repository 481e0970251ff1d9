"""What a group's lag is, from what a broker tells."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.group_lag import Retention, Standing

NOW = 1_000_000
HOUR = Retention(3_600_000, by_size=False)


def standing(**facts: Any) -> Standing:
    known: dict[str, Any] = {"committed": 40, "start": 10, "end": 100, "size": 5000}
    known |= {"next_time": NOW - 7000, "retention": HOUR, "owner": None}
    return Standing("orders", 0, **(known | facts))


@pytest.mark.parametrize(
    ("facts", "lag", "lost", "beyond"),
    [
        ({}, 60, 0, 0),
        ({"committed": 100}, 0, 0, 0),
        ({"committed": 10}, 90, 0, 0),
        # Below the start: what is gone is no lag, it will never be read.
        ({"committed": 3}, 90, 7, 0),
        # Beyond the end: never negative.
        ({"committed": 120}, 0, 0, 20),
        ({"committed": None}, None, 0, 0),
        ({"start": None, "end": None}, None, 0, 0),
        ({"committed": 0, "start": 0, "end": 0}, 0, 0, 0),
    ],
)
def test_records(facts: dict[str, Any], lag: int | None, lost: int, beyond: int) -> None:
    one = standing(**facts)
    assert (one.lag, one.lost, one.beyond) == (lag, lost, beyond)


@pytest.mark.parametrize(
    ("facts", "exact", "most"),
    [
        ({}, None, 5000),
        ({"committed": 100}, 0, 0),
        ({"committed": 100, "size": None}, 0, 0),
        ({"committed": 0, "start": 0}, 5000, 5000),
        # The first segment may hold bytes of records that were deleted.
        ({"committed": 10}, None, 5000),
        ({"committed": None}, None, None),
        ({"size": None}, None, None),
    ],
)
def test_bytes(facts: dict[str, Any], exact: int | None, most: int | None) -> None:
    one = standing(**facts)
    assert (one.lag_bytes, one.lag_bytes_max) == (exact, most)


@pytest.mark.parametrize(
    ("facts", "waited", "left"),
    [
        ({}, 7000, 3_593_000),
        ({"committed": 100, "next_time": None}, 0, None),
        ({"next_time": None}, None, None),
        # A producer's clock may be ahead of ours.
        ({"next_time": NOW + 5000}, 0, 3_605_000),
        ({"retention": Retention(None, by_size=True)}, 7000, None),
        # Old enough, and still there: the segment it is in holds younger ones.
        ({"retention": Retention(6000, by_size=False)}, 7000, 0),
    ],
)
def test_time(facts: dict[str, Any], waited: int | None, left: int | None) -> None:
    one = standing(**facts)
    assert (one.lag_ms(NOW), one.left_ms(NOW)) == (waited, left)
