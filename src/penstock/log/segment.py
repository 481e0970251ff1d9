"""One segment: a file of record batches and its two sparse indexes, named by its first offset.

A segment knows where batches stand; it does not know what is durable or who may read, which is the
partition's business. Its file is opened when it is first needed.

This module may run compiled (setup.py), with the C types that stand in segment.pxd.
"""

from __future__ import annotations

import re
from pathlib import Path

from penstock.errors import DamagedLogError, StorageError
from penstock.files import Buffer, File, Files
from penstock.log import index
from penstock.log.checkpoint import Checkpoint, checkpoint_path
from penstock.record.batch import HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, BatchHeader, parse

NO_TIMESTAMP = -1
_LOG_NAME = re.compile(r"[0-9]{20}\.log")
_OFFSET_MAX = 2**62  # no log grows that long; sums of offsets stay within 63 bits
RELATIVE_OFFSET_MAX = 2**31 - 1  # what the index can say of a batch's place in its segment


def segment_path(folder: Path, base_offset: int, suffix: str = "log") -> Path:
    """The file of a segment; Kafka's naming."""
    return folder / f"{base_offset:020d}.{suffix}"


def base_of(name: str) -> int | None:
    """The first offset of the segment in a file of this name; None if it is not one of ours."""
    if not _LOG_NAME.fullmatch(name) or int(name[:20]) > _OFFSET_MAX:
        return None
    return int(name[:20])


