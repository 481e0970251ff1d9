"""`--from`, and the times and durations of other options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from penstock.cli.position import parse_duration, parse_start, parse_time
from penstock.client.consume import Origin, Start
from penstock.errors import UsageError

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone(timedelta(hours=2)))
NOW_MS = 1_772_359_200_000


def test_now_is_what_the_tests_below_think() -> None:
    assert int(NOW.timestamp() * 1000) == NOW_MS


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("start", Start(Origin.START)),
        ("end", Start(Origin.END)),
        ("0", Start(Origin.OFFSET, 0)),
        ("42", Start(Origin.OFFSET, 42)),
        ("-10", Start(Origin.TAIL, 10)),
        ("-0", Start(Origin.TAIL, 0)),
        ("30s", Start(Origin.TIME, NOW_MS - 30_000)),
        ("10m", Start(Origin.TIME, NOW_MS - 600_000)),
        ("2h", Start(Origin.TIME, NOW_MS - 7_200_000)),
        ("1d", Start(Origin.TIME, NOW_MS - 86_400_000)),
        ("2026-03-01T12:00:00+02:00", Start(Origin.TIME, NOW_MS)),
        ("2026-03-01T10:00:00Z", Start(Origin.TIME, NOW_MS)),
        ("2026-03-01T10:00:00.250Z", Start(Origin.TIME, NOW_MS + 250)),
        # Without a zone it is local time, which is two hours ahead here.
        ("2026-03-01T12:00", Start(Origin.TIME, NOW_MS)),
        ("2026-03-01", Start(Origin.TIME, NOW_MS - 43_200_000)),
        ("1969-12-31T00:00:00Z", Start(Origin.TIME, 0)),
    ],
)
def test_start_is_read(text: str, start: Start) -> None:
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize(
    "text", ["", "beginning", "10x", "10 m", "m", "1.5h", "2026-13-01", "9" * 30, "9" * 30 + "d"]
)
def test_start_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read --from"):
        parse_start(text, NOW)


def test_utc_now_works_too() -> None:
    assert parse_start("1s", NOW.astimezone(UTC)) == Start(Origin.TIME, NOW_MS - 1000)


def test_time_with_a_zone() -> None:
    assert parse_time("--to-time", "2026-03-01T10:00:00.250Z") == NOW_MS + 250
    assert parse_time("--to-time", "1969-12-31T00:00:00Z") == 0


def test_time_without_a_zone_is_local() -> None:
    local = datetime(2026, 3, 1, 12).astimezone()
    assert parse_time("--to-time", "2026-03-01T12:00") == int(local.timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "soon", "10m", "2026-13-01"])
def test_time_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read --to-time"):
        parse_time("--to-time", text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("7d", 604_800_000),
        ("0s", 0),
        ("1d2h3m4s", 93_784_000),
    ],
)
def test_duration(text: str, ms: int) -> None:
    assert parse_duration("--by-duration", text) == ms


@pytest.mark.parametrize("text", ["", "90", "h", "1.5h", "-1h", "1h 30m", "9" * 30 + "d"])
def test_duration_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read --by-duration"):
        parse_duration("--by-duration", text)
