"""The four codecs of Kafka's batches, by cramjam, with a bound on what they may unpack to.

Snappy comes in two framings: Java's (magic, version, then length-prefixed raw blocks), which Kafka
prescribes, and one bare raw block, which some clients send.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

import cramjam

from penstock.limits import DECOMPRESSED_BYTES_MAX
from penstock.record.batch import Buffer, InvalidBatchError

NAMES: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_XERIAL_VERSIONS = b"\x00\x00\x00\x01\x00\x00\x00\x01"
_INT32 = Struct(">i")
_FIRST_GUESS_BYTES = 64 * 1024
# The codecs tell "does not fit" from "is damaged" by their words only; these are Rust's own.
_NO_ROOM = "failed to write whole buffer"


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Unpack the records of a batch.

    Raises:
        InvalidBatchError: unknown codec, damaged data, or more than limit bytes of output.
    """
    if codec == 0:
        return bytes(data)
    unpack = _DECOMPRESSORS.get(codec)
    if unpack is None:
        raise InvalidBatchError("decompress batch", f"codec {codec} is unknown")
    try:
        return unpack(bytes(data), limit)
    except (cramjam.DecompressionError, OSError, ValueError) as error:
        raise InvalidBatchError(
            "decompress batch", f"damaged {NAMES[codec]} data: {error}"
        ) from error


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """Pack the records of a batch; snappy knows no levels."""
    if codec == 0:
        return data
    if codec == 1:
        return bytes(cramjam.gzip.compress(data, level))
    if codec == 2:
        block = bytes(cramjam.snappy.compress_raw(data))
        return _XERIAL_MAGIC + _XERIAL_VERSIONS + _INT32.pack(len(block)) + block
    if codec == 3:
        # Independent blocks: Kafka and the Java clients refuse linked ones, which are the default.
        compressor = cramjam.lz4.Compressor(level=level, block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    if codec == 4:
        return bytes(cramjam.zstd.compress(data, level))
    raise InvalidBatchError("compress batch", f"codec {codec} is unknown")


def _growing(decompress_into: Callable[[bytes, bytearray], int], data: bytes, limit: int) -> bytes:
    """Unpack into a buffer that grows until the data fits, and never beyond limit."""
    size = min(limit, max(_FIRST_GUESS_BYTES, 4 * len(data)))
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: decompress_into(data, buffer)])
        except cramjam.DecompressionError as error:
            # Only want of room is tried again: a few damaged bytes must not cost the whole limit.
            if size >= limit or _NO_ROOM not in str(error):
                raise
            size = min(limit, 4 * size)


def _gzip(data: bytes, limit: int) -> bytes:
    return _growing(cramjam.gzip.decompress_into, data, limit)


def _lz4(data: bytes, limit: int) -> bytes:
    return _growing(cramjam.lz4.decompress_into, data, limit)


def _zstd(data: bytes, limit: int) -> bytes:
    return _growing(cramjam.zstd.decompress_into, data, limit)


def _snappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, limit)
    parts: list[bytes] = []
    position = _XERIAL_HEADER_BYTES
    while position + 4 <= len(data):
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        if not 0 <= size <= len(data) - position:
            raise ValueError(f"block of {size} bytes does not fit")
        parts.append(_snappy_block(data[position : position + size], limit))
        limit -= len(parts[-1])
        position += size
    return b"".join(parts)


def _snappy_block(block: bytes, limit: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > limit:
        raise ValueError(f"it unpacks to more than {limit} bytes")
    return bytes(cramjam.snappy.decompress_raw(block))


_DECOMPRESSORS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    1: _gzip,
    2: _snappy,
    3: _lz4,
    4: _zstd,
}
