"""The journal of rounds: one file to sync for a commit round over many partitions.

To sync the file of each would take long, and one sync of the whole file system also waits for what other
programs have written to it. So the bytes that the partitions have got since the last round are written
once more, one after another, to a file that has its size already, and that is synced. The partitions'
own files are synced when it is full; then it begins anew.

    block 0 (all have 4096 bytes): 8 bytes magic "PENRNDS1", uint64 first generation, CRC-32C of both
    then entries, each from the beginning of a block on:
        uint32 length and CRC-32C of what follows
        uint64 generation: one more each time the journal begins anew
        pieces: 16 bytes topic id, int32 partition, int64 segment, int64 position in it, uint32 length,
        bytes

Those that count follow each other from block 1 on, with one generation. No block with an entry that
counts is ever written to, so that a torn write takes nothing which was there before. The first
generation is drawn by lot: what clients send stands in entries, and must not be taken for one. Every run
that needs one makes a file of its own, DIR/rounds-N.journal. The next start reads it
(earlier_rounds.py), brings back from it what partitions lack (recovery.py), and removes it; an orderly
stop leaves none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, Protocol
from uuid import UUID, uuid4

from penstock.crc32c import crc32c
from penstock.files import File, Files
from penstock.limits import (
    ROOM_AHEAD_FREE_BYTES_MIN,
    ROUND_JOURNAL_BYTES,
    ROUND_JOURNALED_BYTES_MAX,
    ROUND_JOURNALED_PARTITIONS_MAX,
)
from penstock.log.positions import PartitionId

BLOCK = 4096
_MAGIC = b"PENRNDS1"
_HEADER = Struct(">8sQI")
_FRAME = Struct(">II")
_GENERATION = Struct(">Q")
_GENERATIONS = 1 << 32
"""More than one file ever sees: those from the first one on that count."""
_PIECE = Struct(">16siqqI")
_NAME = re.compile(r"rounds-([1-9][0-9]{0,17})\.journal")  # as they are written: no leading zeros
_log = logging.getLogger(__name__)


class Piece(NamedTuple):
    """What a partition got: bytes of a segment, which is named by its first offset."""

    partition: PartitionId
    segment: int
    position: int
    data: bytes

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + len(self.data)


class Entry(NamedTuple):
    """One that is whole."""

    generation: int
    pieces: list[Piece]
    blocks: int
    """So many it takes."""


class Changed(Protocol):
    """A partition that has got something."""

    def read_new(self) -> Piece:
        """What it has got since it was last made durable."""
        ...


class RoundJournal:
    """What this run writes. The loop writes entries, the commit thread makes the file."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._path: Path | None = None
        self._file: File | None = None
        self._end = BLOCK
        self._generation = _drawn()
        self._given_up = False

    @property
    def file(self) -> File | None:
        """What to sync after an entry was written; None if there is nothing to write to."""
        return None if self._given_up else self._file

    @property
    def is_wanted(self) -> bool:
        """Whether it has yet to be made."""
        return self._file is None and not self._given_up

    @property
    def is_full(self) -> bool:
        """Whether an entry of the largest size might find no room."""
        if self._given_up:
            return False  # nobody writes to it any more
        size = ROUND_JOURNALED_BYTES_MAX + ROUND_JOURNALED_PARTITIONS_MAX * _PIECE.size
        return self._end + size + BLOCK > ROUND_JOURNAL_BYTES

    def prepare(self) -> None:
        """Make the file; where there is no room to spare this run does without. On the commit thread.

        Filled with zeros: a sync of bytes that a file had before has nothing else to record.
        """
        self._given_up = True
        free = self._files.free_bytes(self._folder)
        if free - ROUND_JOURNAL_BYTES < ROOM_AHEAD_FREE_BYTES_MIN:
            return
        path = unused_path(self._files, self._folder)
        file = self._files.open(path, create=True)
        try:
            file.pwrite([_header(self._generation).ljust(ROUND_JOURNAL_BYTES, b"\0")], 0)
            file.sync()
            self._files.sync_folder(self._folder)
        except OSError:
            with suppress(OSError):
                self._files.remove(path)
            raise
        self._path, self._file = path, file
        self._given_up = False

    def write(self, changed: Iterable[Changed]) -> bool:
        """Write what partitions have got; whether it was written. It lasts when the file is synced."""
        assert self._file is not None
        try:
            entry = _entry(self._generation, [one.read_new() for one in changed])
            assert self._end + len(entry) <= ROUND_JOURNAL_BYTES
            self._file.pwrite([entry], self._end)
        except OSError as error:
            _log.warning("the journal of rounds is not written any more: %s", error)
            self.give_up()
            return False
        self._end += len(entry)
        return True

    def begin_anew(self) -> None:
        """All that stands in it is durable elsewhere."""
        if self._end > BLOCK:
            self._end = BLOCK
            self._generation += 1

    def give_up(self) -> None:
        """Write no more: what stands in it is for the next start."""
        self._given_up = True

    def remove(self) -> None:
        """At an orderly stop: all that stands in it is durable elsewhere."""
        if self._path is not None:
            self._files.remove(self._path)
            self._path = self._file = None


