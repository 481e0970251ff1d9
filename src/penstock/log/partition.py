"""A partition: an ordered run of segments with one writer, and readers held to what is durable.

    start_offset <= durable_offset <= end_offset

Appends go to the operating system at once; a commit round (commit.py) makes them durable and moves
`durable_offset`, which is all that readers ever see. Topics that are not synced move it on append.

A partition goes offline when a write or sync fails in a way that leaves its file in doubt: it takes no
more data until the server is restarted and recovery has looked at the disk. Reading what was durable
before goes on.

This module may run compiled (setup.py), with the C types that stand in partition.pxd.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from penstock.errors import OfflineError
from penstock.files import (
    File,
    Files,
    lacks_descriptor,
    write_all_atomically,
    write_atomically,
)
from penstock.limits import (
    CHECKPOINT_BATCHES,
    CHECKPOINT_BYTES,
    MEMORY_SEGMENT_BYTES_MAX,
    ROOM_AHEAD_BYTES_MAX,
    ROOM_AHEAD_ROUND_BYTES_MIN,
)
from penstock.log import checkpoint as checkpoints
from penstock.log.memory_space import MemorySpace
from penstock.log.positions import PartitionId
from penstock.log.round_journal import Piece
from penstock.log.segment import NO_TIMESTAMP, RELATIVE_OFFSET_MAX, Segment
from penstock.log.settings import NEVER, Durability, LogSettings
from penstock.record.batch import CONTROL_FLAG, LENGTH_OVERHEAD, BatchHeader, patch
from penstock.record.marker import commits

_POINTS_KEPT = 16
_log = logging.getLogger(__name__)


class BatchObserver(Protocol):
    """State that is derived from the batches of one partition, such as its producers."""

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """A batch of records was appended, or found by recovery."""
        ...

    def ended(self, header: BatchHeader, base_offset: int, *, commit: bool) -> None:
        """The marker that ends a transaction was appended, or found by recovery."""
        ...

    def snapshot(self) -> bytes:
        """The state after the last batch that was appended."""
        ...

    def restore(self, state: bytes) -> None:
        """Replace the state by a snapshot; empty bytes mean none."""
        ...

    def needed(self) -> list[int]:
        """Base offsets of the batches whose headers the state could not be derived without."""
        ...

    def fences(self) -> Sequence[tuple[int, int]]:
        """Producers and epochs that only a marker tells."""
        ...

    def last_stable_offset(self, durable_offset: int) -> int:
        """The end of what is decided, at most durable_offset."""
        ...

    def aborted_between(self, start: int, end: int) -> Sequence[tuple[int, int, int]]:
        """Producer, first offset and marker of the aborted transactions with records in between."""
        ...

    def forget_markers(self, gone: Collection[int]) -> None:
        """The markers at these offsets are gone, and so is all that they ended."""
        ...


class Watcher(Protocol):
    """Somebody who waits for data."""

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        """More of the partition has become readable."""
        ...


class DurablePoint:
    """An end that readers may read up to: that of a segment as it is now."""

    def __init__(self, segment: Segment) -> None:
        self.offset = segment.next_offset
        self.segment = segment
        self.position = segment.size
        self.max_timestamp = segment.max_timestamp
        self.max_timestamp_offset = segment.max_timestamp_offset


class PendingCheckpoint(NamedTuple):
    """A checkpoint to be written once the data it speaks of is synced."""

    segment: Segment
    content: bytes
    offsets: bytes
    times: bytes
    final: bool


class Round:
    """What one commit round does for one partition. Built on the loop, run on the commit thread."""

    def __init__(
        self,
        partition: Partition,
        point: DurablePoint,
        files: list[File],
        folder: Path | None,
        checkpoints: list[PendingCheckpoint],
        needs_room: bool,
        kept_to: int,
    ) -> None:
        self.partition = partition
        self.point = point
        self.files = files
        self.folder = folder
        """The partition's folder, if segments were made in it."""
        self.checkpoints = checkpoints
        self.needs_room = needs_room
        """Whether room is to be allocated ahead in the active segment."""
        self.kept_to = kept_to
        """Up to where earlier rounds have made the active segment durable; -1 for a new one."""
        self.is_journaled = False
        """Whether the journal of rounds is synced for it, and not its file."""

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to do but to make durable what one file has got."""
        return self.kept_to >= 0 and len(self.files) == 1 and not self.writes

    @property
    def writes(self) -> bool:
        """Whether there is more to do than to sync."""
        return bool(self.checkpoints) or self.folder is not None or self.needs_room

    def read_new(self) -> Piece:
        """What the active segment has got since the last round; of a plain round."""
        segment = self.point.segment
        data = self.files[0].pread(self.point.position - self.kept_to, self.kept_to)
        return Piece(self.partition.identity, segment.base_offset, self.kept_to, data)


class Partition:
    """See the module."""

    def __init__(
        self,
        identity: PartitionId,
        topic: str,
        folder: Path,
        files: Files,
        settings: LogSettings,
        observer: BatchObserver,
        segments: list[Segment],
        start_offset: int,
        epoch: int,
        memory: MemorySpace | None = None,
    ) -> None:
        assert segments
        self.memory = memory
        """What counts its bytes, if they are kept in memory; None if they are on disk."""
        self.identity = identity
        self.topic = topic
        self.folder = folder
        self.settings = settings
        self.observer = observer
        self.segments = segments
        self.epoch = epoch
        """What batches are marked with that are appended from now on (epochs.py)."""
        self.start_offset = max(start_offset, segments[0].base_offset)
        self.watchers: set[Watcher] = set()
        self.offline: str | None = None
        self.settled_offset = segments[-1].base_offset
        """Segments below are sealed and synced, and no round has anything more to write for them."""
        self._files = files
        self._base_offsets = [segment.base_offset for segment in segments]
        # Sealed segments that no round has synced yet, with the observer's state at their end.
        self._sealed: list[tuple[Segment, bytes]] = []
        self._folder_dirty = False
        self._active = segments[-1]
        self._durable = self._point()
        self.durable_offset = self._durable.offset
        """The end of what readers may see: Kafka's high watermark."""
        # What the last round has made durable. Readers of a topic that is not synced see more.
        self._kept = self._durable
        # Where a reader that has read everything continues: it need not be searched for.
        self._recent_points = [self._durable]

    def __repr__(self) -> str:
        return f"{self.topic}-{self.identity.partition}"

    @property
    def settings(self) -> LogSettings:
        """What the topic's configuration says; may be changed at any time."""
        return self._settings

    @settings.setter
    def settings(self, settings: LogSettings) -> None:
        self._settings = settings
        self.synced = settings.durability is Durability.FSYNC
        """Whether appends are acknowledged, and shown to readers, only after a commit round."""
        self._segment_bytes = settings.segment_bytes
        if self.memory is not None:
            self._segment_bytes = min(settings.segment_bytes, MEMORY_SEGMENT_BYTES_MAX)
            if settings.retention_bytes != NEVER:
                # It never removes the segment that is written, and here that may be most of it.
                self._segment_bytes = min(self._segment_bytes, settings.retention_bytes)
        self._segment_ms = settings.segment_ms
        if settings.compact:
            # What is to be compacted in time must not stay in the active segment for longer.
            self._segment_ms = min(settings.segment_ms, settings.max_compaction_lag_ms)

    @property
    def active(self) -> Segment:
        """The segment that is written."""
        return self._active

    @property
    def end_offset(self) -> int:
        """The offset the next record will get."""
        return self._active.next_offset

    @property
    def durable_point(self) -> DurablePoint:
        """The end of what readers may see, with its place in the files."""
        return self._durable

    @property
    def needs_round(self) -> bool:
        """Whether a commit round has something to do here after an append.

        Topics that are not synced before the acknowledgement are synced when a checkpoint is due, so
        that recovery after a kill reads little of them too, and when they need room. Those in memory
        never are.
        """
        return (
            self.synced or bool(self._sealed) or self._next_room_end() > 0 or self._checkpoint_due()
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self.segments)

    # -- appending

    def append(self, header: BatchHeader, data: bytearray | memoryview) -> int:
        """Write one checked batch and return the offset its first record got.

        Raises:
            OfflineError: the partition takes no data.
            OSError: the write failed and was undone; nothing was appended.
        """
        if self.offline is not None:
            raise OfflineError(f"append to {self}", self.offline, "restart the server")
        active = self._active
        if self._must_roll(active, header):
            self._roll()
            active = self._active
        base_offset = active.next_offset
        patch(data, 0, base_offset, self.epoch)
        try:
            active.append(header, base_offset, data)
        except OSError:
            self._undo_write()
            raise
        if self.memory is not None:
            self.memory.take(len(data))
        if header.attributes & CONTROL_FLAG:
            self.observer.ended(header, base_offset, commit=commits(data))
        else:
            self.observer.appended(header, base_offset)
        if not self.synced:
            self._advance(self._point())
        return base_offset

    def _undo_write(self) -> None:
        try:
            self.active.file.truncate(self.active.size)
        except OSError as error:
            if lacks_descriptor(error):
                return  # the file was not even open, and nothing has been written
            self.fail(f"a failed write could not be undone: {error}")

    def _must_roll(self, active: Segment, header: BatchHeader) -> bool:
        if active.size == 0:
            return False
        return (
            active.size + header.length + LENGTH_OVERHEAD > self._segment_bytes
            or active.next_offset + header.last_offset_delta - active.base_offset
            > RELATIVE_OFFSET_MAX
            or (
                active.first_timestamp != NO_TIMESTAMP
                and header.max_timestamp - active.first_timestamp > self._segment_ms
            )
        )

    def _roll(self) -> None:
        """Seal the active segment and start the next; both are synced by the next round."""
        old = self.active
        segment = new_segment(self._files, self.folder, old.next_offset, self.settings)
        old.seal()
        self.segments.append(segment)
        self._active = segment
        self._base_offsets.append(segment.base_offset)
        if self.memory is not None:
            # Nothing of it goes to a disk, so that there is no round to wait for.
            self.settled_offset = segment.base_offset
            self._advance(self._point())
            return
        self._sealed.append((old, self.observer.snapshot()))
        self._folder_dirty = True

    def fail(self, reason: str) -> None:
        """Take the partition out of service for writing."""
        if self.offline is None:
            self.offline = reason
            _log.error("%s is offline for writing: %s", self, reason)

    # -- commit rounds

    def begin_round(self) -> Round:
        """What must be synced so that everything appended up to now is durable."""
        # Opens none: there may be no descriptor left, which says nothing about the data.
        segments = [*[segment for segment, _ in self._sealed], self._active]
        files = [file for segment in segments if (file := segment.written_file) is not None]
        folder = self.folder if self._folder_dirty else None
        pending: list[PendingCheckpoint] = []
        if self._sealed:
            pending += [self._pending(sealed, state, True) for sealed, state in self._sealed]
            self._sealed = []
        if self._checkpoint_due():
            pending.append(self._active_checkpoint())
        self._folder_dirty = False
        kept_to = self._kept.position if self._kept.segment is self._active else -1
        return Round(self, self._point(), files, folder, pending, self._asked_for_room(), kept_to)

    def _asked_for_room(self) -> bool:
        """Move `room_end` on if it is time; whether it was."""
        room_end = self._next_room_end()
        if room_end:
            self._active.room_end = room_end
        return room_end > 0

    def _next_room_end(self) -> int:
        """Where the room of a log in large pieces that has used up half of it is to end; or 0.

        A piece is what has come since the last round.
        """
        active = self._active
        piece = active.size - (self._kept.position if active is self._kept.segment else 0)
        ahead = min(active.size, ROOM_AHEAD_BYTES_MAX)
        if (
            self.memory is not None
            or piece < ROOM_AHEAD_ROUND_BYTES_MIN
            or active.room_end - active.size > ahead // 2
        ):
            return 0
        room_end = min(active.size + ahead, self._segment_bytes)
        return room_end if room_end > active.room_end else 0

    def finish_round(self, round_: Round, written: Sequence[PendingCheckpoint]) -> None:
        """The round was synced: readers may go on to its end."""
        for pending in written:
            if pending.final:
                pending.segment.offsets.seal()
                pending.segment.times.seal()
                pending.segment.let_go_of_files()
        self.settled_offset = round_.point.segment.base_offset
        self._kept = round_.point
        rolled = round_.point.segment is not self._durable.segment
        if round_.point.offset > self._durable.offset or (
            rolled and round_.point.offset == self._durable.offset
        ):
            self._advance(round_.point)

    def _checkpoint_due(self) -> bool:
        active = self._active
        return self.memory is None and (
            active.size - active.checkpointed_bytes >= CHECKPOINT_BYTES
            or active.batches - active.checkpointed_batches >= CHECKPOINT_BATCHES
        )

    def _active_checkpoint(self) -> PendingCheckpoint:
        active = self.active
        active.checkpointed_bytes = active.size
        active.checkpointed_batches = active.batches
        return self._pending(active, self.observer.snapshot(), False)

    def _pending(self, segment: Segment, state: bytes, final: bool) -> PendingCheckpoint:
        content = checkpoints.encode(segment.checkpoint(state))
        offsets, times = segment.offsets.snapshot(), segment.times.snapshot()
        return PendingCheckpoint(segment, content, offsets, times, final)

    def final_checkpoint(self) -> PendingCheckpoint | None:
        """What a clean stop writes for the active segment; None if it has been written."""
        active = self.active
        unchanged = active.batches == active.checkpointed_batches
        if unchanged and self._files.exists(
            checkpoints.checkpoint_path(self.folder, active.base_offset)
        ):
            return None
        return self._active_checkpoint()

    def _point(self) -> DurablePoint:
        return DurablePoint(self._active)

    def _advance(self, point: DurablePoint) -> None:
        old = self._durable
        self._durable = point
        self.durable_offset = point.offset
        self._recent_points.append(point)
        if len(self._recent_points) > _POINTS_KEPT:
            del self._recent_points[0]
        if self.watchers:
            same = point.segment is old.segment
            added = point.position - old.position if same else point.position
            for watcher in tuple(self.watchers):
                watcher.advanced(self, added)

    # -- where things are

    def segment_for(self, offset: int) -> tuple[int, Segment]:
        """The segment that holds offset, with its place in `segments`."""
        at = bisect_right(self._base_offsets, offset) - 1
        return at, self.segments[at]

    def commit_point(self, offset: int) -> DurablePoint | None:
        """The place of an offset at which a commit round ended, if it is a recent one."""
        for point in reversed(self._recent_points):
            if point.offset == offset:
                return point
        return None

    def readable_bytes(self, segment: Segment) -> int:
        """How far readers may read in a segment."""
        if segment is self._durable.segment:
            return self._durable.position
        return segment.size if segment.base_offset < self._durable.segment.base_offset else 0

    # -- the other end

    def advance_start(self, offset: int) -> None:
        """Make everything below offset unreadable; whole segments go with the next retention."""
        assert self.start_offset <= offset <= self.durable_offset
        self.start_offset = offset

    def expired_segments(self, now_ms: int) -> list[Segment]:
        """The oldest segments that retention, or a moved start, no longer keeps."""
        settings = self.settings
        excess = self.size_bytes - settings.retention_bytes
        expired: list[Segment] = []
        for segment, following in zip(self.segments, self.segments[1:], strict=False):
            if segment.base_offset >= self._durable.segment.base_offset:
                break
            dead = following.base_offset <= self.start_offset
            if settings.delete_old_segments:
                old = self._too_old(segment, now_ms)
                surplus = settings.retention_bytes != NEVER and excess >= segment.size
                dead = dead or old or surplus
            if not dead:
                break
            excess -= segment.size
            expired.append(segment)
        return expired

    def _too_old(self, segment: Segment, now_ms: int) -> bool:
        """Whether retention by time is over for a segment; never for one without timestamps."""
        limit = self.settings.retention_ms
        return (
            limit != NEVER
            and segment.max_timestamp != NO_TIMESTAMP
            and now_ms - segment.max_timestamp > limit
        )

    def roll_if_expired(self, now_ms: int) -> bool:
        """Roll an active segment that retention wants to remove whole, as Kafka does."""
        active = self.active
        settings = self.settings
        if active.size == 0 or self.offline is not None or not settings.delete_old_segments:
            return False
        if self._too_old(active, now_ms) or self.start_offset == active.next_offset:
            self._roll()
            return True
        return False

    def roll_if_overdue(self, now_ms: int) -> bool:
        """Roll an active segment that must be compacted by now; it is not as long as it is active."""
        active = self.active
        settings = self.settings
        if active.size == 0 or self.offline is not None or not settings.compact:
            return False
        if (
            active.first_timestamp == NO_TIMESTAMP
            or now_ms - active.first_timestamp <= settings.max_compaction_lag_ms
        ):
            return False
        self._roll()
        return True

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Put one segment in the place of several, which stand for the same offsets."""
        at = self.segments.index(old[0])
        assert self.segments[at : at + len(old)] == old
        assert old[-1].base_offset < self.settled_offset
        self.segments[at : at + len(old)] = [new]
        self._base_offsets[at : at + len(old)] = [new.base_offset]
        self._recent_points = [p for p in self._recent_points if p.segment not in old]

    def give_back_room(self) -> None:
        """What was allocated ahead is for others. Only for who writes: nobody may write meanwhile."""
        if self._active.room_end > self._active.size:
            self._active.give_back_room()

    def let_go_of_files(self) -> None:
        """Close what is open; nobody writes here any more."""
        for segment in self.segments:
            segment.let_go_of_files()

    def let_go_of_sealed_files(self) -> None:
        """Close the files of segments that nobody writes; their readers open them again."""
        for segment in self.segments:
            if segment.base_offset >= self.settled_offset:
                break
            segment.let_go_of_files()

    def drop(self, expired: list[Segment]) -> None:
        """Take the oldest segments out of sight; their files are the caller's to remove."""
        count = len(expired)
        assert self.segments[:count] == expired
        del self.segments[:count]
        del self._base_offsets[:count]
        self.start_offset = max(self.start_offset, self.segments[0].base_offset)
        self._recent_points = [p for p in self._recent_points if p.segment not in expired]
        if self.memory is not None:
            self.memory.give_back(sum(segment.size for segment in expired))


