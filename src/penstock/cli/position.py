"""The one notation for where reading starts: `--from`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from penstock.cli.records import milliseconds_since_1970
from penstock.client.consume import Origin, Start
from penstock.errors import UsageError

_AGO: Final = re.compile(r"([0-9]+)(s|m|h|d)")
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


def _moment(text: str, now: datetime) -> datetime:
    if ago := _AGO.fullmatch(text):
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)
