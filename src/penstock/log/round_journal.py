"""The journal of rounds: one file to sync for a commit round over many partitions.

To sync the file of each would take long, and one sync of the whole file system also waits for what other
programs have written to it. So the bytes that the partitions have got since the last round are written
once more, one after another, to a file that has its size already, and that is synced. The partitions'
own files are synced when it is full; then it begins anew.

    block 0: 8 bytes magic "PENRNDS1"; all blocks have 4096 bytes
    then entries, each from the beginning of a block on:
        uint32 length and CRC-32C of what follows
        uint64 generation: one more each time the journal begins anew
        pieces: 16 bytes topic id, int32 partition, int64 segment, int64 position in it, uint32 length,
        bytes

Those that count follow each other from block 1 on, with one generation. No block with an entry that
counts is ever written to, so that a torn write takes nothing which was there before. Where an entry is
not whole, those behind it count all the same: what they are of one generation with was damaged, and of
an earlier one everything is durable elsewhere. Every run that needs one makes a file of its own,
DIR/rounds-N.journal. The next start brings back from it what partitions lack (recovery.py), and removes
it; an orderly stop leaves none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Protocol
from uuid import UUID

from crc32c import crc32c

from penstock.files import File, Files, read_whole, write_atomically
from penstock.limits import (
    ROOM_AHEAD_FREE_BYTES_MIN,
    ROUND_JOURNAL_BYTES,
    ROUND_JOURNALED_BYTES_MAX,
    ROUND_JOURNALED_PARTITIONS_MAX,
)
from penstock.log.names import unused
from penstock.log.positions import PartitionId
from penstock.log.space import means_full
from penstock.record.batch import HEADER_BYTES, parse

_MAGIC = b"PENRNDS1"
_BLOCK = 4096
_FRAME = Struct(">II")
_GENERATION = Struct(">Q")
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
        self._end = _BLOCK
        self._generation = 1
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
        return self._end + size + _BLOCK > ROUND_JOURNAL_BYTES

    def prepare(self) -> None:
        """Make the file; where there is no room to spare this run does without. On the commit thread.

        Filled with zeros: a sync of bytes that a file had before has nothing else to record.
        """
        self._given_up = True
        free = self._files.free_bytes(self._folder)
        if free - ROUND_JOURNAL_BYTES < ROOM_AHEAD_FREE_BYTES_MIN:
            return
        path = _unused_path(self._files, self._folder)
        file = self._files.open(path, create=True)
        try:
            file.pwrite([_MAGIC.ljust(ROUND_JOURNAL_BYTES, b"\0")], 0)
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
        if self._end > _BLOCK:
            self._end = _BLOCK
            self._generation += 1

    def give_up(self) -> None:
        """Write no more: what stands in it is for the next start."""
        self._given_up = True

    def remove(self) -> None:
        """At an orderly stop: all that stands in it is durable elsewhere."""
        if self._path is not None:
            self._files.remove(self._path)
            self._path = self._file = None


class EarlierRounds:
    """What the runs before have left: pieces that their partitions may lack."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._paths = [_path(folder, number) for number in _numbers(files, folder)]
        self._damaged: list[Path] = []
        self._pieces: dict[PartitionId, list[Piece]] = {}
        for path in self._paths:
            payloads, is_damaged = _read(read_whole(files, path))
            if is_damaged:
                self._damaged.append(path)
            for piece in chain.from_iterable(map(_pieces, payloads)):
                self._pieces.setdefault(piece.partition, []).append(piece)

    def of(self, partition: PartitionId) -> Sequence[Piece]:
        """The pieces of a partition, in the order in which they were written."""
        return self._pieces.get(partition, ())

    def opened(self, partition: PartitionId) -> None:
        """A partition has all of its pieces, synced."""
        self._pieces.pop(partition, None)

    def give_up(self, partition: PartitionId, folder: Path) -> None:
        """Take a partition's pieces out, and keep them in a folder: its owner goes on without them."""
        if partition in self._pieces:
            pieces = self._pieces.pop(partition)
            write_atomically(self._files, _path(folder, 1), _encoded(pieces))
            self._replace([piece for own in self._pieces.values() for piece in own])

    def settle(self, topics: Collection[UUID]) -> None:
        """Remove the files, but for the pieces of partitions that are there and were not opened."""
        kept = [p for own in self._pieces.values() for p in own if p.partition.topic_id in topics]
        try:
            self._replace(kept)
        except OSError as error:
            if not means_full(error):
                raise
            # All of it stays then: what a partition has already does no harm.

    def _replace(self, kept: Sequence[Piece]) -> None:
        """Put one file with these pieces in the place of all that were found."""
        if kept:
            path = _unused_path(self._files, self._folder)
            write_atomically(self._files, path, _encoded(kept))
        for path in self._damaged:
            self._put_aside(path)
        for path in self._paths:
            if path not in self._damaged:
                self._files.remove(path)
        if self._paths:
            self._files.sync_folder(self._folder)

    def _put_aside(self, path: Path) -> None:
        quarantine = self._folder / "quarantine"
        self._files.make_folder(quarantine)
        aside = unused(self._files, quarantine, path.name, ".damaged")
        self._files.rename(path, aside)
        self._files.sync_folder(quarantine)
        _log.error(
            "an entry of %s is not whole, and others follow it: records of the last second before the "
            "crash may be missing; kept as quarantine/%s",
            path.name,
            aside.name,
        )


