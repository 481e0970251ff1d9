"""Batches with fewer records, and the places of records in a batch."""

from __future__ import annotations

import random

import pytest

from penstock.record.batch import HORIZON_FLAG, InvalidBatchError, checked, parse
from penstock.record.decode import decode
from penstock.record.encode import NewRecord, encode
from penstock.record.spans import spans
from penstock.record.thin import delete_horizon, emptied, filler, thinned, unpacked

NOW = 1_700_000_000_000
RECORDS = [
    NewRecord(b"v", b"k", NOW, [("h", b"1"), ("n", None)]),
    NewRecord(None, b"tombstone", NOW - 5),
    NewRecord(b"", b"", NOW + 70_000),
    NewRecord(b"no key", None, NOW),
    NewRecord(b"long" * 300, b"key" * 100, 0),
]


def batch(codec: int = 0, **fields: int) -> bytes:
    data = encode(RECORDS, codec=codec, **fields)
    data[:8] = (1000).to_bytes(8, "big")
    return bytes(data)


@pytest.mark.parametrize("codec", range(5))
def test_spans_say_what_decoding_says(codec: int) -> None:
    data = batch(codec)
    header = checked(data)
    unpacked_bytes, found = unpacked(header, data)
    records = decode(data)
    assert [span.key for span in found] == [record.key for record in records]
    assert [span.has_value for span in found] == [record.value is not None for record in records]
    assert [header.base_offset + span.offset_delta for span in found] == [r.offset for r in records]
    assert [header.base_timestamp + span.timestamp_delta for span in found] == [
        record.timestamp for record in records
    ]
    assert b"".join(unpacked_bytes[s.start : s.end] for s in found) == unpacked_bytes


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("horizon", [None, NOW + 86_400_000])
def test_records_that_stay_are_the_same(codec: int, horizon: int | None) -> None:
    data = batch(codec, producer_id=5, producer_epoch=2, base_sequence=9)
    header = checked(data)
    contents, found = unpacked(header, data)
    for kept in ([0], [1, 2], [4], [0, 1, 2, 3, 4]):
        thin = thinned(header, contents, [found[at] for at in kept], horizon)
        new = checked(thin)
        assert decode(thin) == [decode(data)[at] for at in kept]
        assert (new.base_offset, new.last_offset, new.codec) == (1000, 1004, codec)
        assert (new.producer_id, new.producer_epoch, new.base_sequence) == (5, 2, 9)
        assert new.max_timestamp == max(RECORDS[at].timestamp for at in kept)
        assert new.record_count == len(kept)
        assert delete_horizon(new) == horizon
        assert bool(new.attributes & HORIZON_FLAG) == (horizon is not None)


def test_empty_batches() -> None:
    header = checked(batch(3, producer_id=5, producer_epoch=2, base_sequence=9))
    empty = checked(emptied(header))
    assert (empty.base_offset, empty.last_offset, empty.record_count) == (1000, 1004, 0)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (5, 2, 9)
    assert (empty.codec, empty.max_timestamp) == (0, NOW + 70_000)
    fill = checked(filler(7, 2**31, NOW, 3))
    assert (fill.base_offset, fill.last_offset, fill.record_count) == (7, 2**31, 0)
    assert (fill.producer_id, fill.max_timestamp) == (-1, NOW)
    assert decode(emptied(header)) == decode(filler(7, 8, NOW, 3)) == []


def test_times_that_do_not_fit_are_refused() -> None:
    data = bytes(encode([NewRecord(None, b"k", -(2**63)), NewRecord(b"v", b"l", -(2**63))]))
    contents, found = unpacked(parse(data), data)
    with pytest.raises(InvalidBatchError, match="time"):
        thinned(parse(data), contents, found, NOW)


def test_malformed_records_are_refused_as_decoding_refuses_them() -> None:
    data = batch()
    records = data[61:]
    rng = random.Random(1)
    for _ in range(3000):
        broken = bytearray(records)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(broken))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        try:
            found = spans(bytes(broken), len(RECORDS))
        except InvalidBatchError:
            continue
        assert all(0 <= span.start < span.end <= len(broken) for span in found)
    for size in range(len(records)):
        with pytest.raises(InvalidBatchError):
            spans(records[:size], len(RECORDS))
    with pytest.raises(InvalidBatchError, match="after the last"):
        spans(records + b"\x00", len(RECORDS))
    with pytest.raises(InvalidBatchError, match="does not end"):
        spans(b"\xff" * 20, 1)
