"""Reading a partition: by offset for consumers, by time for those who look for a place to start.

Only what is durable is read. Reads on the loop never wait for the disk: where the page is not cached,
`NotCachedError` names the range, and the caller reads it on a thread and tries again.

This module may run compiled (setup.py), with the C types that stand in reading.pxd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.errors import DamagedLogError, PenstockError
from penstock.files import Buffer, File, FileSlice
from penstock.limits import KIB, OPENED_BYTES_MAX, OPENED_RECORDS_MAX
from penstock.log.partition import Partition
from penstock.log.segment import NO_TIMESTAMP, Segment
from penstock.record.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatchError,
    InvalidBatchError,
    find,
    headers,
)
from penstock.record.decode import decode

_WALK_BYTES = 64 * KIB
# What is read to find the first batch, and answered from memory if it is enough. It spans more than
# one interval of the index, so that one read nearly always does.
_SMALL_BYTES = 16 * KIB
NO_END = -1
ReadPiece = Callable[[Segment, int, int], Buffer]
"""Reads so many bytes of a segment at a position."""


class OffsetOutOfRangeError(PenstockError):
    """The offset is not, or no longer, in the log."""


class NotCachedError(Exception):
    """The bytes are on the disk only."""

    def __init__(self, file: File, size: int, position: int) -> None:
        super().__init__(size, position)
        self.file = file
        self.size = size
        self.position = position

    def warm(self) -> None:
        """Bring the range into the page cache. Runs on a thread."""
        self.file.pread(self.size, self.position)


class Place(NamedTuple):
    """Where a batch begins."""

    segment: Segment
    position: int


class TimedOffset(NamedTuple):
    """A record's place and time."""

    offset: int
    timestamp: int


def read(
    partition: Partition, offset: int, max_bytes: int, end: int = NO_END
) -> Buffer | FileSlice:
    """Whole batches from the one that holds offset on; the last may be cut short at max_bytes.

    The first batch is always whole, however large. Empty at the durable end, and at the end that is
    given, which is where a batch begins. Small answers are read here; large ones are ranges of the
    segment's file, to be sent from the page cache.

    Raises:
        OffsetOutOfRangeError: below the start or above the durable end.
        NotCachedError: the disk would have to be waited for.
        DamagedLogError: what stands in the segment is not a batch.
    """
    if not partition.start_offset <= offset <= partition.durable_offset:
        raise OffsetOutOfRangeError(
            f"read {partition} at {offset}",
            f"it holds {partition.start_offset} to {partition.durable_offset}",
        )
    if offset == partition.durable_offset:
        return b""
    stop: Place | None = None
    if end != NO_END and end < partition.durable_offset:
        if offset >= end:
            return b""
        stop = place_of(partition, end)
    place = partition.commit_point(offset)
    if place is not None:
        data = _read_at(partition, place.segment, place.position, offset, max_bytes, stop)
        if data:
            return data
    at, segment = partition.segment_for(offset)
    position = segment.floor(offset)
    while True:
        data = _read_at(partition, segment, position, offset, max_bytes, stop)
        if data or (stop is not None and segment is stop.segment):
            return data
        # The segment ends before offset: it lies in the next one.
        at += 1
        if at == len(partition.segments):
            raise _damaged(partition, segment, "it ends before the durable offset")
        segment, position = partition.segments[at], 0


def end_of(partition: Partition, offset: int, data: Buffer | FileSlice) -> int:
    """An offset above everything in what was read from an offset on, and not far above."""
    if isinstance(data, FileSlice):
        at, segment = partition.segment_for(offset)
        while segment.file is not data.file:  # the one of the offset ended before it
            at += 1
            segment = partition.segments[at]
        return segment.offset_after(data.position + data.size)
    return max((header.last_offset + 1 for _, header in headers(data)), default=offset)


def record_bytes(partition: Partition, offset: int) -> int:
    """What a record takes on average in the segment of an offset."""
    _, segment = partition.segment_for(offset)
    return segment.size // max(segment.next_offset - segment.base_offset, 1)


def place_of(partition: Partition, offset: int) -> Place:
    """Where the batch that begins at an offset stands."""
    at, segment = partition.segment_for(offset)
    position = segment.floor(offset)
    limit = partition.readable_bytes(segment)
    while position < limit:
        data = _pread(segment, min(_SMALL_BYTES, limit - position), position)
        start, size = _find(partition, segment, data, position, offset)
        position += start
        if size > 0:
            return Place(segment, position)
    if position > limit:
        raise _damaged(partition, segment, "its last batch passes its end")
    # The segment ends before it: it begins the next one.
    return Place(partition.segments[min(at + 1, len(partition.segments) - 1)], 0)


def _read_at(
    partition: Partition,
    segment: Segment,
    position: int,
    offset: int,
    max_bytes: int,
    stop: Place | None,
) -> Buffer | FileSlice:
    limit = partition.readable_bytes(segment)
    if stop is not None and segment is stop.segment:
        limit = stop.position
    while position < limit:
        data = _pread(segment, min(_SMALL_BYTES, limit - position), position)
        start, size = _find(partition, segment, data, position, offset)
        position += start
        if size == 0:
            continue
        if position + size > limit:
            raise _damaged(partition, segment, f"the batch at {position} passes the durable end")
        wanted = min(max(size, max_bytes), limit - position)
        if start + wanted <= len(data):
            return memoryview(data)[start : start + wanted]
        if not segment.file.is_cached(wanted, position):
            raise NotCachedError(segment.file, wanted, position)
        return FileSlice(segment.file, position, wanted)
    if position > limit:
        # Or the reader would go on in the next segment, and miss what this one holds.
        raise _damaged(partition, segment, "its last batch passes its end")
    return b""


