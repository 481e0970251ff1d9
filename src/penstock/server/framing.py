"""Cuts a stream of bytes into frames: int32 length, then as many bytes. Knows no socket.

The buffer is handed out to be received into, and frames are views of it: nothing is copied, and a
frame is valid until the next call. It starts small, grows to what its client sends, and is given back
after an unusually large frame, or when its client no longer fills it.

This module may run compiled (setup.py), with the C types that stand in framing.pxd.
"""

from __future__ import annotations

from mmap import MAP_PRIVATE, mmap
from struct import Struct

import cython

from penstock.errors import PenstockError
from penstock.limits import (
    FRAME_BYTES_MAX,
    RECEIVE_BUFFER_BYTES_KEPT,
    RECEIVE_BUFFER_BYTES_MIN,
)

if cython.compiled:
    from cython.cimports.penstock.bigendian import load_int32

_LENGTH = Struct(">i")
_LENGTH_BYTES = 4
# What people point at the wrong port, by the length its first four bytes spell.
_STRANGERS = {
    b"GET ": "an HTTP request",
    b"POST": "an HTTP request",
    b"HEAD": "an HTTP request",
    b"PUT ": "an HTTP request",
    b"AMQP": "an AMQP client",
    b"\x16\x03\x01": "a TLS handshake",
    b"\x16\x03\x03": "a TLS handshake",
}


class FrameError(PenstockError):
    """A length no frame may have; the connection is closed."""

    def __init__(self, cause: str, remedy: str = "") -> None:
        super().__init__("receive frame", cause, remedy)


class FrameBuffer:
    """Bytes received and not yet taken."""

    def __init__(self) -> None:
        self._view = _allocated(RECEIVE_BUFFER_BYTES_MIN)
        self._data = self._view
        self._size = RECEIVE_BUFFER_BYTES_MIN
        self._start = 0
        self._end = 0
        self.total = 0
        """All bytes that ever came."""
        self._total_seen = 0

    def pending(self) -> int:
        """Bytes that are not taken yet; when every whole frame is, those of one that has begun."""
        return self._end - self._start

    def wanted(self) -> int:
        """Bytes of the frame that is being received, its length included; 0 if not known yet."""
        if self._end - self._start < _LENGTH_BYTES:
            return 0
        return self._length() + _LENGTH_BYTES

    def missing(self) -> int:
        """Bytes of that frame that have yet to come; 0 if not known, or if it is whole."""
        return max(0, self.wanted() - self.pending())

    def _length(self) -> int:
        """What the four bytes at the start say; the caller knows that they are there."""
        if cython.compiled:
            return load_int32(cython.address(self._data[self._start]))
        return int(_LENGTH.unpack_from(self._view, self._start)[0])

    def space(self) -> memoryview:
        """Where to receive: room for the rest of the frame, or for a few more."""
        if self._start == self._end:
            self._start = self._end = 0
            return self._view
        # A large frame gets room as it arrives: to announce one must not cost more than its bytes.
        wanted = self.wanted()
        arrived = max(4 * self.pending(), RECEIVE_BUFFER_BYTES_KEPT)
        need = max(min(wanted, arrived), RECEIVE_BUFFER_BYTES_MIN)
        if need > self._size:
            kept = wanted <= RECEIVE_BUFFER_BYTES_KEPT
            self._move_to(_mapped(need) if kept else _allocated(need))
        elif self._start + need > self._size:
            self._move_to(self._view)
        return self._view[self._end :]

    def _move_to(self, view: memoryview) -> None:
        kept = bytes(self._view[self._start : self._end])
        self._view = view
        self._data = view
        self._size = len(view)
        view[: len(kept)] = kept
        self._start, self._end = 0, len(kept)

    def shrink(self) -> None:
        """Give an unusually large buffer back, now and not when more comes: that may be never."""
        if self._size > RECEIVE_BUFFER_BYTES_KEPT:
            self._move_to(_allocated(max(self.pending(), RECEIVE_BUFFER_BYTES_MIN)))

    def shrink_unless_filled(self) -> bool:
        """Give a buffer back into which less than its size has come since the last call; whether it was.

        By the bytes and not by the silence: a client that goes on with small requests needs it no more.
        A frame that needs the room keeps it, or every byte of it that comes late would cost a new one.
        """
        came = self.total - self._total_seen
        self._total_seen = self.total
        if came >= self._size or self._size <= RECEIVE_BUFFER_BYTES_MIN:
            return False
        if max(self.pending(), self.wanted()) > RECEIVE_BUFFER_BYTES_MIN:
            return False
        self._move_to(_allocated(RECEIVE_BUFFER_BYTES_MIN))
        return True

    def received(self, count: int) -> None:
        """So many bytes were put into the space."""
        self._end += count
        self.total += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame, or None.

        Raises:
            FrameError: what comes is no frame.
        """
        available = self._end - self._start
        if available < _LENGTH_BYTES:
            return None
        size = self._length()
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise self._refused(size)
        if available < size + _LENGTH_BYTES:
            return None
        begin = self._start + _LENGTH_BYTES
        self._start = begin + size
        return self._view[begin : self._start]

    def _refused(self, size: int) -> FrameError:
        first = bytes(self._view[self._start : self._start + 4])
        for start, stranger in _STRANGERS.items():
            if first.startswith(start):
                return FrameError(
                    f"this looks like {stranger}", "this port speaks Kafka's protocol"
                )
        return FrameError(f"a frame of {size} bytes is not accepted")


def _allocated(size: int) -> memoryview:
    """A small buffer, or one that goes after its frame: the allocator has the next at hand."""
    return memoryview(bytearray(_rounded(size)))


def _mapped(size: int) -> memoryview:
    """A buffer that may be kept for long: when it goes, the system has all of its memory again.

    The allocator keeps what lies between blocks in use: 160 of 400 MiB, of 200 connections.
    """
    return memoryview(mmap(-1, _rounded(size), flags=MAP_PRIVATE))


def _rounded(size: int) -> int:
    """The next power of two, so that a growing client does not reallocate for every frame."""
    return 1 << (size - 1).bit_length()
