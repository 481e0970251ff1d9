"""The one notation for places in a log and in time: `--from`, and the targets of a reset."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from penstock.cli.records import milliseconds_since_1970
from penstock.client.consume import Origin, Start
from penstock.errors import UsageError

_AGO: Final = re.compile(r"([0-9]+)(s|m|h|d)")
_DURATION: Final = re.compile(r"(?:[0-9]+[smhd])+")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_OFFSET_MAX: Final = 2**63 - 1


def parse_start(text: str, now: datetime) -> Start:
    """Read `start`, `end`, an offset, `-N` for the last N records, a time, or a time ago.

    A time is ISO 8601, local unless it says otherwise; a time ago is a number and s, m, h or d.

    Args:
        text: What the user wrote.
        now: The present, with its time zone.

    Raises:
        UsageError: text is nothing of all this.
    """
    if text in ("start", "end"):
        return Start(Origin(text))
    if re.fullmatch(r"-?[0-9]+", text):
        number = int(text)
        if abs(number) > _OFFSET_MAX:
            raise UsageError(f"cannot read --from '{text}'", "no offset is that large")
        return Start(Origin.TAIL, -number) if text.startswith("-") else Start(Origin.OFFSET, number)
    try:
        return Start(Origin.TIME, max(0, milliseconds_since_1970(_moment(text, now))))
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"cannot read --from '{text}'",
            "it is neither a place in the log nor a time",
            "write start, end, an offset such as 42, -10 for the last ten, "
            "10m or 2h for that long ago, or a time such as 2026-03-01T12:00",
        ) from error


def parse_time(option: str, text: str) -> int:
    """Read a time in ISO 8601, local unless it says otherwise; milliseconds since 1970.

    Raises:
        UsageError: text is no such time.
    """
    try:
        moment = datetime.fromisoformat(text)
        # A time zone of our own is that of the moment, which summer time may have changed.
        return max(0, milliseconds_since_1970(moment if moment.tzinfo else moment.astimezone()))
    except (ValueError, OverflowError) as error:
        remedy = "write it as 2026-03-01T12:00, with Z at the end for UTC"
        raise UsageError(f"cannot read {option} '{text}'", "it is not a time", remedy) from error


def parse_duration(option: str, text: str) -> int:
    """Read a duration such as 90s, 1h30m or 7d; milliseconds.

    Raises:
        UsageError: text is no duration.
    """
    if not _DURATION.fullmatch(text):
        remedy = "write it as 90s, 1h30m or 7d"
        raise UsageError(f"cannot read {option} '{text}'", "it is not a duration", remedy)
    try:
        parts = (timedelta(**{_UNITS[unit]: int(count)}) for count, unit in _AGO.findall(text))
        return sum(parts, timedelta()) // timedelta(milliseconds=1)
    except OverflowError as error:
        raise UsageError(f"cannot read {option} '{text}'", "it is too long") from error


def _moment(text: str, now: datetime) -> datetime:
    if ago := _AGO.fullmatch(text):
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)
