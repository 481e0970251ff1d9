"""What a start or a repair finds of the journals of rounds (round_journal.py) of the runs before.

An entry that is not whole is the one that was being written when the run ended, or it is damaged. In the
first case nobody was told of it, and what stands behind it, if anything, is from before the journal
began anew: everything in there is durable elsewhere. So entries behind it count in either case.

Where a piece begins its partition was durable: what is missing below that was acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from penstock.files import Files, read_whole, write_atomically
from penstock.log.names import unused
from penstock.log.positions import PartitionId
from penstock.log.round_journal import (
    BLOCK,
    Piece,
    encoded,
    entry_at,
    generations,
    journal_path,
    numbers,
    unused_path,
)
from penstock.log.space import means_full
from penstock.record.batch import HEADER_BYTES, BatchHeader, InvalidBatchError, checked, parse

_log = logging.getLogger(__name__)


class EarlierRounds:
    """Pieces that their partitions may lack."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._paths = [journal_path(folder, number) for number in numbers(files, folder)]
        self._damaged: list[Path] = []
        self._pieces: dict[PartitionId, list[Piece]] = {}
        for path in self._paths:
            found = _Found(read_whole(files, path))
            for piece in found.pieces:
                self._pieces.setdefault(piece.partition, []).append(piece)
            if found.damage:
                self._damaged.append(path)
                _log.log(found.level, "%s: %s; it goes to quarantine/", path.name, found.damage)

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
            write_atomically(self._files, journal_path(folder, 1), encoded(pieces))
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
            path = unused_path(self._files, self._folder)
            write_atomically(self._files, path, encoded(kept))
        if self._damaged:
            self._put_aside(self._damaged)
        for path in self._paths:
            if path not in self._damaged:
                self._files.remove(path)
        if self._paths:
            self._files.sync_folder(self._folder)

    def _put_aside(self, paths: Iterable[Path]) -> None:
        quarantine = self._folder / "quarantine"
        self._files.make_folder(quarantine)
        for path in paths:
            self._files.rename(path, unused(self._files, quarantine, path.name, ".damaged"))
        self._files.sync_folder(quarantine)


class _Found:
    """What a file holds: the pieces of its newest generation, and what may be missing of it."""

    def __init__(self, data: bytes) -> None:
        self.pieces: list[Piece] = []
        self.damage = ""
        self.level = logging.ERROR
        valid = generations(data)
        gaps: set[int] = set()
        gap = generation = None
        at = BLOCK
        while at < len(data):
            entry = entry_at(data, at)
            if entry is None or (valid is not None and entry.generation not in valid):
                gap = gap or at
                at += BLOCK
                continue
            if generation not in (None, entry.generation):
                break  # from before it began anew
            if gap is not None:
                gaps.add(gap)
            gap, generation = None, entry.generation
            self.pieces += entry.pieces
            at += entry.blocks * BLOCK
        if self.pieces and valid is None:
            gaps.add(0)
        self._judge(gaps)

    def _judge(self, gaps: set[int]) -> None:
        if gaps == {BLOCK}:
            self.level = logging.WARNING
            self.damage = (
                "its first entry is not whole: either the crash came while it was written, and nothing "
                "is missing, or it is damaged, and records of the last second before the crash may be"
            )
        elif gaps:
            self.damage = (
                "it is damaged: records of the last second before the crash may be missing"
            )


def proven_end(pieces: Iterable[Piece]) -> int:
    """How far a log was durable when the last of its pieces was written: up to where that begins."""
    whole = (piece.data for piece in pieces if len(piece.data) >= HEADER_BYTES)
    return max((parse(data).base_offset for data in whole), default=0)


def continuation(
    pieces: Sequence[Piece], position: int, follows: Callable[[BatchHeader], bool]
) -> bytes | None:
    """What stands at a position of their segment, if one of the pieces has it and its batch follows."""
    for piece in reversed(pieces):
        if piece.position <= position < piece.end:
            rest = piece.data[position - piece.position :]
            with suppress(InvalidBatchError):
                if follows(checked(rest, 0)):
                    return rest
    return None
