"""Records as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import records
from penstock.client.produce import OutgoingRecord
from penstock.errors import UsageError


@dataclass
class Incoming:
    """What kafka-python returns, as far as it matters here."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    topic: str = "orders"
    partition: int = 0
    offset: int = 17
    timestamp: int = 1_772_359_200_250


def read_json(*lines: bytes, partition: int | None = None) -> list[OutgoingRecord]:
    return list(records.read_json(lines, headers=[], partition=partition))


def read_plain(lines: Iterable[bytes], separator: bytes | None = None) -> list[OutgoingRecord]:
    found = records.read_plain(lines, key_separator=separator, headers=[], partition=None)
    return list(found)


def test_json_line() -> None:
    line = records.format_json(Incoming(b"caf\xc3\xa9", b"alice", [("trace", b"7f")]))
    assert (
        line
        == (
            '{"topic": "orders", "partition": 0, "offset": 17, '
            '"timestamp": "2026-03-01T10:00:00.250Z", "key": "alice", "value": "café", '
            '"headers": [{"key": "trace", "value": "7f"}]}\n'
        ).encode()
    )


def test_json_marks_what_is_not_text() -> None:
    line = records.format_json(Incoming(b"\x00\xff", b"\xfe", [("h", b"\xfd"), ("null", None)]))
    fields = json.loads(line)
    assert (fields["value"], fields["value_encoding"]) == ("AP8=", "base64")
    assert (fields["key"], fields["key_encoding"]) == ("/g==", "base64")
    assert fields["headers"] == [
        {"key": "h", "value": "/Q==", "encoding": "base64"},
        {"key": "null", "value": None},
    ]


def test_json_line_is_one_line() -> None:
    assert records.format_json(Incoming(b"a\nb\r\n\x00")).count(b"\n") == 1


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_772_359_200_001, "2026-03-01T10:00:00.001Z"),
        (-1, None),
        (2**62, 2**62),
    ],
)
def test_time(milliseconds: int, text: str | int | None) -> None:
    assert records.format_time(milliseconds) == text


@given(
    value=st.binary(),
    key=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.binary()), max_size=3),
    timestamp=st.integers(0, 2**40),
)
def test_what_consume_prints_produce_reads(
    value: bytes, key: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    line = records.format_json(Incoming(value, key, headers, partition=3, timestamp=timestamp))
    assert read_json(line) == [OutgoingRecord(value, key, tuple(headers), 3, timestamp)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ('{"value": "v"}', OutgoingRecord(b"v")),
        (
            '{"value": {"total": 12, "who": "é"}}',
            OutgoingRecord('{"total": 12, "who": "é"}'.encode()),
        ),
        ('{"value": [1, null]}', OutgoingRecord(b"[1, null]")),
        ('{"value": 0}', OutgoingRecord(b"0")),
        ('{"value": false}', OutgoingRecord(b"false")),
        ('{"value": ""}', OutgoingRecord(b"")),
        ('{"value": null}', OutgoingRecord(None)),
        ('{"key": "k", "value": null}', OutgoingRecord(None, b"k")),
        ('{"value": "v", "headers": {"a": "1"}}', OutgoingRecord(b"v", None, (("a", b"1"),))),
        (
            '{"value": "v", "partition": 2, "offset": 9, "topic": "x"}',
            OutgoingRecord(b"v", partition=2),
        ),
        ('{"value": "v", "timestamp": 5}', OutgoingRecord(b"v", timestamp_ms=5)),
        (
            '{"value": "v", "timestamp": "1970-01-01T01:00:00.005+01:00"}',
            OutgoingRecord(b"v", timestamp_ms=5),
        ),
    ],
)
def test_json_line_is_read(line: str, record: OutgoingRecord) -> None:
    assert read_json(line.encode()) == [record]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "it is not JSON"),
        ("\xff", "it is not JSON"),
        ("[1]", "it is not an object; write"),
        ("{}", "it has no value; write"),
        ('{"vlaue": 1}', "'vlaue' is not a field of a record; use headers, key"),
        ('{"value": "!", "value_encoding": "base64"}', "the value is not base 64"),
        ('{"value": "00", "value_encoding": "hex"}', 'the one encoding is "base64"'),
        ('{"value": 1, "value_encoding": "base64"}', "value_encoding needs a string"),
        ('{"value": NaN}', "the value holds a number that JSON cannot express; write null"),
        ('{"value": {"a": [-Infinity]}}', "the value holds a number that JSON cannot express"),
        ('{"key": 1e999, "value": 1}', "the key holds a number that JSON cannot express"),
        ('{"value": 1, "headers": {"a": NaN}}', "the value holds a number that JSON cannot"),
        ('{"value": "\\ud800"}', "the value is not text"),
        ('{"value": 1, "headers": 1}', "its headers cannot be read; write"),
        ('{"value": 1, "headers": [1]}', "its headers cannot be read; write"),
        ('{"value": 1, "headers": {"a": null}}', "its header 'a' is null"),
        ('{"value": 1, "partition": -1}', "its partition is not a number"),
        ('{"value": 1, "partition": true}', "its partition is not a number"),
        ('{"value": 1, "timestamp": "noon"}', "its timestamp cannot be read; write"),
        ('{"value": 1, "timestamp": -1}', "no record can have its timestamp; write"),
        ('{"value": 1, "timestamp": 9223372036854775808}', "no record can have its timestamp"),
        ('{"value": 1, "timestamp": "1969-12-31T23:59:59Z"}', "no record can have its timestamp"),
        ("[" * 100_000, "its lists and objects are nested too deeply"),
        ('{"value": 1, "timestamp": true}', "its timestamp cannot be read; write"),
        ('{"value": 1, "timestamp": "2026-03-01T10:00:00"}', "its timestamp has no time zone"),
    ],
)
def test_bad_json_line_is_named(line: str, message: str) -> None:
    good = b'{"value": 1}'
    with pytest.raises(UsageError) as caught:
        read_json(good, b"", line.encode("latin-1"))
    assert str(caught.value).startswith("cannot read line 3: ")
    assert message in str(caught.value)


