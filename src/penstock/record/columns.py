"""Splits the records of batches into columns: the buffers that Arrow arrays are made of.

Space is taken once for several batches; what a column needs is known from their unpacked bytes, so
nothing grows while records are copied. Headers are left out. decode.py says what a record looks like.

This module may run compiled (setup.py), with the C types that stand in columns.pxd.
"""

from __future__ import annotations

import cython

from penstock.record.batch import APPEND_TIME_FLAG, BatchHeader, InvalidBatchError
from penstock.record.spans import Cursor

if cython.compiled:
    from cython.cimports.libc.string import memcpy

_NEWLINE = 10
_SPACE = 32


class ByteColumn:
    """A nullable column of bytes: where each value ends, all of them one after the other, and bits."""

    def __init__(self, rows: int, size: int) -> None:
        self.ends = bytearray(4 * (rows + 1))
        self.data = bytearray(size)
        self.valid = bytearray((rows + 7) // 8)
        self.nulls = 0
        self.used = 0
        self._ends = memoryview(self.ends).cast("i")
        self._data = memoryview(self.data)
        self._valid = memoryview(self.valid)

    def add(self, row: int, source: bytes, start: int, length: int) -> None:
        """Copy a value of so many bytes; -1 is null."""
        if length < 0:
            self.nulls += 1
        else:
            self._copy(source, start, length)
            self._valid[row >> 3] = self._valid[row >> 3] | (1 << (row & 7))
        self._ends[row + 1] = self.used

    def add_line(self, row: int, source: bytes, start: int, length: int) -> None:
        """Copy a value as a line of text; a null becomes the empty object of JSON.

        Line breaks inside become blanks, which is what they are in JSON, where strings have none.
        """
        at = self.used
        if length < 0:
            self._copy(b"{}", 0, 2)
            self.nulls += 1
        else:
            self._copy(source, start, length)
            self._valid[row >> 3] = self._valid[row >> 3] | (1 << (row & 7))
        _blank_newlines(self._data, at, self.used)
        self._data[self.used] = _NEWLINE
        self.used += 1
        self._ends[row + 1] = self.used

    def _copy(self, source: bytes, start: int, length: int) -> None:
        if length == 0:
            return
        at = self.used
        assert 0 <= start <= len(source) - length
        assert length <= len(self.data) - at
        if cython.compiled:
            to = cython.address(self._data[at])
            memcpy(to, cython.cast(cython.p_char, source) + start, length)
        else:
            self._data[at : at + length] = source[start : start + length]
        self.used = at + length


@cython.boundscheck(False)
@cython.wraparound(False)
def _blank_newlines(data: memoryview, start: int, end: int) -> None:
    """Both within data, which is the caller's to see to."""
    for index in range(start, end):
        if data[index] == _NEWLINE:
            data[index] = _SPACE


class Columns:
    """Offset, timestamp, key and value of records.

    Args:
        rows: how many records there are at most.
        size: how many bytes they take, unpacked.
        lines: whether values are written as lines of text.
    """

    def __init__(self, rows: int, size: int, *, lines: bool) -> None:
        self.rows = 0
        self.lines = lines
        self.offsets = bytearray(8 * rows)
        self.timestamps = bytearray(8 * rows)
        self.keys = ByteColumn(rows, size)
        # A line takes up to three bytes more than the value it stands for: those of an empty object.
        self.values = ByteColumn(rows, size + 3 * rows)
        self._offsets = memoryview(self.offsets).cast("q")
        self._timestamps = memoryview(self.timestamps).cast("q")

    def add(self, header: BatchHeader, data: bytes, first: int, end: int) -> None:
        """Add the records of a batch that have offsets from first up to, but not including, end.

        Raises:
            InvalidBatchError: there are not as many records as the header says, or no such ones.
        """
        cursor = Cursor(data)
        size = len(data)
        append_time = bool(header.attributes & APPEND_TIME_FLAG)
        for _ in range(header.record_count):
            length = cursor.varint()
            record_end = cursor.position + length
            if length < 0 or record_end > size:
                raise _malformed("a record does not fit")
            cursor.position += 1  # attributes, unused by any version
            timestamp_delta = cursor.varint()
            offset = header.base_offset + cursor.varint()
            key_length = cursor.varint()
            key_start = cursor.skip(key_length, record_end)
            value_length = cursor.varint()
            value_start = cursor.skip(value_length, record_end)
            cursor.position = record_end
            if offset < first or offset >= end:
                continue
            row = self.rows
            self._offsets[row] = offset
            if append_time:
                self._timestamps[row] = header.max_timestamp
            else:
                self._timestamps[row] = header.base_timestamp + timestamp_delta
            self.keys.add(row, data, key_start, key_length)
            if self.lines:
                self.values.add_line(row, data, value_start, value_length)
            else:
                self.values.add(row, data, value_start, value_length)
            self.rows = row + 1
        if cursor.position != size:
            raise _malformed(f"{size - cursor.position} bytes after the last record")


def _malformed(cause: str) -> InvalidBatchError:
    return InvalidBatchError("split records into columns", cause)
