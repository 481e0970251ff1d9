"""What is done to good bytes to make them bad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from penstock.crc32c import crc32c
from penstock.record.batch import CHECKSUM_START, HEADER_BYTES

# Where length fields go wrong: nothing, one, the ends of every width, and what only just fits.
_NUMBERS = (0, 1, 2, -1, -2, 127, 128, 255, 2**15 - 1, 2**15, 2**16 - 1, 2**31 - 1, -(2**31))
_HUGE = (2**32 - 1, 2**62, 2**63 - 1, -(2**63))
_VARINTS = (b"\x00", b"\x01", b"\x7f", b"\xff" * 4 + b"\x0f", b"\xff" * 5, b"\xff" * 9 + b"\x01")


def mutated(random: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """One to four changes, of any kind."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        random.choice(_CHANGES)(random, changed, corpus)
    return bytes(changed)


def garbage(random: Random, size_max: int) -> bytes:
    """Bytes without a meaning; sometimes all the same, which is what varints dislike most."""
    size = random.randrange(size_max + 1)
    if random.random() < 0.2:
        return bytes((random.randrange(256),)) * size
    return random.randbytes(size)


def fix_batch_checksum(batch: bytearray) -> None:
    """What a hostile client does too: the checksum says nothing about the contents."""
    if len(batch) >= HEADER_BYTES:
        batch[17:21] = crc32c(memoryview(batch)[CHECKSUM_START:]).to_bytes(4, "big")


def _place(random: Random, data: bytearray) -> int:
    return random.randrange(len(data) + 1)


def _flip(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    for _bit in range(random.choice((1, 1, 2, 8))):
        if data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _truncate(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_place(random, data) :]


def _extend(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    data += garbage(random, 40)


def _remove(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = _place(random, data)
    del data[start : start + random.randrange(1, 20)]


def _repeat(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = _place(random, data)
    data[start:start] = data[start : start + random.randrange(1, 40)] * random.choice((1, 1, 2, 20))


def _set_number(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A length or count field, as likely as not: they stand everywhere."""
    width = random.choice((1, 2, 4, 4, 8))
    value = random.choice(_NUMBERS + _HUGE + (len(data), len(data) - 4, random.randrange(300)))
    start = _place(random, data)
    data[start : start + width] = (value % (1 << 8 * width)).to_bytes(width, "big")


def _set_varint(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = _place(random, data)
    data[start : start + 1] = random.choice(_VARINTS)


def _splice(random: Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    other = random.choice(corpus)
    start = _place(random, data)
    data[start:] = other[random.randrange(len(other) + 1) :]


_CHANGES: tuple[Callable[[Random, bytearray, Sequence[bytes]], None], ...] = (
    _flip,
    _flip,
    _truncate,
    _extend,
    _remove,
    _repeat,
    _set_number,
    _set_number,
    _set_varint,
    _splice,
)
