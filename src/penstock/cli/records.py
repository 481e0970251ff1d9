"""Records as lines of text, in both directions.

A JSON line, as `penstock consume --json` writes it and `penstock produce --json` reads it:

    {"topic": "orders", "partition": 0, "offset": 17, "timestamp": "2026-03-01T12:00:00.250Z",
     "key": "alice", "value": "AP8=", "value_encoding": "base64",
     "headers": [{"key": "trace", "value": "7f"}]}

Bytes that are UTF-8 are a string; others are base 64 and say so beside it (`key_encoding`,
`value_encoding`, a header's `encoding`). No key, no value: null. When reading, only `value` is
required, topic and offset are ignored, and a value that is not a string is sent as JSON, written anew.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.client.produce import OutgoingRecord
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.client.consume import IncomingRecord

_READ_FIELDS: Final = frozenset(
    {"key", "key_encoding", "value", "value_encoding", "headers", "partition", "timestamp"}
)
_IGNORED_FIELDS: Final = frozenset({"topic", "offset"})
_TIMESTAMP_MAX: Final = 2**63 - 1
# What a terminal might obey: everything below space except the tab, delete, and the C1 codes.
_CONTROL: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")


# -- out


def format_json(record: IncomingRecord) -> bytes:
    """One JSON object and a line end."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": format_time(record.timestamp),
    }
    fields |= content_fields(record.key, record.value, record.headers)
    return json.dumps(fields, ensure_ascii=False, separators=(", ", ": ")).encode() + b"\n"


def content_fields(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> dict[str, Any]:
    """What a JSON line says of a record itself; headers as a list, which keeps repeated names."""
    fields: dict[str, Any] = {**_text_fields("key", key), **_text_fields("value", value)}
    fields["headers"] = [
        {"key": name} | _text_fields("value", text, marker="encoding") for name, text in headers
    ]
    return fields


def format_plain(record: IncomingRecord, key_separator: bytes | None) -> bytes:
    """The value and a line end, behind the key if a separator is given; null counts as empty."""
    value = record.value or b""
    if key_separator is None:
        return value + b"\n"
    return (record.key or b"") + key_separator + value + b"\n"


def safe_for_terminal(line: bytes) -> bytes:
    """The line with control characters made visible: records must not steer the terminal."""
    text = line.removesuffix(b"\n").decode(errors="backslashreplace")
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text).encode() + b"\n"


def format_time(milliseconds: int) -> str | int | None:
    """ISO 8601 in UTC; None if there is no time, the number if no calendar has it."""
    if milliseconds < 0:
        return None
    try:
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return milliseconds
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def _text_fields(name: str, data: bytes | None, marker: str = "") -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        encoded = base64.b64encode(data).decode()
        return {name: encoded, marker or f"{name}_encoding": "base64"}


# -- in


def read_plain(
    lines: Iterable[bytes],
    *,
    key_separator: bytes | None,
    headers: Sequence[tuple[str, bytes]],
    partition: int | None,
) -> Iterator[OutgoingRecord]:
    """One record per line.

    Raises:
        UsageError: a line lacks the separator between key and value.
    """
    common = tuple(headers)
    for number, line in enumerate(lines, 1):
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        key = None
        if key_separator is not None:
            key, found, value = value.partition(key_separator)
            if not found:
                shown = key_separator.decode(errors="backslashreplace")
                cause = f"there is no key separator ({shown!r}) in it"
                raise UsageError(f"cannot read line {number}", cause, "write KEY, separator, VALUE")
        yield OutgoingRecord(value, key, common, partition)


def read_json(
    lines: Iterable[bytes], *, headers: Sequence[tuple[str, bytes]], partition: int | None
) -> Iterator[OutgoingRecord]:
    """One record per JSON line; empty lines are skipped.

    Raises:
        UsageError: a line is not a record; the message says which and why.
    """
    common = tuple(headers)
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _parse_json(line, f"cannot read line {number}", common, partition)


