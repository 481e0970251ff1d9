"""Finds the records inside a batch's unpacked bytes without making objects of their contents.

What compaction asks of a record: its key, whether it has a value, and which bytes it takes, so that
those that stay are copied as they are. decode.py says what a record looks like.

This module may run compiled (setup.py), with the C types that stand in spans.pxd.
"""

from __future__ import annotations

from penstock.record.batch import InvalidBatchError

_64_BITS = 0xFFFFFFFFFFFFFFFF


class Span:
    """One record's place."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.timestamp_delta = 0
        self.offset_delta = 0
        self.after_timestamp = 0
        """Where the offset delta begins; what stands before it depends on the batch's base time."""
        self.key: bytes | None = None
        self.has_value = False


class Cursor:
    """A position in the records of a batch. For the modules that go over records."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def varint(self) -> int:
        """The zigzag varint that stands next."""
        raw = 0
        shift = 0
        position = self.position
        data = self.data
        size = len(data)
        while True:
            if position >= size or shift > 63:
                raise _malformed("a varint that does not end")
            byte = data[position]
            position += 1
            # Ten bytes hold 70 bits; what is above 64 is nothing that a writer can mean.
            raw |= ((byte & 0x7F) << shift) & _64_BITS
            if byte < 0x80:
                break
            shift += 7
        self.position = position
        value = raw >> 1
        return -value - 1 if raw & 1 else value

    def field(self, end: int) -> bytes | None:
        """The bytes of a field that is preceded by its length; None for null."""
        length = self.varint()
        start = self.skip(length, end)
        return None if length == -1 else self.data[start : self.position]

    def skip(self, length: int, end: int) -> int:
        """Go over a field of so many bytes, or -1 for null; where it starts."""
        start = self.position
        if length < -1 or length > end - start:
            raise _malformed(f"field of {length} bytes does not fit")
        if length > 0:
            self.position = start + length
        return start


def spans(data: bytes, count: int) -> list[Span]:
    """The records of a batch, from its unpacked bytes.

    Raises:
        InvalidBatchError: there are not count records, or what stands there is no record.
    """
    cursor = Cursor(data)
    found: list[Span] = []
    for _ in range(count):
        span = Span()
        span.start = cursor.position
        length = cursor.varint()
        end = cursor.position + length
        if length < 0 or end > len(data):
            raise _malformed(f"record of {length} bytes does not fit")
        cursor.position += 1  # attributes, unused by any version
        span.timestamp_delta = cursor.varint()
        span.after_timestamp = cursor.position
        span.offset_delta = cursor.varint()
        span.key = cursor.field(end)
        # The value's bytes are not needed, only whether there is one.
        span.has_value = cursor.varint() != -1
        if cursor.position > end:
            raise _malformed("record length and contents differ")
        span.end = cursor.position = end
        found.append(span)
    if cursor.position != len(data):
        raise _malformed(f"{len(data) - cursor.position} bytes after the last record")
    return found


def _malformed(cause: str) -> InvalidBatchError:
    return InvalidBatchError("decode records", cause)
