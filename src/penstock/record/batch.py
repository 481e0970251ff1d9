"""The record batch as the wire and the segment hold it: 61 bytes of header, then the records.

     0  base offset        int64   patched on append, outside the checksum
     8  length             int32   bytes after this field
    12  leader epoch       int32   patched on append, outside the checksum
    16  magic              int8    2
    17  checksum           uint32  CRC-32C of everything from byte 21 on
    21  attributes         int16   bits 0-2 codec, 3 log-append time, 4 transactional, 5 control,
                           6 the base timestamp is the delete horizon
    23  last offset delta  int32
    27  base timestamp     int64
    35  max timestamp      int64
    43  producer id        int64
    51  producer epoch     int16
    53  base sequence      int32
    57  record count       int32
    61  records

Nothing here opens the records. This module may run compiled (setup.py), with the C types that stand in
batch.pxd; it is plain Python either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

import cython

from penstock.crc32c import crc32c
from penstock.errors import PenstockError

if cython.compiled:
    from cython.cimports.penstock.bigendian import (
        load_int16,
        load_int32,
        load_int64,
        load_uint32,
        store_int32,
        store_int64,
    )
    from cython.cimports.penstock.buffers import bytes_of, writable_bytes_of

HEADER_BYTES = 61
LENGTH_OVERHEAD = 12  # bytes before and including the length field
CHECKSUM_START = 21
MAGIC = 2
NO_PRODUCER = -1

CODEC_MASK = 0x07
CODEC_MAX = 4
APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
HORIZON_FLAG = 0x40

_HEADER = Struct(">qiibIhiqqqhii")
_OFFSET = Struct(">q")
_INT32 = Struct(">i")
_CHECKSUM = Struct(">I")
_ATTRIBUTES = Struct(">h")
_WALK = Struct(">qiibIhi")  # as far as the last offset delta

Buffer = bytes | bytearray | memoryview


class InvalidBatchError(PenstockError):
    """Bytes that are not a record batch, or not one this log takes."""


class CorruptBatchError(InvalidBatchError):
    """A batch whose checksum does not match its bytes."""


class BatchHeader:
    """The header, field for field."""

    def __init__(
        self,
        base_offset: int,
        length: int,
        leader_epoch: int,
        magic: int,
        checksum: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.length = length
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.checksum = checksum
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """Compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker and no user records."""
        return bool(self.attributes & CONTROL_FLAG)


def parse(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at position; the caller has checked that 61 bytes are there."""
    if cython.compiled:
        size = cython.declare(cython.Py_ssize_t, 0)
        start = cython.declare(cython.p_const_uchar, bytes_of(buffer, cython.address(size)))
        assert 0 <= position <= size - HEADER_BYTES
        start += position
        header = cython.declare(BatchHeader, BatchHeader.__new__(BatchHeader))
        header.base_offset = load_int64(start)
        header.length = load_int32(start + 8)
        header.leader_epoch = load_int32(start + 12)
        header.magic = cython.cast(cython.schar, start[16])
        header.checksum = load_uint32(start + 17)
        header.attributes = load_int16(start + 21)
        header.last_offset_delta = load_int32(start + 23)
        header.base_timestamp = load_int64(start + 27)
        header.max_timestamp = load_int64(start + 35)
        header.producer_id = load_int64(start + 43)
        header.producer_epoch = load_int16(start + 51)
        header.base_sequence = load_int32(start + 53)
        header.record_count = load_int32(start + 57)
        return header
    return BatchHeader(*_HEADER.unpack_from(buffer, position))


def checked(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the batch at position, complete and undamaged, or raise InvalidBatchError."""
    available = len(buffer) - position
    if available < HEADER_BYTES:
        raise InvalidBatchError("read record batch", f"{available} bytes are less than a header")
    header = parse(buffer, position)
    if header.magic != MAGIC:
        raise InvalidBatchError(
            "read record batch",
            f"magic {header.magic} is not 2",
            "use a client that writes format v2 (Kafka 0.11 or newer)",
        )
    size = header.length + LENGTH_OVERHEAD
    if not HEADER_BYTES <= size <= available:
        raise InvalidBatchError(
            "read record batch", f"length {header.length} does not fit {available} bytes"
        )
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    if crc32c(view[position + CHECKSUM_START : position + size]) != header.checksum:
        raise CorruptBatchError("read record batch", "its checksum does not match its bytes")
    return header


def headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch that begins in buffer; the last may be cut short.

    It ends where no header stands: what the length of a damaged one says leads anywhere, even back.
    """
    position = 0
    end = len(buffer) - HEADER_BYTES
    while position <= end:
        header = parse(buffer, position)
        if header.magic != MAGIC or header.size < HEADER_BYTES:
            return
        yield position, header
        position += header.size


def find(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Walk batches from the start of buffer to the first that reaches offset.

    Returns:
        (position, size of the batch there), or (position, 0) where fewer than 61 bytes were left at
        position before it was found.

    Raises:
        InvalidBatchError: what stands at a batch boundary is no header.
    """
    position = 0
    end = len(buffer) - HEADER_BYTES
    while position <= end:
        base, length, _, magic, _, _, last_delta = _WALK.unpack_from(buffer, position)
        if magic != MAGIC or length < HEADER_BYTES - LENGTH_OVERHEAD:
            raise InvalidBatchError("walk record batches", f"no batch header at byte {position}")
        if base + last_delta >= offset:
            return position, length + LENGTH_OVERHEAD
        position += length + LENGTH_OVERHEAD
    return position, 0


def patch(buffer: bytearray | memoryview, position: int, base_offset: int, epoch: int) -> None:
    """Give the batch its place in the log and the epoch it came in; both lie outside the checksum."""
    if cython.compiled:
        size = cython.declare(cython.Py_ssize_t, 0)
        start = cython.declare(cython.p_uchar, writable_bytes_of(buffer, cython.address(size)))
        assert 0 <= position <= size - HEADER_BYTES
        store_int64(start + position, base_offset)
        store_int32(start + position + 12, epoch)
    else:
        _OFFSET.pack_into(buffer, position, base_offset)
        _INT32.pack_into(buffer, position + 12, epoch)


def stamp_append_time(buffer: bytearray | memoryview, position: int, timestamp: int) -> None:
    """Mark the batch as stamped by the log, and renew its checksum."""
    header = parse(buffer, position)
    _ATTRIBUTES.pack_into(buffer, position + 21, header.attributes | APPEND_TIME_FLAG)
    _OFFSET.pack_into(buffer, position + 35, timestamp)
    view = memoryview(buffer)[position + CHECKSUM_START : position + header.size]
    _CHECKSUM.pack_into(buffer, position + 17, crc32c(view))
