"""One pass of compaction over a partition's files: the work that is done beside the broker.

First the dirty part is read for the newest offset of every key, as many as fit. Then every segment from
the first on is written anew without the records that a newer one of the same key replaces, several
small ones into one. Order, offsets, times and producers stay as they are, and the offsets of batches
that are gone stay covered by empty ones, so that a hole still means a loss. What aborted transactions
have written counts for nothing (judging.py).

Nothing that exists is touched: swap.py lets a segment count when it is whole and synced, and removes
what was written in vain, because only it knows which segments count already. A pass knows only files,
and runs in a process of its own (server/cleaner.py), because it looks at every record.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.errors import StorageError
from penstock.files import File, Files
from penstock.limits import COMPACTION_KEYS_MAX, COMPACTION_SYNC_BYTES, DISK_FREE_BYTES_MIN, MIB
from penstock.log import checkpoint as checkpoints
from penstock.log import index
from penstock.log.checkpoint import Checkpoint
from penstock.log.judging import Transactions
from penstock.log.offset_map import OffsetMap
from penstock.log.segment import NO_TIMESTAMP, Segment, segment_path
from penstock.log.swap import cleaned_path
from penstock.record.batch import (
    HEADER_BYTES,
    NO_PRODUCER,
    BatchHeader,
    InvalidBatchError,
    checked,
    parse,
)
from penstock.record.marker import commits
from penstock.record.spans import Span
from penstock.record.thin import (
    OFFSET_DELTA_MAX,
    delete_horizon,
    emptied,
    filler,
    thinned,
    unpacked,
)

_PIECE_BYTES = 1 * MIB

Pause = Callable[[int], None]
"""Told how many bytes were read or written; may wait, so that others get their share of the disk."""


class Plan(NamedTuple):
    """What one pass is to do."""

    folder: str
    groups: list[list[int]]
    """First offsets of the segments; each group becomes one segment. They follow each other."""
    sizes: list[int]
    """Bytes of all these segments, in order: files that are not of that size are others."""
    end: int
    """Where the last of them ends."""
    dirty: int
    """Where the part begins that no pass has looked at."""
    needed: list[int]
    """Base offsets of batches that must stay, if only without records."""
    aborted: list[list[int]]
    """Aborted transactions: producer, first offset and offset of the marker."""
    fences: list[list[int]]
    """Producers and their epochs, of which a marker is all that is left."""
    now: int
    delete_retention_ms: int
    index_interval: int
    keys_max: int = COMPACTION_KEYS_MAX
    free_bytes_min: int = DISK_FREE_BYTES_MIN


class Cleaned(NamedTuple):
    """A group was written as one segment, synced, and waits for its swap."""

    bases: list[int]
    end: int
    size: int
    batches: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int
    unmarked: list[int]
    """Offsets of the markers of aborted transactions that are gone."""


class Finished(NamedTuple):
    """The pass is over."""

    end: int
    """Everything below has been compacted; less than was asked for if there were too many keys."""
    horizon: int | None
    """The earliest time at which tombstones and markers that were kept may go."""


class Failed(NamedTuple):
    """The pass ended early; the groups that were reported before stay good."""

    cause: str


Report = Cleaned | Finished | Failed


def clean(files: Files, plan: Plan, pause: Pause) -> Iterator[Cleaned | Finished]:
    """Make a pass; each group is reported when it is ready to be swapped.

    Raises:
        InvalidBatchError, StorageError: a segment is damaged, or another; it is left as it is.
        OSError: among others ENOSPC, if there is no room for a copy.
    """
    return _Pass(files, plan, pause).run()


class _Pass:
    def __init__(self, files: Files, plan: Plan, pause: Pause) -> None:
        self._files = files
        self._plan = plan
        self._folder = Path(plan.folder)
        self._pause = pause
        self._needed = frozenset(plan.needed)
        self._transactions = Transactions(plan.aborted, plan.fences)
        self._unmarked: list[int] = []
        self._bases = [base for group in plan.groups for base in group]
        self._sizes = dict(zip(self._bases, plan.sizes, strict=True))
        self._newest = OffsetMap()
        self._end = plan.dirty
        self._horizon: int | None = None
        self._unjudged = False
        """Whether a batch was passed whose keys are not known: a tombstone must stay after it."""

    def run(self) -> Iterator[Cleaned | Finished]:
        self._read_keys()
        ends = [group[0] for group in self._plan.groups[1:]] + [self._plan.end]
        for bases, end in zip(self._plan.groups, ends, strict=True):
            if bases[0] >= self._end:
                break  # the keys from here on are for another pass
            yield self._write_group(bases, end)
        yield Finished(self._end, self._horizon)

    # -- reading

    def _batches(self, base: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Every batch of a segment, checked: damage must never be copied as if it were whole."""
        file = self._files.open(segment_path(self._folder, base))
        size = self._sizes[base]
        if file.size() != size:
            raise StorageError(
                f"compact {self._folder.name}",
                f"segment {base:020d} has {file.size()} bytes where {size} are expected",
            )
        position = 0
        while position < size:
            piece = file.pread(min(_PIECE_BYTES, size - position), position)
            if len(piece) >= HEADER_BYTES and len(piece) < (whole := parse(piece).size):
                piece = file.pread(min(whole, size - position), position)
            self._pause(len(piece))
            at = 0
            while at < len(piece):
                rest = len(piece) - at
                if at and (rest < HEADER_BYTES or rest < parse(piece, at).size):
                    break  # only the end of this piece: read on from here
                header = checked(piece, at)
                yield header, piece[at : at + header.size]
                at += header.size
            position += at

    # -- the first half: which offset of a key is the newest

    def _read_keys(self) -> None:
        plan = self._plan
        followings = [*self._bases[1:], plan.end]
        for base, following in zip(self._bases, followings, strict=True):
            if following <= plan.dirty:
                continue
            for header, batch in self._batches(base):
                if header.last_offset < plan.dirty:
                    continue
                room = plan.keys_max - len(self._newest)
                if header.record_count > room and len(self._newest):
                    return
                self._note_keys(header, batch)
                self._end = header.last_offset + 1
            # Where a repair has left a gap, the batches end before the segment does.
            self._end = following

    def _note_keys(self, header: BatchHeader, batch: bytes) -> None:
        if header.is_control or self._transactions.aborted(header):
            return
        found = _open(header, batch)
        if found is not None:
            for span in found[1]:
                if span.key is not None:
                    self._newest.put(span.key, header.base_offset + span.offset_delta)

    # -- the second half: writing

    def _write_group(self, bases: list[int], end: int) -> Cleaned:
        self._check_room(bases)
        writer = _Writer(self._files, self._folder, bases[0], self._plan.index_interval)
        for base in bases:
            for header, batch in self._batches(base):
                kept = self._filtered(header, batch)
                if kept is not None:
                    writer.write(header.base_offset, kept)
                    self._pause(len(kept))
                else:
                    writer.skip(header)
        replaced = checkpoints.load(self._files, self._folder, bases[-1])
        if replaced is not None and replaced.next_offset != end:
            replaced = None  # from before the segment's end: its last one could not be written
        segment = writer.finish(end, replaced)
        unmarked, self._unmarked = self._unmarked, []
        return Cleaned(
            bases,
            end,
            segment.size,
            segment.batches,
            segment.first_timestamp,
            segment.max_timestamp,
            segment.max_timestamp_offset,
            unmarked,
        )

    def _check_room(self, bases: list[int]) -> None:
        """A copy must never be what fills the disk that the broker writes to."""
        wanted = sum(self._sizes[base] for base in bases)
        if self._files.free_bytes(self._folder) < wanted + self._plan.free_bytes_min:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))

    def _filtered(self, header: BatchHeader, batch: bytes) -> bytes | None:
        """What stays of a batch; None if nothing does."""
        if header.base_offset >= self._end:
            return batch  # for another pass
        if header.is_control:
            return self._marker(header, batch)
        kept = self._judged(header, batch)
        if (
            kept is None
            and header.producer_id != NO_PRODUCER
            and header.base_offset in self._needed
        ):
            kept = emptied(header)
        if kept is not None:
            self._transactions.stays(header)
        return kept

    def _marker(self, header: BatchHeader, batch: bytes) -> bytes | None:
        """The end of a transaction goes some time after the last batch of it, as a tombstone does."""
        if self._transactions.needs(header):
            return batch
        horizon = delete_horizon(header)
        if horizon is None:
            horizon = self._plan.now + self._plan.delete_retention_ms
            try:
                data, records = unpacked(header, batch)
                batch = thinned(header, data, records, horizon)
            except InvalidBatchError:
                return batch  # another version wrote it
        elif self._plan.now >= horizon and header.base_offset < self._plan.dirty:
            # Only where a pass is on record: a start looks there for markers that are gone.
            if not commits(batch):
                self._unmarked.append(header.base_offset)
            return None
        self._wait_for(horizon)
        return batch

    def _wait_for(self, horizon: int) -> None:
        self._horizon = min(horizon, self._horizon or horizon)

    def _judged(self, header: BatchHeader, batch: bytes) -> bytes | None:
        """A batch without the records that do not count; None if none does."""
        if self._transactions.aborted(header):
            return None
        found = _open(header, batch)
        if found is None:
            self._unjudged = True
            return batch
        data, records = found
        horizon = delete_horizon(header)
        expired = horizon is not None and self._plan.now >= horizon and not self._unjudged
        kept = [span for span in records if self._stays(header, span, expired)]
        return self._thinned(header, batch, data, kept, horizon) if kept else None

    def _thinned(
        self, header: BatchHeader, batch: bytes, data: bytes, kept: list[Span], horizon: int | None
    ) -> bytes:
        """A batch of those records that stay, with a horizon if there are tombstones among them."""
        given: int | None = None
        if not all(span.has_value for span in kept):
            if horizon is None:
                horizon = given = self._plan.now + self._plan.delete_retention_ms
            if horizon > self._plan.now:
                self._wait_for(horizon)
        if len(kept) == header.record_count and given is None:
            return batch
        try:
            return thinned(header, data, kept, given)
        except InvalidBatchError:
            return batch  # its times make no sense; all of it stays

    def _stays(self, header: BatchHeader, span: Span, expired: bool) -> bool:
        if span.key is None or (expired and not span.has_value):
            return False
        return header.base_offset + span.offset_delta >= self._newest.get(span.key)