def proven_end(pieces: Iterable[Piece]) -> int:
    """How far a log was durable when the last of its pieces was written: up to where that begins."""
    return max(
        (parse(p.data).base_offset for p in pieces if len(p.data) >= HEADER_BYTES), default=0
    )


def _numbers(files: Files, folder: Path) -> list[int]:
    """Those of all journals of rounds, oldest first."""
    return sorted(int(m[1]) for name in files.list(folder) if (m := _NAME.fullmatch(name)))


def _path(folder: Path, number: int) -> Path:
    return folder / f"rounds-{number}.journal"


def is_round_journal(name: str) -> bool:
    """Whether a file in the data folder is one of these, or was about to be one."""
    return _NAME.fullmatch(name.removesuffix(".tmp")) is not None


def _unused_path(files: Files, folder: Path) -> Path:
    return _path(folder, max(_numbers(files, folder), default=0) + 1)


def _encoded(pieces: Iterable[Piece]) -> bytes:
    """A journal that holds them, one in each entry."""
    return _MAGIC.ljust(_BLOCK, b"\0") + b"".join(_entry(1, [piece]) for piece in pieces)


def _entry(generation: int, pieces: Iterable[Piece]) -> bytes:
    parts = [_GENERATION.pack(generation)]
    for (topic_id, partition), segment, position, data in pieces:
        parts.append(_PIECE.pack(topic_id.bytes, partition, segment, position, len(data)))
        parts.append(data)
    payload = b"".join(parts)
    entry = _FRAME.pack(len(payload), crc32c(payload)) + payload
    # To the end of its last block: to write a part of one the system might have to read the rest first.
    return entry + bytes(-len(entry) % _BLOCK)


def _read(data: bytes) -> tuple[list[memoryview], bool]:
    """What the pieces of all entries that count stand in, and whether one of those is not whole."""
    payloads: list[memoryview] = []
    if not data.startswith(_MAGIC):
        return payloads, False
    at, generation = _BLOCK, None
    skipped = is_damaged = False
    while at + _FRAME.size + _GENERATION.size <= len(data):
        payload = _payload_at(data, at)
        if payload is None:
            skipped = True  # a torn one is the last; a damaged one has others behind it
            at += _BLOCK
            continue
        (found,) = _GENERATION.unpack_from(payload)
        if generation not in (None, found):
            break  # from before it began anew
        generation = found
        is_damaged = is_damaged or skipped
        payloads.append(payload[_GENERATION.size :])
        at += -(-(_FRAME.size + len(payload)) // _BLOCK) * _BLOCK
    return payloads, is_damaged


def _payload_at(data: bytes, at: int) -> memoryview | None:
    """What a whole entry holds that begins there, its generation first."""
    length, checksum = _FRAME.unpack_from(data, at)
    payload = memoryview(data)[at + _FRAME.size : at + _FRAME.size + length]
    if length < _GENERATION.size or len(payload) != length or crc32c(payload) != checksum:
        return None
    return payload


def _pieces(payload: memoryview) -> Iterator[Piece]:
    at = 0
    while at < len(payload):
        topic_id, partition, segment, position, size = _PIECE.unpack_from(payload, at)
        at += _PIECE.size
        identity = PartitionId(UUID(bytes=topic_id), partition)
        yield Piece(identity, segment, position, bytes(payload[at : at + size]))
        at += size