def new_segment(files: Files, folder: Path, base_offset: int, settings: LogSettings) -> Segment:
    """An empty segment with its file."""
    segment = Segment(files, folder, base_offset, settings.index_interval_bytes)
    segment.offsets.start()
    segment.times.start()
    segment.create()
    return segment


def write_checkpoint(files: Files, pending: PendingCheckpoint) -> None:
    """Bring the index files up to date and replace the checkpoint, all of it synced."""
    segment = pending.segment
    segment.offsets.write(pending.offsets)
    segment.offsets.sync()
    segment.times.write(pending.times)
    segment.times.sync()
    path = checkpoints.checkpoint_path(segment.folder, segment.base_offset)
    write_atomically(files, path, pending.content)


def write_checkpoints(files: Files, folder: Path, pending: list[PendingCheckpoint]) -> None:
    """The same for many segments below a folder, with two syncs in all instead of four for each.

    Their files are closed: there may be more segments than this process may have files open.
    """
    contents: dict[Path, bytes] = {}
    for one in pending:
        one.segment.offsets.write(one.offsets)
        one.segment.times.write(one.times)
        one.segment.let_go_of_files()
        path = checkpoints.checkpoint_path(one.segment.folder, one.segment.base_offset)
        contents[path] = one.content
    write_all_atomically(files, folder, contents)