def test_options_apply_to_every_json_line() -> None:
    lines = [b'{"value": 1, "headers": {"a": "2"}}\n', b'{"value": 2, "partition": 1}\n']
    found = records.read_json(lines, headers=[("a", b"1")], partition=7)
    assert list(found) == [
        OutgoingRecord(b"1", None, (("a", b"1"), ("a", b"2")), 7),
        OutgoingRecord(b"2", None, (("a", b"1"),), 1),
    ]


def test_plain_lines() -> None:
    assert read_plain([b"a\n", b"\n", b"b\r\n", b"last"]) == [
        OutgoingRecord(b"a"),
        OutgoingRecord(b""),
        OutgoingRecord(b"b"),
        OutgoingRecord(b"last"),
    ]


def test_plain_lines_with_keys() -> None:
    found = read_plain([b"k::v\n", b"::\n", b"a::b::c\n"], b"::")
    assert [(record.key, record.value) for record in found] == [
        (b"k", b"v"),
        (b"", b""),
        (b"a", b"b::c"),
    ]
    with pytest.raises(UsageError, match=r"cannot read line 2: there is no key separator \('::'\)"):
        read_plain([b"a::b", b"ab"], b"::")


@pytest.mark.parametrize(
    ("record", "separator", "line"),
    [
        (Incoming(b"v", b"k"), None, b"v\n"),
        (Incoming(b"v", b"k"), b"\t", b"k\tv\n"),
        (Incoming(b"v"), b"\t", b"\tv\n"),
        (Incoming(None, b"k"), b"\t", b"k\t\n"),
        (Incoming(b"\xff\x00"), None, b"\xff\x00\n"),
    ],
)
def test_plain_line(record: Any, separator: bytes | None, line: bytes) -> None:
    assert records.format_plain(record, separator) == line


def test_a_record_cannot_steer_the_terminal() -> None:
    line = records.safe_for_terminal(b"a\tb\x1b[2J\x07\r\x9b1m \xc2\x9b caf\xc3\xa9\n")
    assert line == "a\tb\\x1b[2J\\x07\\x0d\\x9b1m \\x9b café\n".encode()