def _open(header: BatchHeader, batch: bytes) -> tuple[bytes, list[Span]] | None:
    """A batch's records; None if it cannot be opened.

    Such a one was refused by no check when the topic was not compacted yet.
    """
    try:
        return unpacked(header, batch)
    except InvalidBatchError:
        return None


class _Writer:
    """A compacted segment on its way to the disk."""

    def __init__(self, files: Files, folder: Path, base: int, index_interval: int) -> None:
        self._files = files
        self._folder = folder
        segment = Segment(files, folder, base, index_interval)
        segment.offsets = index.offset_index(files, cleaned_path(folder, base, "index"))
        segment.times = index.time_index(files, cleaned_path(folder, base, "timeindex"))
        segment.offsets.start()
        segment.times.start()
        self._segment = segment
        self._log = self._empty_file("log")
        self._synced = 0
        self._skipped_timestamp = NO_TIMESTAMP
        self._epoch = 0

    def _empty_file(self, part: str) -> File:
        path = cleaned_path(self._folder, self._segment.base_offset, part)
        file = self._files.open(path, create=True)
        file.truncate(0)
        return file

    def skip(self, header: BatchHeader) -> None:
        """A batch is left out."""
        if header.leader_epoch != self._epoch:
            # What stands for batches of two epochs could not tell where the first one ended.
            self._cover(header.base_offset)
            self._epoch = header.leader_epoch
        self._skipped_timestamp = max(self._skipped_timestamp, header.max_timestamp)

    def write(self, base_offset: int, batch: bytes) -> None:
        """A batch stays; offsets between it and the one before are covered first."""
        self._cover(base_offset)
        self._append(batch)

    def _cover(self, end: int) -> None:
        """Fill up to an offset with empty batches, which keep the time of what was there."""
        first = self._segment.next_offset
        while first < end:
            last = min(end - 1, first + OFFSET_DELTA_MAX)
            self._append(filler(first, last, self._skipped_timestamp, self._epoch))
            first = last + 1
        self._skipped_timestamp = NO_TIMESTAMP

    def _append(self, batch: bytes) -> None:
        segment = self._segment
        self._log.pwrite([batch], segment.size)
        header = parse(batch)
        self._epoch = header.leader_epoch
        segment.note(header, header.base_offset)
        if segment.size - self._synced >= COMPACTION_SYNC_BYTES:
            # Little by little: one long sync would hold up the broker's own.
            self._log.sync()
            self._synced = segment.size

    def finish(self, end: int, replaced: Checkpoint | None) -> Segment:
        """Write what belongs to the segment and sync all of it.

        Args:
            end: the offset up to which it stands for others.
            replaced: the checkpoint of the last of those. Its state of producers stays true; without
                it there is no checkpoint, and the next start reads the segment.
        """
        segment = self._segment
        self._cover(end)
        segment.seal()
        self._log.sync()
        for part in (segment.offsets, segment.times):
            part.write(part.snapshot())
            part.sync()
        file = self._empty_file("checkpoint")
        if replaced is not None:
            file.pwrite([checkpoints.encode(segment.checkpoint(replaced.state))], 0)
        file.sync()
        self._files.sync_folder(self._folder)
        return segment
