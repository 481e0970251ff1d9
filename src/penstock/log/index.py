"""Sparse indexes beside a segment, in Kafka's own layout, and always a cache of the segment.

    .index      int32 offset - base, int32 position of the batch that ends with that offset
    .timeindex  int64 largest timestamp so far, int32 offset - base of the batch that holds it

Both are sorted. The segment that is written keeps its entries in memory and adds them to the file at
every checkpoint; a sealed segment keeps nothing in memory and probes the file (18 reads of cached
pages for a million entries), so that retained data costs no memory.

This module may run compiled (setup.py), with the C types that stand in index.pxd.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path
from struct import Struct

from penstock.crc32c import crc32c
from penstock.files import File, Files


class SparseIndex:
    """Fixed-size entries sorted by their first field."""

    def __init__(self, files: Files, path: Path, layout: str) -> None:
        self._files = files
        self.path = path
        self._entry = Struct(layout)
        self._file: File | None = None
        self._buffer: bytearray | None = None
        self._flushed = 0
        self._expected: tuple[int, int] | None = None

    # -- the segment that is written

    def start(self, entries: bytes = b"", *, flushed: int = 0) -> None:
        """Keep entries in memory from now on; the first flushed bytes of them are in the file."""
        self._buffer = bytearray(entries)
        self._flushed = flushed

    def add(self, key: int, value: int) -> None:
        """Append an entry."""
        assert self._buffer is not None
        self._buffer += self._entry.pack(key, value)

    def snapshot(self) -> bytes:
        """The entries so far, to be written by `write`."""
        assert self._buffer is not None
        return bytes(self._buffer)

    def checksum(self) -> int:
        """CRC-32C of the entries in memory."""
        assert self._buffer is not None
        return int(crc32c(self._buffer))

    def write(self, entries: bytes) -> None:
        """Bring the file up to a snapshot."""
        file = self._open(create=True)
        if self._flushed == 0:
            file.truncate(0)
        if len(entries) > self._flushed:
            file.pwrite([entries[self._flushed :]], self._flushed)
        self._flushed = len(entries)

    def sync(self) -> None:
        """Make the file survive a power failure."""
        self._open().sync()

    def seal(self) -> None:
        """Forget the entries in memory: the file has them all."""
        assert self._buffer is not None
        assert self._flushed == len(self._buffer)
        self._buffer = None

    # -- a sealed segment

    def adopt(self, file: File) -> None:
        """Use an open file that holds all entries, whatever its name is now."""
        self._file = file

    def expect(self, size: int, checksum: int) -> None:
        """What the file must hold; looked at when it is first used, not when the server starts."""
        self._expected = (size, checksum)

    def damaged(self) -> bool:
        """Whether the file is not what its checkpoint says; then it must be rebuilt."""
        if self._expected is None:
            return False
        data = self.load()
        found = (len(data), crc32c(data))
        if found == self._expected:
            self._expected = None
            return False
        return True

    def let_go_of_file(self) -> None:
        """Close it; it is opened again when it is needed."""
        self._file = None

    # -- any segment

    def load(self) -> bytes:
        """Everything in the file; nothing where there is none."""
        if not self._files.exists(self.path):
            return b""
        file = self._open()
        return file.pread(file.size(), 0)

    def floor(self, key: int) -> tuple[int, ...] | None:
        """The last entry whose first field is at most key."""
        at = bisect_right(range(len(self)), key, key=lambda i: self._at(i)[0])
        return self._at(at - 1) if at else None

    def ceiling_of_last(self, value: int) -> tuple[int, ...] | None:
        """The first entry whose last field is at least value; it grows as the first one does."""
        at = bisect_left(range(len(self)), value, key=lambda i: self._at(i)[-1])
        return self._at(at) if at < len(self) else None

    def last(self) -> tuple[int, ...] | None:
        """The newest entry."""
        return self._at(len(self) - 1) if len(self) else None

    def __len__(self) -> int:
        size = len(self._buffer) if self._buffer is not None else self._file_size()
        return size // self._entry.size

    def _file_size(self) -> int:
        if self._file is None and not self._files.exists(self.path):
            return 0
        return self._open().size()

    def _at(self, index: int) -> tuple[int, ...]:
        size = self._entry.size
        if self._buffer is not None:
            return self._entry.unpack_from(self._buffer, index * size)
        return self._entry.unpack(self._open().pread(size, index * size))

    def _open(self, *, create: bool = False) -> File:
        if self._file is None:
            self._file = self._files.open(self.path, create=create)
        return self._file


def offset_index(files: Files, path: Path) -> SparseIndex:
    """Offset to position."""
    return SparseIndex(files, path, ">ii")


def time_index(files: Files, path: Path) -> SparseIndex:
    """Largest timestamp so far to offset."""
    return SparseIndex(files, path, ">qi")
