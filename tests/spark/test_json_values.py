"""JSON values as typed columns, and which of them do not fit."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from penstock.errors import UsageError
from penstock.spark.values.decoded import Decoded
from penstock.spark.values.json import JsonValues


def decode(schema: str, values: list[bytes]) -> Decoded:
    text = b"".join(value + b"\n" for value in values)
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value) + 1)
    fields = StructType.fromDDL(schema).fields
    view = memoryview(b"".join(end.to_bytes(4, "little") for end in ends)).cast("i")
    return JsonValues(fields).decode(memoryview(text), view, len(values))


def rows(decoded: Decoded) -> list[dict[str, Any]]:
    columns = {name: column.to_pylist() for name, column in decoded.columns.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_types() -> None:
    schema = (
        "b boolean, i int, l bigint, d double, s string, t timestamp, day date, m decimal(10,2), "
        "list array<int>, inner struct<x: int, at: timestamp>"
    )
    value = {
        "b": True,
        "i": 5,
        "l": 2**40,
        "d": 1.5,
        "s": "é",
        "t": "2026-01-02T03:04:05.678Z",
        "day": "2026-01-02",
        "m": "12.34",
        "list": [1, None],
        "inner": {"x": 1, "at": "2026-01-02T03:04:05Z"},
    }
    decoded = decode(schema, [json.dumps(value).encode(), b"{}"])
    assert decoded.malformed == []
    full, empty = rows(decoded)
    assert full == {
        **value,
        "t": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "m": Decimal("12.34"),
        "inner": {"x": 1, "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)},
    }
    assert set(empty.values()) == {None}


def test_a_time_without_a_zone_is_utc() -> None:
    decoded = decode("t timestamp", [b'{"t": "2026-01-02 03:04:05"}'])
    assert rows(decoded) == [{"t": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}]


@pytest.mark.parametrize(
    "bad",
    [
        b"nonsense",
        b"",
        b"  ",
        b"[1]",
        b'{"a": "text"}',
        b'{"a": 1.5}',
        b'{"a": 9223372036854775808}',
        b'{"a": 1',
        b'{"a": 1} {"a": 2}',
        b'{"t": "yesterday"}',
        b"\xff\xfe",
    ],
)
def test_a_value_that_does_not_fit_is_named_and_costs_no_other(bad: bytes) -> None:
    good = [b'{"a": %d}' % number for number in range(5)]
    decoded = decode("a bigint, t timestamp", [*good[:3], bad, *good[3:]])
    assert [one.row for one in decoded.malformed] == [3]
    assert decoded.malformed[0].reason
    assert [row["a"] for row in rows(decoded)] == [0, 1, 2, None, 3, 4]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none() | st.text(max_size=5), max_size=30))
def test_every_row_is_accounted_for(values: list[Any]) -> None:
    decoded = decode("a bigint", [json.dumps({"a": value}).encode() for value in values])
    wanted = [None if isinstance(value, str) else value for value in values]
    assert [row["a"] for row in rows(decoded)] == wanted
    assert [one.row for one in decoded.malformed] == [
        at for at, value in enumerate(values) if isinstance(value, str)
    ]


def test_a_type_that_cannot_be_read_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"inner\.m is map<string,int>.*declare it STRING"):
        decode("inner struct<m: map<string, int>>", [b"{}"])


def test_narrow_integers_and_what_is_too_large_for_them() -> None:
    found = decode("a tinyint, b smallint", [b'{"a": 3, "b": 300}', b'{"a": 300, "b": 1}'])
    assert rows(found) == [{"a": 3, "b": 300}, {"a": None, "b": None}]
    assert [one.row for one in found.malformed] == [1]
