"""Writes an answer by hand; records go between the pieces that are written here, untouched.

An answer is: int32 size, int32 correlation id, a zero byte if the version is flexible (no tagged
fields), then the body.

This module may run compiled (setup.py), with the C types that stand in writer.pxd.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING
from uuid import UUID

import cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.libc.string import memcpy
    from cython.cimports.penstock.bigendian import store_int16, store_int32, store_int64

if TYPE_CHECKING:
    from penstock.files import Buffer, FileSlice

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_PIECE_BYTES = 256


class Writer:
    """An answer that grows."""

    def __init__(self, correlation_id: int, flexible: bool) -> None:
        self._flexible = flexible
        self._parts: list[Buffer | FileSlice] = []
        self._text = bytearray()
        self._used = 0
        self.int32(0)  # the size, written last
        self.int32(correlation_id)
        self.end()

    def _room(self, size: int) -> int:
        """Make room; returns where it is."""
        at = self._used
        self._used = at + size
        if cython.compiled and self._used > len(self._text):
            PyByteArray_Resize(self._text, max(_PIECE_BYTES, 2 * self._used))
        return at

    def int16(self, value: int) -> None:
        """A signed integer of two bytes."""
        if cython.compiled:
            at = cython.declare(cython.Py_ssize_t, self._room(2))
            store_int16(cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._text)) + at, value)
        else:
            self._text += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """A signed integer of four bytes."""
        if cython.compiled:
            at = cython.declare(cython.Py_ssize_t, self._room(4))
            store_int32(cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._text)) + at, value)
        else:
            self._text += _INT32.pack(value)

    def int64(self, value: int) -> None:
        """A signed integer of eight bytes."""
        if cython.compiled:
            at = cython.declare(cython.Py_ssize_t, self._room(8))
            store_int64(cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._text)) + at, value)
        else:
            self._text += _INT64.pack(value)

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        if cython.compiled:
            at = cython.declare(cython.Py_ssize_t, self._room(len(data)))
            memcpy(PyByteArray_AS_STRING(self._text) + at, PyBytes_AS_STRING(data), len(data))
        else:
            self._text += data

    def byte(self, value: int) -> None:
        """An unsigned byte."""
        if cython.compiled:
            at = cython.declare(cython.Py_ssize_t, self._room(1))
            cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._text))[at] = value
        else:
            self._text.append(value)

    def varint(self, value: int) -> None:
        """An unsigned varint."""
        while value > 0x7F:
            self.byte((value & 0x7F) | 0x80)
            value >>= 7
        self.byte(value)

    def length(self, value: int) -> None:
        """How many elements, or bytes, follow: plus one as a varint, or as four bytes."""
        if self._flexible:
            self.varint(value + 1)
        else:
            self.int32(value)

    def string(self, text: str | None) -> None:
        """Text, or null."""
        data = b"" if text is None else text.encode()
        size = -1 if text is None else len(data)
        if self._flexible:
            self.varint(size + 1)
        else:
            self.int16(size)
        self.raw(data)

    def topic(self, name: str, topic_id: UUID | None) -> None:
        """How a topic is named: by its id, or where there is none by its name."""
        if topic_id is None:
            self.string(name)
        else:
            self.raw(topic_id.bytes)

    def end(self) -> None:
        """The end of a structure: no tagged fields, where there could be any."""
        if self._flexible:
            self.byte(0)

    def records(self, data: Buffer | FileSlice) -> None:
        """Records, or nothing, with their length before them."""
        size = len(data)
        self.length(size)
        if size:
            self._close_piece()
            self._parts.append(data)

    def _close_piece(self) -> None:
        if cython.compiled:
            PyByteArray_Resize(self._text, self._used)
        if self._text:
            self._parts.append(self._text)
        self._text = bytearray()
        self._used = 0

    def finish(self) -> list[Buffer | FileSlice]:
        """The whole answer, with its size at the start."""
        self._close_piece()
        size = -4
        for part in self._parts:
            size += len(part)
        first = self._parts[0]
        assert isinstance(first, bytearray)
        if cython.compiled:
            store_int32(cython.cast(cython.p_uchar, PyByteArray_AS_STRING(first)), size)
        else:
            first[0:4] = _INT32.pack(size)
        return self._parts
