"""Durations as Spark writes them: "10 seconds", "1 minute 30 seconds"."""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import UsageError

_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}
_PART: Final = re.compile(rf"\s*(\d+)\s+({'|'.join(_UNITS_MS)})s?(?=\s|$)", re.ASCII)


def duration_ms(operation: str, name: str, text: str) -> int:
    """Milliseconds; months and years have no fixed length and are refused.

    Args:
        operation: what it is needed for, for the error.
        name: what the user calls it.
        text: what the user wrote.

    Raises:
        UsageError: it cannot be read.
    """
    words = text.strip().lower().removeprefix("interval ").strip()
    total, at = 0, 0
    while found := _PART.match(words, at):
        total += int(found[1]) * _UNITS_MS[found[2]]
        at = found.end()
    if at == 0 or at < len(words):
        remedy = 'write a number and a unit up to weeks, such as "10 seconds"'
        raise UsageError(operation, f"{name} is '{text}'", remedy)
    return total
