"""Records as columns: the same as decode says, record by record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record.batch import HEADER_BYTES, InvalidBatchError, parse
from penstock.record.columns import ByteColumn, Columns
from penstock.record.decode import decode
from penstock.record.encode import NewRecord, encode

field = st.none() | st.binary(max_size=40)
batches = st.lists(
    st.lists(
        st.builds(NewRecord, field, field, st.integers(0, 2**41), st.just([("h", b"1")])),
        min_size=1,
        max_size=20,
    ),
    min_size=1,
    max_size=4,
)


def values_of(column: ByteColumn, rows: int) -> list[bytes | None]:
    ends = memoryview(column.ends).cast("i")
    return [
        bytes(column.data[ends[row] : ends[row + 1]])
        if column.valid[row >> 3] >> (row & 7) & 1
        else None
        for row in range(rows)
    ]


def split(encoded: list[bytearray], first: int, end: int, *, lines: bool = False) -> Columns:
    opened = [(parse(one), bytes(one[HEADER_BYTES:])) for one in encoded]
    rows = sum(header.record_count for header, _ in opened)
    columns = Columns(rows, sum(len(data) for _, data in opened), lines=lines)
    for header, data in opened:
        columns.add(header, data, first, end)
    return columns


@given(batches, st.integers(0, 10), st.integers(5, 25))
def test_says_what_decode_says(records: list[list[NewRecord]], first: int, end: int) -> None:
    encoded = [encode(some) for some in records]
    columns = split(encoded, first, end)
    wanted = [one for batch in encoded for one in decode(batch) if first <= one.offset < end]
    rows = columns.rows
    assert list(memoryview(columns.offsets).cast("q")[:rows]) == [one.offset for one in wanted]
    assert list(memoryview(columns.timestamps).cast("q")[:rows]) == [
        one.timestamp for one in wanted
    ]
    assert values_of(columns.keys, rows) == [one.key for one in wanted]
    assert values_of(columns.values, rows) == [one.value for one in wanted]


@given(batches)
def test_lines_have_no_break_inside_and_a_null_is_an_empty_object(
    records: list[list[NewRecord]],
) -> None:
    encoded = [encode(some) for some in records]
    columns = split(encoded, 0, 2**62, lines=True)
    wanted = [one for batch in encoded for one in decode(batch)]
    text = bytes(columns.values.data[: columns.values.used])
    lines = [b"{}" if one.value is None else one.value.replace(b"\n", b" ") for one in wanted]
    assert text == b"".join(line + b"\n" for line in lines)
    assert columns.values.nulls == sum(one.value is None for one in wanted)


def test_the_log_s_own_time_counts_for_all_records_of_a_batch() -> None:
    batch = encode([NewRecord(b"a", timestamp=5), NewRecord(b"b", timestamp=9)], attributes=8)
    columns = split([batch], 0, 10)
    assert list(memoryview(columns.timestamps).cast("q")) == [9, 9]


@given(st.binary(max_size=80), st.integers(0, 5))
def test_refuses_what_is_no_record(data: bytes, count: int) -> None:
    header = parse(encode([NewRecord(b"x")] * max(1, count)))
    columns = Columns(header.record_count, len(data), lines=False)
    try:
        columns.add(header, data, 0, 2**62)
    except InvalidBatchError:
        return
    assert columns.rows == header.record_count


def test_refuses_bytes_after_the_last_record() -> None:
    batch = encode([NewRecord(b"x")])
    columns = Columns(1, 100, lines=False)
    with pytest.raises(InvalidBatchError, match="1 bytes after the last record"):
        columns.add(parse(batch), bytes(batch[HEADER_BYTES:]) + b"\0", 0, 10)
