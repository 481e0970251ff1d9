"""Opens a batch into its records. Off the hot path: time look-ups, dump and verify, tests.

A record is: length varint, attributes int8, timestamp delta varlong, offset delta varint, key length
varint and bytes, value length varint and bytes, header count varint, then per header a key length
varint and bytes and a value length varint and bytes. Length -1 is null. All varints are zigzag.

This module may run compiled (setup.py); it is plain Python either way.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.limits import DECOMPRESSED_BYTES_MAX
from penstock.record.batch import (
    APPEND_TIME_FLAG,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    InvalidBatchError,
    checked,
)
from penstock.record.compression import decompress


class Record(NamedTuple):
    """One record of a batch, with its place in the log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def decode(buffer: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """All records of the one batch at the start of buffer.

    Raises:
        InvalidBatchError: the batch or a record in it is malformed, or unpacks beyond limit.
    """
    header = checked(buffer)
    data = decompress(header.codec, memoryview(buffer)[HEADER_BYTES : header.size], limit)
    return records_of(header, data)


def records_of(header: BatchHeader, data: bytes) -> list[Record]:
    """The records of a batch whose bytes are unpacked.

    Raises:
        InvalidBatchError: a record in it is malformed.
    """
    try:
        return _records(header, data)
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidBatchError("decode records", f"malformed record: {error}") from error


def _records(header: BatchHeader, data: bytes) -> list[Record]:
    # The count is never trusted for an allocation: the loop ends with the data.
    records: list[Record] = []
    append_time = bool(header.attributes & APPEND_TIME_FLAG)
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(data, position)
        end = position + length
        if length < 0 or end > len(data):
            raise InvalidBatchError("decode records", f"record of {length} bytes does not fit")
        position += 1  # attributes, unused by any version
        timestamp_delta, position = read_varint(data, position)
        offset_delta, position = read_varint(data, position)
        key, position = _nullable_bytes(data, position)
        value, position = _nullable_bytes(data, position)
        headers, position = _headers(data, position)
        if position != end:
            raise InvalidBatchError("decode records", "record length and contents differ")
        timestamp = header.max_timestamp if append_time else header.base_timestamp + timestamp_delta
        records.append(Record(header.base_offset + offset_delta, timestamp, key, value, headers))
    if position != len(data):
        raise InvalidBatchError(
            "decode records", f"{len(data) - position} bytes after the last record"
        )
    return records


def _headers(data: bytes, position: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= len(data) - position:  # a header takes two bytes at least
        raise InvalidBatchError("decode records", f"{count} headers do not fit")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, position = _nullable_bytes(data, position)
        value, position = _nullable_bytes(data, position)
        if key is None:
            raise InvalidBatchError("decode records", "a header without a key")
        headers.append((key.decode(), value))
    return headers, position


def _nullable_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    end = position + length
    if length < 0 or end > len(data):
        raise InvalidBatchError("decode records", f"field of {length} bytes does not fit")
    return data[position:end], end


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint of up to ten bytes: (value, position after it)."""
    raw = 0
    shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
        if shift > 63:
            raise InvalidBatchError("decode records", "varint of more than ten bytes")