def numbers(files: Files, folder: Path) -> list[int]:
    """Those of all journals of rounds, oldest first."""
    return sorted(int(m[1]) for name in files.list(folder) if (m := _NAME.fullmatch(name)))


def journal_path(folder: Path, number: int) -> Path:
    """Where the journal with a number is."""
    return folder / f"rounds-{number}.journal"


def unused_path(files: Files, folder: Path) -> Path:
    """Where the next one goes."""
    return journal_path(folder, max(numbers(files, folder), default=0) + 1)


def is_round_journal(name: str) -> bool:
    """Whether a file in the data folder is one of these, or was about to be one."""
    return _NAME.fullmatch(name.removesuffix(".tmp")) is not None


# ---- the bytes


def encoded(pieces: Iterable[Piece]) -> bytes:
    """A journal that holds them and no more."""
    generation = _drawn()
    return _header(generation) + b"".join(_entry(generation, some) for some in _grouped(pieces))


def _grouped(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """As many at a time as a round would write."""
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        if group and size + len(piece.data) > ROUND_JOURNALED_BYTES_MAX:
            yield group
            group, size = [], 0
        group.append(piece)
        size += len(piece.data)
    if group:
        yield group


def _drawn() -> int:
    return uuid4().int >> 66  # 62 bits


def _header(generation: int) -> bytes:
    fields = _MAGIC + _GENERATION.pack(generation)
    return _HEADER.pack(_MAGIC, generation, crc32c(fields)).ljust(BLOCK, b"\0")


def generations(data: bytes) -> range | None:
    """Those that an entry of this journal may have; None if its first block does not say."""
    if len(data) < _HEADER.size:
        return None
    magic, first, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC or checksum != crc32c(data[: _HEADER.size - 4]):
        return None
    return range(first, first + _GENERATIONS)


def _entry(generation: int, pieces: Iterable[Piece]) -> bytes:
    parts = [_GENERATION.pack(generation)]
    for (topic_id, partition), segment, position, data in pieces:
        parts.append(_PIECE.pack(topic_id.bytes, partition, segment, position, len(data)))
        parts.append(data)
    payload = b"".join(parts)
    entry = _FRAME.pack(len(payload), crc32c(payload)) + payload
    # To the end of its last block: to write a part of one the system might have to read the rest first.
    return entry + bytes(-len(entry) % BLOCK)


def entry_at(data: bytes, at: int) -> Entry | None:
    """The whole entry that begins there, if one does."""
    try:
        length, checksum = _FRAME.unpack_from(data, at)
        payload = memoryview(data)[at + _FRAME.size : at + _FRAME.size + length]
        if len(payload) != length or crc32c(payload) != checksum:
            return None
        (generation,) = _GENERATION.unpack_from(payload)
        pieces = list(_pieces(payload[_GENERATION.size :]))
    except StructError:
        return None
    return Entry(generation, pieces, -(-(_FRAME.size + length) // BLOCK))


def _pieces(payload: memoryview) -> Iterator[Piece]:
    at = 0
    while at < len(payload):
        topic_id, partition, segment, position, size = _PIECE.unpack_from(payload, at)
        at += _PIECE.size
        if size > len(payload) - at:
            raise StructError("a piece is longer than its entry")
        identity = PartitionId(UUID(bytes=topic_id), partition)
        yield Piece(identity, segment, position, bytes(payload[at : at + size]))
        at += size
