"""Batches with fewer records: what compaction makes of them, in Kafka's own terms.

A thinned batch keeps its first and last offset, its producer and its sequence, and the records that
stay keep theirs. When it holds tombstones it is given a delete horizon: bit 6 of the attributes says
that the base timestamp is the time from which on they may go (KIP-534), and the records' times count
from there. An empty batch says that its offsets were used and by whom.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from penstock.crc32c import crc32c
from penstock.record.batch import (
    APPEND_TIME_FLAG,
    CHECKSUM_START,
    CODEC_MASK,
    HEADER_BYTES,
    HORIZON_FLAG,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER,
    BatchHeader,
    Buffer,
    InvalidBatchError,
)
from penstock.record.compression import compress, decompress
from penstock.record.encode import varint
from penstock.record.spans import Span, spans

OFFSET_DELTA_MAX = 2**31 - 1
_HEADER = Struct(">qiibIhiqqqhii")
_CHECKSUM = Struct(">I")
_NO_SEQUENCE = -1


def unpacked(header: BatchHeader, batch: Buffer) -> tuple[bytes, list[Span]]:
    """A batch's records: their bytes, and where each stands in them.

    Raises:
        InvalidBatchError: they cannot be unpacked, or are not what the header says.
    """
    data = decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size])
    return data, spans(data, header.record_count)


def delete_horizon(header: BatchHeader) -> int | None:
    """The time from which on a batch's tombstones may go; None if it has not been given one."""
    return header.base_timestamp if header.attributes & HORIZON_FLAG else None


def thinned(header: BatchHeader, data: bytes, kept: Sequence[Span], horizon: int | None) -> bytes:
    """A batch of some of a batch's records.

    Args:
        header: the batch they are from.
        data: the unpacked bytes of its records.
        kept: the records that stay, one at least.
        horizon: the delete horizon it is to have, if it has tombstones and none yet.

    Raises:
        InvalidBatchError: its times cannot be written.
    """
    base = header.base_timestamp
    attributes = header.attributes
    if horizon is None:
        records = b"".join([data[span.start : span.end] for span in kept])
    else:
        shift = base - horizon
        records = b"".join([_shifted(data, span, shift) for span in kept])
        base = horizon
        attributes |= HORIZON_FLAG
    newest = header.max_timestamp
    if not header.attributes & APPEND_TIME_FLAG:
        newest = _time(header.base_timestamp + max(span.timestamp_delta for span in kept))
    payload = compress(header.codec, records)
    return _batch(header, attributes, base, newest, len(kept), payload)


def emptied(header: BatchHeader) -> bytes:
    """A batch without its records: what is left to say is its offsets and its producer."""
    newest = header.max_timestamp
    attributes = header.attributes & ~(CODEC_MASK | HORIZON_FLAG)
    return _batch(header, attributes, newest, newest, 0, b"")


def filler(first_offset: int, last_offset: int, timestamp: int, epoch: int) -> bytes:
    """An empty batch of nobody, in place of batches that are gone."""
    header = BatchHeader(
        base_offset=first_offset,
        length=0,
        leader_epoch=epoch,
        magic=MAGIC,
        checksum=0,
        attributes=0,
        last_offset_delta=last_offset - first_offset,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=_NO_SEQUENCE,
        record_count=0,
    )
    return emptied(header)


def _shifted(data: bytes, span: Span, shift: int) -> bytes:
    """A record whose time counts from another base."""
    delta = varint(_time(span.timestamp_delta + shift))
    body = b"\x00" + delta + data[span.after_timestamp : span.end]
    return varint(len(body)) + body


def _time(value: int) -> int:
    """A client may have written any time; what does not fit its field leaves the batch as it is."""
    if not -(2**63) <= value < 2**63:
        raise InvalidBatchError("thin a batch", f"the time {value} is beyond all calendars")
    return value


def _batch(
    header: BatchHeader, attributes: int, base: int, newest: int, count: int, payload: bytes
) -> bytes:
    batch = bytearray(
        _HEADER.pack(
            header.base_offset,
            HEADER_BYTES - LENGTH_OVERHEAD + len(payload),
            header.leader_epoch,
            MAGIC,
            0,
            attributes,
            header.last_offset_delta,
            base,
            newest,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            count,
        )
    )
    batch += payload
    _CHECKSUM.pack_into(batch, 17, crc32c(memoryview(batch)[CHECKSUM_START:]))
    return bytes(batch)
