"""Durations as Spark writes them."""

from __future__ import annotations

import pytest

from penstock.errors import UsageError
from penstock.spark.time.durations import duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("10 seconds", 10_000),
        ("1 minute", 60_000),
        ("0 seconds", 0),
        (" 1 Hour 30 Minutes ", 5_400_000),
        ("interval 2 days", 172_800_000),
        ("250 milliseconds", 250),
        ("1 week", 604_800_000),
    ],
)
def test_what_is_read(text: str, ms: int) -> None:
    assert duration_ms("cannot read", "delay", text) == ms


@pytest.mark.parametrize(
    "text",
    ["", "10", "seconds", "ten seconds", "-1 seconds", "1 month", "1 minute!", "1 minuteses"],
)
def test_what_is_not(text: str) -> None:
    with pytest.raises(UsageError, match='such as "10 seconds"'):
        duration_ms("cannot read", "delay", text)