def _parse_json(
    line: bytes, operation: str, headers: tuple[tuple[str, bytes], ...], partition: int | None
) -> OutgoingRecord:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise UsageError(operation, f"it is not JSON: {error}") from error
    except RecursionError as error:
        raise UsageError(operation, "its lists and objects are nested too deeply") from error
    remedy = 'write {"value": ...}, null for a record without one'
    if not isinstance(fields, dict):
        raise UsageError(operation, "it is not an object", remedy)
    if unknown := fields.keys() - _READ_FIELDS - _IGNORED_FIELDS:
        known = ", ".join(sorted(_READ_FIELDS))
        raise UsageError(operation, f"'{min(unknown)}' is not a field of a record", f"use {known}")
    if "value" not in fields:
        raise UsageError(operation, "it has no value", remedy)
    return OutgoingRecord(
        _data(fields, "value", "value_encoding", operation),
        _data(fields, "key", "key_encoding", operation),
        headers + _headers(fields.get("headers"), operation),
        _partition(fields.get("partition"), partition, operation),
        _timestamp(fields.get("timestamp"), operation),
    )


def _data(fields: Mapping[str, Any], name: str, marker: str, operation: str) -> bytes | None:
    value = fields.get(name)
    encoding = fields.get(marker)
    if encoding is not None:
        if encoding != "base64" or not isinstance(value, str):
            raise UsageError(operation, f"{marker} needs a string", 'the one encoding is "base64"')
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise UsageError(operation, f"the {name} is not base 64: {error}") from error
    if value is None:
        return None
    text = value if isinstance(value, str) else _json_text(value, name, operation)
    # A lone surrogate, which JSON can express, has no UTF-8 form.
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(operation, f"the {name} is not text: {error}", "use base64") from error


def _json_text(value: Any, name: str, operation: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        # NaN and Infinity, which Python reads as numbers, and numbers too large to be anything else.
        cause = f"the {name} holds a number that JSON cannot express"
        raise UsageError(
            operation, cause, "write null, or a string, which is sent as it is"
        ) from error


def _headers(value: Any, operation: str) -> tuple[tuple[str, bytes], ...]:
    """An object of names and values, or a list where order or repetition matters."""
    if value is None:
        return ()
    entries = value
    if isinstance(value, dict):
        entries = [{"key": name, "value": text} for name, text in value.items()]
    found = []
    for entry in entries if isinstance(entries, list) else [None]:
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
            remedy = 'write {"NAME": "VALUE"} or [{"key": "NAME", "value": "VALUE"}]'
            raise UsageError(operation, "its headers cannot be read", remedy)
        data = _data(entry, "value", "encoding", operation)
        if data is None:
            # The protocol has such headers, but kafka-python neither takes nor counts them.
            cause = f"its header '{entry['key']}' is null, which cannot be sent"
            raise UsageError(operation, cause, 'write "" for its value, or leave it out')
        found.append((entry["key"], data))
    return tuple(found)


def _partition(value: Any, default: int | None, operation: str) -> int | None:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(operation, "its partition is not a number from 0 up")
    return value


def _timestamp(value: Any, operation: str) -> int | None:
    if value is None:
        return None
    remedy = "write milliseconds since 1970 or a time such as 2026-03-01T12:00:00Z"
    milliseconds = _milliseconds(value, operation, remedy)
    if not 0 <= milliseconds <= _TIMESTAMP_MAX:
        raise UsageError(operation, "no record can have its timestamp", remedy)
    return milliseconds


def _milliseconds(value: Any, operation: str, remedy: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise UsageError(operation, "its timestamp cannot be read", remedy) from error
    if moment.tzinfo is None:
        raise UsageError(operation, "its timestamp has no time zone", remedy)
    return milliseconds_since_1970(moment)


def milliseconds_since_1970(moment: datetime) -> int:
    """Exactly, which a float of seconds would not be."""
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
