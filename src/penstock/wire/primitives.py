"""Writes the primitive types of Kafka's protocol, for the answers that are encoded by hand."""

from __future__ import annotations

from struct import Struct

from penstock.errors import PenstockError

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class MalformedRequestError(PenstockError):
    """Bytes that are not the request they claim to be; the connection is closed."""

    def __init__(self, cause: str) -> None:
        super().__init__("read request", cause)


def unsigned_varint(value: int) -> bytes:
    """As flexible versions write lengths and counts."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def array_start(count: int, *, flexible: bool) -> bytes:
    """The length of an array."""
    return unsigned_varint(count + 1) if flexible else _INT32.pack(count)


def string(text: str, *, flexible: bool) -> bytes:
    """Text that is not null."""
    data = text.encode()
    return (unsigned_varint(len(data) + 1) if flexible else _INT16.pack(len(data))) + data


def nullable_string(text: str | None, *, flexible: bool) -> bytes:
    """Text, or null."""
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    return string(text, flexible=flexible)


def bytes_start(size: int, *, flexible: bool) -> bytes:
    """The length of bytes that follow."""
    return unsigned_varint(size + 1) if flexible else _INT32.pack(size)