def _find(
    partition: Partition, segment: Segment, data: Buffer, position: int, offset: int
) -> tuple[int, int]:
    """As `find`, in what was read at a position: how far from it, and the size, 0 if it is not there."""
    try:
        start, size = find(data, offset)
    except InvalidBatchError as error:
        raise _damaged(partition, segment, f"{error.cause} after {position}") from error
    if start == size == 0:
        raise _damaged(partition, segment, f"no whole header at {position}")
    return start, size


def _pread(segment: Segment, size: int, position: int) -> Buffer:
    data = segment.file.pread_cached(size, position)
    # Partly cached is as good as cached only if the first batch is whole; rare enough to wait for.
    if data is None or len(data) < size:
        raise NotCachedError(segment.file, size, position)
    return data


def _damaged(partition: Partition, segment: Segment, cause: str) -> DamagedLogError:
    return DamagedLogError(
        f"read {partition}",
        f"segment {segment.base_offset:020d} is damaged: {cause}",
        "run `penstock log verify` on the data folder",
    )


def _patient(segment: Segment, size: int, position: int) -> Buffer:
    """Read, and wait for the disk if it must be."""
    return segment.file.pread(size, position)


def _impatient(segment: Segment, size: int, position: int) -> Buffer:
    return _pread(segment, size, position)


def walk(
    segment: Segment, position: int, limit: int, read_piece: ReadPiece = _patient
) -> Iterator[tuple[int, BatchHeader]]:
    """Headers of the batches from position to limit; stops where no whole header stands."""
    while position + HEADER_BYTES <= limit:
        piece = read_piece(segment, min(_WALK_BYTES, limit - position), position)
        after = 0
        for at, header in headers(piece):
            yield position + at, header
            after = at + header.size
        if after == 0:
            return
        position += after


def offset_for_time(
    partition: Partition, timestamp: int, *, wait: bool = True
) -> TimedOffset | None:
    """The first record, in order of offsets, that is not older than timestamp.

    Raises:
        NotCachedError: the disk would have to be waited for, and that was not allowed.
    """
    read_piece = _patient if wait else _impatient
    for segment in partition.segments:
        limit = partition.readable_bytes(segment)
        if segment.max_timestamp < timestamp or limit == 0:
            continue
        start = segment.floor_time(timestamp)
        for position, header in walk(segment, start, limit, read_piece):
            if header.max_timestamp < timestamp or header.last_offset < partition.start_offset:
                continue
            data = _records_of(segment, position, header, read_piece)
            found = _first_since(partition, data, header, timestamp)
            if found is not None:
                return found
    return None


def newest_by_time(partition: Partition, *, wait: bool = True) -> TimedOffset | None:
    """The record with the largest timestamp; the first of them if there are several.

    Raises:
        NotCachedError: as `offset_for_time`.
    """
    read_piece = _patient if wait else _impatient
    durable = partition.durable_point
    best = (durable.max_timestamp, durable.max_timestamp_offset, durable.segment)
    for segment in reversed(partition.segments):
        sealed = segment.base_offset < durable.segment.base_offset
        if sealed and segment.max_timestamp >= best[0]:
            best = (segment.max_timestamp, segment.max_timestamp_offset, segment)
    timestamp, last_offset, segment = best
    if timestamp == NO_TIMESTAMP or last_offset < partition.start_offset:
        return None
    limit = partition.readable_bytes(segment)
    for position, header in walk(segment, segment.floor(last_offset), limit, read_piece):
        if header.last_offset == last_offset:
            data = _records_of(segment, position, header, read_piece)
            return _first_since(partition, data, header, timestamp)
    return None


def _records_of(
    segment: Segment, position: int, header: BatchHeader, read_piece: ReadPiece
) -> Buffer | None:
    """A batch; None if it has more records than can be opened while others wait."""
    if header.record_count > OPENED_RECORDS_MAX:
        return None
    return read_piece(segment, header.size, position)


def _first_since(
    partition: Partition, data: Buffer | None, header: BatchHeader, timestamp: int
) -> TimedOffset | None:
    """The first record of that time in a batch whose header promises one; None if it was deleted.

    A client wrote the header and the records, and may have lied, or packed more than can be opened
    while others wait: then the batch counts as a whole, and readers start a little early.
    """
    if header.record_count == 0:
        return None  # compaction has taken them all
    whole = TimedOffset(max(header.base_offset, partition.start_offset), header.max_timestamp)
    if data is None:
        return whole
    try:
        records = decode(data, OPENED_BYTES_MAX)
    except CorruptBatchError:
        raise
    except InvalidBatchError:
        return whole
    since = [
        TimedOffset(record.offset, record.timestamp)
        for record in records
        if record.timestamp >= timestamp
        and header.base_offset <= record.offset <= header.last_offset
    ]
    if not since:
        return whole
    return next((found for found in since if found.offset >= partition.start_offset), None)
