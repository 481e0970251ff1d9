"""An append-only file of small entries, for metadata: the catalog, the durable ends.

    8 bytes magic "PENJRNL1", then entries: uint32 length, uint32 CRC-32C of the payload, payload,
    then zeros, for the next entries

Appending does not sync: the caller decides when. Reading stops at the first entry that is not whole;
what stands from there on, if it is not zeros only, is put aside by the caller, never deleted.

A sync of bytes that a file had before takes two thirds of one that makes it longer, because the file
system has its own records to write for that. So an entry that makes it longer is followed by zeros.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from struct import Struct

from penstock.crc32c import crc32c
from penstock.files import (
    File,
    Files,
    read_whole,
    replace_file,
    sync_name,
    write_atomically,
)
from penstock.limits import KIB
from penstock.log.space import means_full

_MAGIC = b"PENJRNL1"
_FRAME = Struct(">II")
_AHEAD = bytes(16 * KIB)
# What reading JSON, and taking it apart, can raise when another version or a broken disk wrote it.
NOT_UNDERSTOOD = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,  # int() of the number 1e999
    RecursionError,  # a thousand brackets
)


class Journal:
    """Open for appending; `entries` are those found at opening, `torn` what followed them."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        if not files.exists(path):
            write_atomically(files, path, _MAGIC)
        self.entries, self._end, self.torn = _read(read_whole(files, path))
        self._file = files.open(path)
        self._length = self._end  # of the file; zeros that a run before left are not looked for
        self._is_renamed = False

    @property
    def size(self) -> int:
        """Bytes in use."""
        return self._end

    @property
    def file(self) -> File:
        """What is written to now, for those who sync it with others; a rewrite puts another here."""
        return self._file

    def renew(self) -> None:
        """After a crash: write what was found once more, without what is not whole.

        The caller has put aside `torn`. Entries that a killed process wrote may be in a cache only,
        and after a failed sync no later sync of the same file would bring them to the disk.
        """
        try:
            self.rewrite(self.entries)
        except OSError as error:
            if not means_full(error):
                raise
            self._renew_in_place()

    def _renew_in_place(self) -> None:
        """The same on a disk that has no room for a second file: bytes that are there need none.

        They are the same as before, so a power failure meanwhile takes nothing that was certain.
        """
        self._file.pwrite([_encoded(self.entries)], 0)
        if self.torn:
            self._file.truncate(self._end)
        self._file.sync()

    def append(self, payload: bytes) -> None:
        """Write an entry; it survives a power failure after the next sync."""
        assert payload
        frame = _frame(payload)
        try:
            self._file.pwrite([frame], self._end)
        except OSError:
            self._undo_write()
            raise
        self._end += len(frame)
        if self._length < self._end:
            self._length = self._end
            if len(frame) <= len(_AHEAD):
                self._make_room()

    def _undo_write(self) -> None:
        # Half an entry would be put aside by the next start, for which a full disk has no room. If it
        # stays all the same, the next entry takes its place.
        with suppress(OSError):
            self._file.truncate(self._end)
            self._length = self._end

    def _make_room(self) -> None:
        # Not in one write with the entry: a disk that has room for one of them only must not end with an
        # entry that is there and was refused.
        with suppress(OSError):
            self._file.pwrite([_AHEAD], self._end)
            self._length = self._end + len(_AHEAD)

    def sync(self) -> None:
        """Make every entry survive a power failure."""
        self._file.sync()
        self._sync_name()

    def _sync_name(self) -> None:
        # After the file: its owner may replace it while a thread syncs the one before.
        if self._is_renamed:
            self._is_renamed = False
            try:
                sync_name(self._files, self._path)
            except OSError:
                self._is_renamed = True
                raise

    def rewrite(self, payloads: Iterable[bytes]) -> None:
        """Replace all entries, atomically and synced."""
        self.replace(payloads)
        self._sync_name()

    def replace(self, payloads: Iterable[bytes]) -> None:
        """The same without a sync of the new name: the next `sync` brings it.

        Either this fails and nothing has changed, or entries go to the new file from now on.
        """
        data = _encoded(payloads)
        file = replace_file(self._files, self._path, data)
        self._is_renamed = True
        self._file = file
        self._end = self._length = len(data)


def _encoded(payloads: Iterable[bytes]) -> bytes:
    return _MAGIC + b"".join(map(_frame, payloads))


def _frame(payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), crc32c(payload)) + payload


def _read(data: bytes) -> tuple[list[bytes], int, bytes]:
    if not data.startswith(_MAGIC):
        return [], len(_MAGIC), data  # damaged from its first bytes on: all of it is put aside
    entries: list[bytes] = []
    position = len(_MAGIC)
    while position + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, position)
        payload = data[position + _FRAME.size : position + _FRAME.size + length]
        # Zeros would pass as empty entries: there are none.
        if length == 0 or len(payload) != length or crc32c(payload) != checksum:
            break
        entries.append(payload)
        position += _FRAME.size + length
    rest = data[position:]
    return entries, position, rest if rest.strip(b"\0") else b""
