"""Builds a batch from records. The broker stores what clients built; this is for tests and tools."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from penstock.crc32c import crc32c
from penstock.record.batch import CHECKSUM_START, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC
from penstock.record.compression import compress

_HEADER = Struct(">qiibIhiqqqhii")
_CHECKSUM = Struct(">I")


class NewRecord(NamedTuple):
    """What a producer says of a record."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


def encode(
    records: Sequence[NewRecord],
    *,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytearray:
    """One batch with base offset 0, ready to be sent or appended."""
    assert records
    base_timestamp = records[0].timestamp
    body = b"".join(_record(i, r, r.timestamp - base_timestamp) for i, r in enumerate(records))
    payload = compress(codec, body)
    batch = bytearray(
        _HEADER.pack(
            0,
            HEADER_BYTES - LENGTH_OVERHEAD + len(payload),
            -1,
            MAGIC,
            0,
            attributes | codec,
            len(records) - 1,
            base_timestamp,
            max(r.timestamp for r in records),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    )
    batch += payload
    _CHECKSUM.pack_into(batch, 17, crc32c(memoryview(batch)[CHECKSUM_START:]))
    return batch


def _record(index: int, record: NewRecord, timestamp_delta: int) -> bytes:
    body = bytearray(b"\x00")
    body += varint(timestamp_delta) + varint(index)
    body += _nullable(record.key) + _nullable(record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += _nullable(name.encode()) + _nullable(value)
    return bytes(varint(len(body)) + body)


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def varint(value: int) -> bytes:
    """A zigzag varint."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
