"""Packs a batch's records anew, for topics that want a codec of their own."""

from __future__ import annotations

from struct import Struct

from penstock.crc32c import crc32c
from penstock.record.batch import (
    CHECKSUM_START,
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    Buffer,
)
from penstock.record.compression import compress, decompress

_LENGTH = Struct(">i")
_CHECKSUM = Struct(">I")
_ATTRIBUTES = Struct(">h")


def recompress(
    header: BatchHeader, buffer: Buffer, codec: int, level: int | None = None
) -> bytearray:
    """The same batch with its records packed by another codec.

    Raises:
        InvalidBatchError: what the client packed cannot be unpacked.
    """
    packed = compress(codec, decompress(header.codec, memoryview(buffer)[HEADER_BYTES:]), level)
    batch = bytearray(buffer[:HEADER_BYTES])
    batch += packed
    _LENGTH.pack_into(batch, 8, len(batch) - LENGTH_OVERHEAD)
    _ATTRIBUTES.pack_into(batch, 21, (header.attributes & ~CODEC_MASK) | codec)
    _CHECKSUM.pack_into(batch, 17, crc32c(memoryview(batch)[CHECKSUM_START:]))
    return batch
