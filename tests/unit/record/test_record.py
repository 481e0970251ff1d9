"""Batches survive encode and decode; damaged ones are refused, and never by a crash."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.record import batch
from penstock.record.compression import compress, decompress
from penstock.record.decode import decode, read_varint
from penstock.record.encode import NewRecord, encode, varint

nullable = st.none() | st.binary(max_size=40)
records = st.lists(
    st.builds(
        NewRecord,
        value=nullable,
        key=nullable,
        timestamp=st.integers(0, 2**45),
        headers=st.lists(st.tuples(st.text(max_size=8), nullable), max_size=3),
    ),
    min_size=1,
    max_size=6,
)


@given(records, st.integers(0, 4))
def test_what_was_encoded_is_decoded(given_records: list[NewRecord], codec: int) -> None:
    decoded = decode(encode(given_records, codec=codec))
    assert [(r.value, r.key, r.timestamp, [tuple(h) for h in r.headers]) for r in decoded] == [
        (r.value, r.key, r.timestamp, [tuple(h) for h in r.headers]) for r in given_records
    ]
    assert [r.offset for r in decoded] == list(range(len(given_records)))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_survive(value: int) -> None:
    assert read_varint(varint(value), 0) == (value, len(varint(value)))


def test_a_varint_that_does_not_end_is_refused() -> None:
    with pytest.raises(batch.InvalidBatchError, match="ten bytes"):
        read_varint(b"\xff" * 12, 0)


def test_any_flipped_bit_is_noticed() -> None:
    good = encode([NewRecord(b"value", b"key", 5)] * 3)
    for index in range(len(good)):
        # Base offset and leader epoch lie outside the checksum: the broker sets them.
        if index < 8 or 12 <= index < 16:
            continue
        for bit in range(8):
            bad = bytearray(good)
            bad[index] ^= 1 << bit
            with pytest.raises(batch.InvalidBatchError):
                batch.checked(bad)


def test_any_cut_is_noticed() -> None:
    good = encode([NewRecord(b"value", b"key", 5)] * 3)
    for size in range(len(good)):
        with pytest.raises(batch.InvalidBatchError):
            batch.checked(good[:size])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_header_is_read_from_any_kind_of_bytes(kind: type) -> None:
    data = b"before" + encode([NewRecord(b"value", None, 5)] * 3)
    assert batch.parse(kind(data), 6).record_count == 3
    assert batch.parse(memoryview(data)[6:]).max_timestamp == 5


def test_what_is_not_in_one_piece_or_no_bytes_is_refused() -> None:
    data = memoryview(bytes(2 * batch.HEADER_BYTES))[::2]
    with pytest.raises(BufferError):
        batch.parse(data)
    with pytest.raises(TypeError):
        batch.parse("text" * 20)  # type: ignore[arg-type]


@pytest.mark.parametrize("position", [-1, batch.HEADER_BYTES, 2**40])
def test_no_header_is_looked_for_beyond_the_bytes(position: int) -> None:
    data = encode([NewRecord(b"")])[: batch.HEADER_BYTES]
    with pytest.raises((AssertionError, struct.error)):
        batch.parse(data, position)
    with pytest.raises((AssertionError, struct.error)):
        batch.patch(data, position, 1, 1)


def test_what_may_not_be_written_to_is_not_patched() -> None:
    data = bytes(encode([NewRecord(b"v")]))
    for constant in (data, memoryview(data)):
        with pytest.raises((TypeError, BufferError)):
            batch.patch(constant, 0, 1234, 5)  # type: ignore[arg-type]
    assert batch.parse(data).base_offset == 0


def test_patching_leaves_the_checksum_alone() -> None:
    data = encode([NewRecord(b"v")])
    batch.patch(data, 0, 1234, 5)
    header = batch.checked(data)
    assert (header.base_offset, header.leader_epoch) == (1234, 5)


def test_log_append_time_renews_the_checksum() -> None:
    data = encode([NewRecord(b"v", timestamp=1), NewRecord(b"w", timestamp=2)])
    batch.stamp_append_time(data, 0, 99)
    assert [record.timestamp for record in decode(data)] == [99, 99]


def test_find_walks_to_the_batch_that_holds_an_offset() -> None:
    buffer = bytearray()
    starts = []
    for number in range(4):
        data = encode([NewRecord(b"v")] * 3)
        batch.patch(data, 0, number * 3, 0)
        starts.append(len(buffer))
        buffer += data
    size = len(buffer) // 4
    assert [batch.find(buffer, offset) for offset in (0, 2, 3, 7, 11)] == [
        (starts[0], size), (starts[0], size), (starts[1], size), (starts[2], size), (starts[3], size)
    ]  # fmt: skip
    assert batch.find(buffer, 12) == (len(buffer), 0)
    assert batch.find(buffer[:-1], 11) == (starts[3], size)
    with pytest.raises(batch.InvalidBatchError):
        batch.find(b"\x00" * 100, 0)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_decompression_is_bounded(codec: int) -> None:
    bomb = compress(codec, bytes(10_000_000))
    assert len(decompress(codec, bomb, limit=10_000_000)) == 10_000_000
    with pytest.raises(batch.InvalidBatchError):
        decompress(codec, bomb, limit=9_999_999)


@pytest.mark.parametrize(("codec", "level"), [(1, 1), (1, 9), (3, 1), (3, 17), (4, 1), (4, 19)])
def test_levels_change_the_size_and_nothing_else(codec: int, level: int) -> None:
    data = bytes(range(256)) * 100
    assert decompress(codec, compress(codec, data, level)) == data


def test_lz4_blocks_are_independent() -> None:
    """Kafka and the Java clients refuse linked blocks: bit 5 of the frame descriptor."""
    assert compress(3, b"x" * 1000)[4] & 0x20


def test_bare_snappy_blocks_are_read_too() -> None:
    framed = compress(2, b"hello")
    assert decompress(2, framed[20:]) == b"hello"


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 7))
def test_decompression_of_garbage_is_an_error_of_ours(data: bytes, codec: int) -> None:
    with suppress(batch.InvalidBatchError):
        decompress(codec, data, limit=1_000_000)


@settings(max_examples=500)
@given(records, st.data())
def test_garbage_with_a_right_checksum_is_an_error_of_ours(
    given_records: list[NewRecord], data: st.DataObject
) -> None:
    """What a client can send: a checksum proves nothing about the contents."""
    from penstock.crc32c import crc32c

    buffer = encode(given_records)
    for _ in range(3):
        at = data.draw(st.integers(21, len(buffer) - 1))
        buffer[at] = data.draw(st.integers(0, 255))
    buffer[17:21] = crc32c(memoryview(buffer)[21:]).to_bytes(4, "big")
    with suppress(batch.InvalidBatchError):
        decode(buffer, limit=1_000_000)