class Segment:
    """Append at the end, look up by offset or time."""

    def __init__(self, files: Files, folder: Path, base_offset: int, index_interval: int) -> None:
        self._files = files
        self._file: File | None = None
        self._interval = index_interval
        self._bytes_since_entry = 0
        self._indexed_timestamp = NO_TIMESTAMP
        self.has_its_names = True
        self.room_end = 0
        """Up to where this process has asked for room on the disk."""
        self.folder = folder
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.batches = 0
        self.checkpointed_bytes = 0
        self.checkpointed_batches = 0
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.offsets = index.offset_index(files, segment_path(folder, base_offset, "index"))
        self.times = index.time_index(files, segment_path(folder, base_offset, "timeindex"))

    @property
    def file(self) -> File:
        """The open file."""
        if self._file is None:
            path = segment_path(self.folder, self.base_offset)
            self._file = self._files.open(path)
        return self._file

    @property
    def written_file(self) -> File | None:
        """The file, if it is open; one that is not has nothing in it that waits for a sync."""
        return self._file

    def create(self) -> None:
        """Make the file of a new segment."""
        path = segment_path(self.folder, self.base_offset)
        self._file = self._files.open(path, create=True)
        if self._file.size() != 0:
            raise StorageError(f"start segment {path}", "a file of that name holds data already")

    def adopt(self, log: File, offsets: File, times: File) -> None:
        """Use open files that are about to get this segment's names, which others have until then."""
        self.has_its_names = False
        self._file = log
        self.offsets.adopt(offsets)
        self.times.adopt(times)

    def let_go_of_files(self) -> None:
        """Close what is open, unless somebody still reads it; it is opened again when needed."""
        if self.has_its_names:
            self._file = None
            self.offsets.let_go_of_file()
            self.times.let_go_of_file()

    # -- writing

    def append(self, header: BatchHeader, base_offset: int, data: Buffer) -> None:
        """Write a batch at the end; header is as it came, base_offset as it was given."""
        file = self._file if self._file is not None else self.file
        file.pwrite((data,), self.size)
        self.note(header, base_offset)

    def note(self, header: BatchHeader, base_offset: int) -> None:
        """Account for a batch that stands at the end of what is known so far."""
        last_offset = base_offset + header.last_offset_delta
        if self._bytes_since_entry > self._interval:
            self.offsets.add(last_offset - self.base_offset, self.size)
            self._note_time()
            self._bytes_since_entry = 0
        size = header.length + LENGTH_OVERHEAD
        self._bytes_since_entry += size
        self.size += size
        self.batches += 1
        self.next_offset = last_offset + 1
        if self.first_timestamp == NO_TIMESTAMP:
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset

    def follows(self, header: BatchHeader) -> bool:
        """Whether the offsets of a batch are those that come next, and fit the index."""
        room = RELATIVE_OFFSET_MAX - (self.next_offset - self.base_offset)
        return header.base_offset == self.next_offset and 0 <= header.last_offset_delta <= room

    def reserve_room(self) -> None:
        """Have the disk allocate up to `room_end`, so that it need not with every sync."""
        file, start = self._file, self.size  # this is the commit thread: both may change meanwhile
        if file is not None and self.room_end > start:
            file.reserve(self.room_end - start, start)

    def give_back_room(self) -> None:
        """Nothing is written here any more: what was reserved is free for others."""
        self.room_end = 0
        if self._file is not None:
            self._file.give_back()

    def next_header(self, end: int) -> BatchHeader | None:
        """What stands after what is known so far, if it can be a batch that ends before end."""
        data = self.file.pread(HEADER_BYTES, self.size)
        if len(data) < HEADER_BYTES:
            return None
        header = parse(data)
        whole = header.magic == MAGIC and HEADER_BYTES <= header.size <= end - self.size
        return header if whole and self.follows(header) else None

    def _note_time(self) -> None:
        if self.max_timestamp > self._indexed_timestamp:
            self.times.add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self._indexed_timestamp = self.max_timestamp

    def seal(self) -> None:
        """No batch follows: the time index gets its last entry."""
        self._note_time()

    # -- what is known, kept

    def checkpoint(self, state: bytes) -> Checkpoint:
        """Everything known now, with an observer's state."""
        offsets, times = self.offsets.snapshot(), self.times.snapshot()
        return Checkpoint(
            next_offset=self.next_offset,
            position=self.size,
            max_timestamp=self.max_timestamp,
            max_timestamp_offset=self.max_timestamp_offset,
            first_timestamp=self.first_timestamp,
            batches=self.batches,
            index_bytes=len(offsets),
            index_checksum=self.offsets.checksum(),
            time_index_bytes=len(times),
            time_index_checksum=self.times.checksum(),
            state=state,
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over what a checkpoint says; the indexes are the caller's to start."""
        self.next_offset = checkpoint.next_offset
        self.size = checkpoint.position
        self.batches = checkpoint.batches
        self.checkpointed_bytes = self.size
        self.checkpointed_batches = self.batches
        self.first_timestamp = checkpoint.first_timestamp
        self.max_timestamp = checkpoint.max_timestamp
        self.max_timestamp_offset = checkpoint.max_timestamp_offset

    # -- reading

    def floor(self, offset: int) -> int:
        """A position at or before the batch that holds offset."""
        self._rebuild_damaged_indexes()
        entry = self.offsets.floor(offset - self.base_offset)
        return entry[1] if entry else 0

    def offset_after(self, position: int) -> int:
        """An offset above those of all batches that begin before the position."""
        self._rebuild_damaged_indexes()
        entry = self.offsets.ceiling_of_last(position)
        return self.base_offset + entry[0] if entry else self.next_offset

    def floor_time(self, timestamp: int) -> int:
        """A position at or before the first batch that is not older than timestamp."""
        self._rebuild_damaged_indexes()
        entry = self.times.floor(timestamp - 1)
        return self.floor(self.base_offset + entry[1]) if entry else 0

    def _rebuild_damaged_indexes(self) -> None:
        """An index is a cache: one that is not what its checkpoint says is made anew, in memory."""
        if not (self.offsets.damaged() or self.times.damaged()):
            return
        # Beside this one, which stays as it is if the batches turn out to be damaged too.
        rebuilt = Segment(self._files, self.folder, self.base_offset, self._interval)
        rebuilt.offsets.start()
        rebuilt.times.start()
        while rebuilt.size < self.size:
            header = rebuilt.next_header(self.size)
            if header is None:
                raise DamagedLogError(
                    f"rebuild the index of {segment_path(self.folder, self.base_offset)}",
                    f"no batch at byte {rebuilt.size}",
                    "run `penstock log verify` on the data folder",
                )
            rebuilt.note(header, header.base_offset)
        self.offsets, self.times = rebuilt.offsets, rebuilt.times

    # -- removal

    def paths(self) -> list[Path]:
        """All files of this segment that exist; the log itself last.

        Whoever removes them in this order never leaves an index or checkpoint that a later segment
        of the same name could mistake for its own.
        """
        names = ("index", "timeindex")
        paths = [segment_path(self.folder, self.base_offset, name) for name in names]
        paths.append(checkpoint_path(self.folder, self.base_offset))
        paths.append(segment_path(self.folder, self.base_offset))
        return [path for path in paths if self._files.exists(path)]
