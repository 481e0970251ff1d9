"""The kinds of values that a view holds: the same in every database, in questions and in answers."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Final

from penstock.errors import UsageError


class Kind(StrEnum):
    """What a column holds."""

    INTEGER = "integer"
    REAL = "real"
    TEXT = "text"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DATE = "date"
    DECIMAL = "decimal"
    BINARY = "binary"
    JSON = "json"


def in_utc(time: datetime) -> datetime:
    """A time with its zone; one without is UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def iso(time: datetime) -> str:
    """A time in ISO 8601, always of the same length, so that texts sort as times do."""
    return in_utc(time).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


_BOOLEANS: Final = {"true": True, "false": False}
_INTEGER_BITS: Final = 63  # both databases have 64, one of them for the sign


def _integer(text: str) -> int:
    number = int(text)
    if number.bit_length() > _INTEGER_BITS:
        raise ValueError(text)
    return number


def _text(text: str) -> str:
    if "\0" in text:
        raise ValueError(text)  # PostgreSQL has no such text
    return text


_PARSERS: Final[dict[Kind, Callable[[str], Any]]] = {
    Kind.INTEGER: _integer,
    Kind.REAL: float,
    Kind.TEXT: _text,
    Kind.BOOLEAN: lambda text: _BOOLEANS[text.lower()],
    Kind.TIMESTAMP: lambda text: in_utc(datetime.fromisoformat(text)),
    Kind.DATE: date.fromisoformat,
    Kind.DECIMAL: Decimal,
    Kind.BINARY: lambda text: base64.b64decode(text, validate=True),
    Kind.JSON: _text,
}
# All others are in JSON what they are in Python.
_IN_JSON: Final[dict[Kind, Callable[[Any], Any]]] = {
    Kind.TIMESTAMP: iso,
    Kind.DATE: date.isoformat,
    Kind.DECIMAL: str,  # a number of JSON would be read as a float
    Kind.BINARY: lambda value: base64.b64encode(value).decode("ascii"),
    Kind.REAL: lambda value: value if math.isfinite(value) else str(value),  # JSON has no such
    Kind.JSON: lambda value: json.loads(value) if isinstance(value, str) else value,
}


def parse(kind: Kind, text: str) -> Any:
    """A value as somebody wrote it in a question.

    Raises:
        UsageError: it is of another kind.
    """
    try:
        return _PARSERS[kind](text)
    except (ValueError, KeyError, OverflowError, InvalidOperation, binascii.Error) as error:
        operation = f"cannot compare with '{text}'"
        remedy = "write times and dates as in ISO 8601, bytes as base64"
        raise UsageError(operation, f"the column is of kind {kind}", remedy) from error


def to_json(kind: Kind, value: Any) -> Any:
    """A value in an answer."""
    return _IN_JSON[kind](value) if value is not None and kind in _IN_JSON else value


def iso_of_ms(ms: int | None) -> str | None:
    """Milliseconds since 1970 in ISO 8601."""
    if ms is None:
        return None
    try:
        return iso(datetime.fromtimestamp(ms / 1000, UTC))
    except (ValueError, OverflowError, OSError):  # no year of four digits: a wrong clock, or unit
        return f"{ms} ms"
