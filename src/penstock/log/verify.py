"""Reads a partition's folder from outside, batch by batch, for dump and verify.

Checks every batch of every segment, checksum included, and the order of offsets. A gap that a repair
has left between two segments is in order: the checkpoint before it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.errors import NotFoundError, UsageError
from penstock.files import File, Files
from penstock.log.catalog import read_identity
from penstock.log.checkpoint import load
from penstock.log.earlier_rounds import continuation
from penstock.log.round_journal import Piece
from penstock.log.settings import Durability
from penstock.log.swap import segment_files
from penstock.record.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    InvalidBatchError,
    checked,
    parse,
)

Pread = Callable[[int, int], bytes]


class FoundBatch(NamedTuple):
    """A whole batch and where it stands."""

    base_offset: int
    position: int
    header: BatchHeader
    data: bytes | None = None
    """The batch itself, where the segment lacks it and the journal of rounds has it."""


class Damage(NamedTuple):
    """A stretch that is not whole batches in order."""

    base_offset: int
    """The segment it is in."""
    position: int
    size: int
    first_offset: int
    """The first offset that is lost or in doubt."""
    next_offset: int
    """The first offset after the stretch that is whole again; -1 if none is."""
    cause: str


def found_segments(files: Files, folder: Path) -> dict[int, Path]:
    """All segments in a partition's folder, by their first offsets."""
    if not files.exists(folder):
        raise NotFoundError(f"read {folder}", "there is no such folder", "name a folder TOPIC-N")
    try:
        found = segment_files(files, folder)
    except NotADirectoryError as error:
        raise UsageError(
            f"read {folder}", "it is a file", f"name the folder it is in, {folder.parent}"
        ) from error
    if not found:
        raise NotFoundError(f"read {folder}", "it holds no segments", "name a folder TOPIC-N")
    return found


def is_in_memory(files: Files, folder: Path) -> bool:
    """Whether a partition has no segments because its topic never writes any."""
    entry = read_identity(files, folder)
    if entry is None or entry.config.get("penstock.durability") != Durability.MEMORY.value:
        return False
    return not segment_files(files, folder)


def scan(files: Files, folder: Path, pieces: Sequence[Piece] = ()) -> Iterator[FoundBatch | Damage]:
    """Every batch and every damaged stretch of a partition, in order.

    What the journal of rounds has of it (pieces) stands in for what a segment lacks.
    """
    segments = found_segments(files, folder)
    previous = expected = next(iter(segments))
    for base, path in segments.items():
        if base != expected and not _vouched(files, folder, previous, base):
            yield Damage(base, 0, 0, expected, base, "segments before it are missing")
        previous = expected = base
        own = [piece for piece in pieces if piece.segment == base]
        for found in _scan_segment(files.open(path), base, own):
            if isinstance(found, FoundBatch):
                expected = found.header.last_offset + 1
            elif found.next_offset >= 0:
                expected = found.next_offset
            yield found


def _vouched(files: Files, folder: Path, base: int, following: int) -> bool:
    checkpoint = load(files, folder, base)
    return checkpoint is not None and checkpoint.next_offset == following


def _scan_segment(file: File, base: int, pieces: Sequence[Piece]) -> Iterator[FoundBatch | Damage]:
    size = file.size()
    position, expected = 0, base
    while True:
        found = _batch_at(file.pread, position, size, expected)
        data = None
        if not isinstance(found, BatchHeader):
            data = _brought_back(pieces, position, expected)
        if data is not None:
            found = parse(data)
        if isinstance(found, BatchHeader):
            yield FoundBatch(base, position, found, data)
            expected = found.last_offset + 1
            position += found.size
            continue
        following = _nearest(file.pread, position + 1, size, expected, pieces)
        if following is None:
            if position < size:
                yield Damage(base, position, size - position, expected, -1, found)
            return
        at, offset = following
        yield Damage(base, position, at - position, expected, offset, found)
        position, expected = at, offset


def _brought_back(pieces: Sequence[Piece], position: int, expected: int) -> bytes | None:
    """The batch that the journal of rounds has for a place."""
    rest = continuation(pieces, position, lambda header: header.base_offset == expected)
    return None if rest is None else rest[: parse(rest).size]


def _nearest(
    pread: Pread, position: int, size: int, expected: int, pieces: Sequence[Piece]
) -> tuple[int, int] | None:
    """Where it goes on behind damage, and with which offset."""
    found = [
        (piece.position, header.base_offset)
        for piece in pieces
        if piece.position >= position
        and isinstance(header := _whole(piece.data), BatchHeader)
        and header.base_offset >= expected
    ]
    if whole := _next_whole(pread, position, size, expected):
        at, header = whole
        found.append((at, header.base_offset))
    return min(found, default=None)


def _whole(data: bytes) -> BatchHeader | None:
    with suppress(InvalidBatchError):
        return checked(data, 0)
    return None


def _batch_at(
    pread: Pread, position: int, size: int, expected: int, *, exact: bool = True
) -> BatchHeader | str:
    """The whole batch at a position, or what is wrong with it."""
    start = pread(HEADER_BYTES, position)
    if len(start) < HEADER_BYTES:
        return f"{len(start)} bytes are less than a header"
    header = parse(start)
    if header.magic != MAGIC or not HEADER_BYTES <= header.size <= size - position:
        return "there is no batch header"
    if header.base_offset != expected if exact else header.base_offset < expected:
        return f"offset {header.base_offset} where {expected} should be"
    try:
        return checked(pread(header.size, position))
    except InvalidBatchError as error:
        return error.cause


def _next_whole(
    pread: Pread, position: int, size: int, expected: int
) -> tuple[int, BatchHeader] | None:
    """The next place where a whole batch of a later offset stands."""
    piece_bytes = 1 << 20
    while position + HEADER_BYTES <= size:
        piece = pread(min(piece_bytes, size - position), position)
        for at in range(max(len(piece) - HEADER_BYTES + 1, 0)):
            # The magic byte rules out nearly every position before a header is parsed.
            if piece[at + 16] != MAGIC or piece[at] != 0:
                continue
            length = int.from_bytes(piece[at + 8 : at + 12], "big", signed=True)
            if length + LENGTH_OVERHEAD < HEADER_BYTES:
                continue
            found = _batch_at(pread, position + at, size, expected, exact=False)
            if isinstance(found, BatchHeader):
                return position + at, found
        if position + len(piece) >= size:
            return None
        position += len(piece) - HEADER_BYTES + 1
    return None
