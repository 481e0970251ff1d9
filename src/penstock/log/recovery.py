"""Opens a partition's folder, and after a crash finds out how much of it can be believed.

Below the durable end that the journal of positions knows, every byte must be what was written: if it
is not, DamagedLogError refuses this partition, and `penstock log repair` is the owner's decision.
Above it, the first batch that is not whole begins a torn tail: its bytes are copied to quarantine,
then cut. Nothing is ever guessed, and nothing is deleted.

Segments that a checkpoint vouches for are not read again. What stands above the durable end is written
once more before anyone may read it: after a failed sync the page cache can hold bytes that the disk
does not, and only dirty pages are synced. The same goes for what the journal of rounds has of a
segment; what a segment lacks of it is brought back. Where a piece of that journal begins the log was
durable before, so that whatever is missing below it is damage as well.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.crc32c import crc32c
from penstock.errors import DamagedLogError
from penstock.files import Files
from penstock.limits import MIB
from penstock.log import checkpoint as checkpoints
from penstock.log import compacted
from penstock.log import swap as swaps
from penstock.log.checkpoint import Checkpoint
from penstock.log.earlier_rounds import continuation, proven_end
from penstock.log.names import unused
from penstock.log.partition import BatchObserver, new_segment
from penstock.log.positions import Position
from penstock.log.reading import walk
from penstock.log.round_journal import Piece
from penstock.log.segment import Segment, base_of, segment_path
from penstock.log.settings import LogSettings
from penstock.record.batch import HEADER_BYTES, BatchHeader, InvalidBatchError, checked, parse
from penstock.record.marker import commits

_PIECE_BYTES = 1 * MIB
_log = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """What recovery found."""

    segments: list[Segment]
    scanned_bytes: int
    cut_bytes: int


class _Break(NamedTuple):
    """Where a segment stops being whole batches, and why."""

    position: int
    cause: str


class _NoObserver:
    def appended(self, header: BatchHeader, base_offset: int) -> None:
        pass

    def ended(self, header: BatchHeader, base_offset: int, *, commit: bool) -> None:
        pass


class Recovery:
    """One partition's folder, from names to segments."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        quarantine: Path,
        settings: LogSettings,
        known: Position,
        observer: BatchObserver,
        journaled: Sequence[Piece] = (),
    ) -> None:
        self._files = files
        self._folder = folder
        self._quarantine = quarantine
        self._settings = settings
        self._observer = observer
        self._journaled = journaled
        self._written_again_from = known.end
        self._known = known._replace(end=max(known.end, proven_end(journaled)))
        self._compacted = 0
        self._scanned = 0
        self._cut = 0
        self._rewrite_from: tuple[Segment, int] | None = None

    def run(self, *, clean: bool) -> Recovered:
        """Open the folder.

        Args:
            clean: the server that wrote it stopped in order, so that nothing is unsynced.

        Raises:
            DamagedLogError: acknowledged bytes are missing or changed.
        """
        names = self._tidy()
        self._compacted = compacted.reach(self._files, self._folder)
        bases = [base for name in names if (base := base_of(name)) is not None]
        bases = self._drop_retired(bases)
        segments = [
            Segment(self._files, self._folder, base, self._settings.index_interval_bytes)
            for base in bases
        ]
        if not segments:
            segments = [self._first_segment()]
        else:
            sizes = [names[f"{base:020d}.log"] for base in bases]
            segments = self._load(segments, sizes)
        self._check_end(segments[-1])
        self._forget_unmarked(segments)
        if not clean:
            self._write_again(segments)
        return Recovered(segments, self._scanned, self._cut)

    # -- names

    def _tidy(self) -> dict[str, int]:
        """Finish what a crash interrupted, and return the names that count."""
        for swap in swaps.pending(self._files, self._folder):
            swaps.complete(self._files, self._folder, swap)
        names = self._files.list(self._folder)
        logs = {name[:20] for name in names if base_of(name) is not None}
        for name in list(names):
            stem, _, suffix = name.partition(".")
            orphan = suffix in ("index", "timeindex", "checkpoint") and stem not in logs
            if orphan or name.endswith((".tmp", ".deleted", swaps.CLEANED)):
                self._files.remove(self._folder / name)
                del names[name]
        return names

    def _drop_retired(self, bases: list[int]) -> list[int]:
        """Remove segments that lie wholly below the recorded start: a removal did not get to them."""
        while len(bases) > 1 and bases[1] <= self._known.start:
            for path in Segment(self._files, self._folder, bases[0], 0).paths():
                self._files.remove(path)
            bases = bases[1:]
        return bases

    def _first_segment(self) -> Segment:
        if self._known.end > 0:
            raise self._damaged(
                0, f"all segments are missing, {self._known.end} records were there"
            )
        segment = new_segment(self._files, self._folder, 0, self._settings)
        self._files.sync_folder(self._folder)
        return segment

    # -- contents

    def _load(self, segments: list[Segment], sizes: list[int]) -> list[Segment]:
        found = [checkpoints.load(self._files, self._folder, s.base_offset) for s in segments]
        # A checkpoint is written after its data was synced, so it proves a durable end as well.
        vouched = max((c.next_offset for c in found if c), default=0)
        self._known = self._known._replace(end=max(self._known.end, vouched))
        self._written_again_from = max(self._written_again_from, vouched)
        usable = [
            checkpoint if checkpoint and checkpoint.position <= size else None
            for checkpoint, size in zip(found, sizes, strict=True)
        ]
        newest = max((i for i, checkpoint in enumerate(usable) if checkpoint), default=-1)
        if any(segment.base_offset < self._compacted for segment in segments[newest + 1 :]):
            # What ended a transaction that the state has as open may be gone from what follows.
            usable, newest = [None] * len(segments), -1
        state = usable[newest]
        self._observer.restore(state.state if state else b"")
        for at, (segment, checkpoint, size) in enumerate(zip(segments, usable, sizes, strict=True)):
            last = at == len(segments) - 1
            following = None if last else segments[at + 1].base_offset
            if checkpoint and self._sealed_whole(checkpoint, size, following):
                segment.restore(checkpoint)
                segment.offsets.expect(checkpoint.index_bytes, checkpoint.index_checksum)
                segment.times.expect(checkpoint.time_index_bytes, checkpoint.time_index_checksum)
                continue
            broken = self._scan(segment, checkpoint, size, observe=at >= newest)
            broken = self._bring_back(segment, broken, observe=at >= newest)
            if broken is None and following not in (None, segment.next_offset):
                broken = _Break(segment.size, f"the next segment begins at {following}")
            if broken is not None:
                self._cut_after(segment, broken, segments[at + 1 :])
                return segments[: at + 1]
        return segments

    @staticmethod
    def _sealed_whole(checkpoint: Checkpoint, size: int, following: int | None) -> bool:
        return checkpoint.position == size and checkpoint.next_offset == following

    def _scan(
        self, segment: Segment, checkpoint: Checkpoint | None, size: int, *, observe: bool
    ) -> _Break | None:
        """Check every batch that no checkpoint vouches for."""
        if checkpoint is None or not self._resume(segment, checkpoint):
            segment.offsets.start()
            segment.times.start()
            if checkpoint is not None and observe:
                # The indexes are rebuilt from the start, the observer goes on from its state.
                self._note_only(segment, checkpoint.position)
        return self._scan_on(segment, size, observe=observe)

    def _scan_on(self, segment: Segment, size: int, *, observe: bool) -> _Break | None:
        """The same from where it has got to."""
        observer = self._observer if observe else _NoObserver()
        self._scanned += size - segment.size
        while segment.size < size:
            piece = self._piece(segment, size)
            if not piece:
                return _Break(segment.size, "the file ends early")
            at = 0
            while at < len(piece):
                try:
                    header = checked(piece, at)
                except InvalidBatchError as error:
                    if at > 0 and len(piece) - at < size - segment.size:
                        break  # only the end of this piece: read on from here
                    return _Break(segment.size, error.cause)
                if not segment.follows(header):
                    cause = f"offset {header.base_offset} where {segment.next_offset} should be"
                    return _Break(segment.size, cause)
                self._note_durable_end(segment)
                segment.note(header, header.base_offset)
                if header.is_control:
                    observer.ended(header, header.base_offset, commit=commits(piece, at))
                else:
                    observer.appended(header, header.base_offset)
                at += header.size
        return None

    def _bring_back(
        self, segment: Segment, broken: _Break | None, *, observe: bool
    ) -> _Break | None:
        """Add what the journal of rounds has and the segment lacks, and have all of that on the disk."""
        pieces = [piece for piece in self._journaled if piece.segment == segment.base_offset]
        if not pieces:
            return broken
        while (found := continuation(pieces, segment.size, segment.follows)) is not None:
            position = segment.size
            segment.file.pwrite([found], position)
            broken = self._scan_on(segment, segment.file.size(), observe=observe)
            if segment.size == position:
                break
        for piece in pieces:
            # Pieces of what compaction or a repair has put into the place of the segment differ.
            if segment.file.pread(len(piece.data), piece.position) == piece.data:
                segment.file.pwrite([piece.data], piece.position)
        segment.file.sync()
        return broken

    def _piece(self, segment: Segment, size: int) -> bytes:
        piece = segment.file.pread(min(_PIECE_BYTES, size - segment.size), segment.size)
        if len(piece) >= HEADER_BYTES:
            whole = parse(piece).size
            if len(piece) < whole <= size - segment.size:
                piece = segment.file.pread(whole, segment.size)
        return piece

    def _resume(self, segment: Segment, checkpoint: Checkpoint) -> bool:
        """Start from a checkpoint, if the index files are those it speaks of."""
        offsets = segment.offsets.load()[: checkpoint.index_bytes]
        times = segment.times.load()[: checkpoint.time_index_bytes]
        # Two for every partition that a start would keep open, and only a checkpoint needs again.
        segment.offsets.let_go_of_file()
        segment.times.let_go_of_file()
        if (len(offsets), crc32c(offsets)) != (checkpoint.index_bytes, checkpoint.index_checksum):
            return False
        if (len(times), crc32c(times)) != (
            checkpoint.time_index_bytes,
            checkpoint.time_index_checksum,
        ):
            return False
        segment.restore(checkpoint)
        segment.offsets.start(offsets, flushed=len(offsets))
        segment.times.start(times, flushed=len(times))
        return True

    def _note_only(self, segment: Segment, position: int) -> None:
        """Rebuild the indexes up to a position that a checkpoint vouches for."""
        while segment.size < position:
            header = segment.next_header(position)
            if header is None:
                raise self._damaged(segment.next_offset, f"no batch at byte {segment.size}")
            segment.note(header, header.base_offset)

    def _forget_unmarked(self, segments: list[Segment]) -> None:
        """A checkpoint may speak of aborted transactions of which compaction has left nothing."""
        told = self._observer.aborted_between(0, self._compacted) if self._compacted else ()
        gone = [
            marker
            for _, _, marker in told
            if marker < self._compacted and not _has_marker(segments, marker)
        ]
        self._observer.forget_markers(gone)

    def _note_durable_end(self, segment: Segment) -> None:
        if self._rewrite_from is None and segment.next_offset >= self._written_again_from:
            self._rewrite_from = (segment, segment.size)

    # -- the tail

    def _check_end(self, last: Segment) -> None:
        if last.next_offset < self._known.end:
            missing = self._known.end - last.next_offset
            raise self._damaged(last.next_offset, f"{missing} acknowledged records are missing")

    def _cut_after(self, segment: Segment, broken: _Break, later: list[Segment]) -> None:
        """Put aside what follows the last whole batch, if none of it can have been acknowledged."""
        if segment.next_offset < self._known.end:
            where = f"segment {segment.base_offset:020d}, byte {broken.position}"
            raise self._damaged(segment.next_offset, f"{where}: {broken.cause}")
        self._files.make_folder(self._quarantine)
        self._files.sync_folder(self._quarantine.parent)
        tail = segment.file.size() - broken.position
        if tail:
            kept = self._keep_tail(segment, broken.position)
            segment.file.truncate(broken.position)
            segment.file.sync()
            self._cut += tail
            _log.warning(
                "%s: cut a torn tail of %d bytes at offset %d (%s); kept as %s. "
                "Records above offset %d were possibly acknowledged if the journal of positions lags",
                self._folder.name,
                tail,
                segment.next_offset,
                broken.cause,
                kept.name,
                segment.next_offset,
            )
        for following in later:
            self._quarantine_segment(following)
        self._files.sync_folder(self._folder)

    def _keep_tail(self, segment: Segment, position: int) -> Path:
        path = self._aside(f"-{segment.next_offset:020d}.tail")
        copy = self._files.open(path, create=True)
        size = segment.file.size()
        at = position
        try:
            while at < size:
                piece = segment.file.pread(_PIECE_BYTES, at)
                copy.pwrite([piece], at - position)
                at += len(piece)
            copy.sync()
        except OSError:
            # Half of it is of no use, and would keep what little room there is.
            with suppress(OSError):
                copy.truncate(0)
                self._files.remove(path)
            raise
        self._files.sync_folder(self._quarantine)
        return path

    def _quarantine_segment(self, segment: Segment) -> None:
        path = segment_path(self._folder, segment.base_offset)
        self._cut += segment.file.size()
        self._files.rename(path, self._aside(f"-{path.name}"))
        for other in segment.paths():
            self._files.remove(other)
        _log.warning("%s: segment %s is above the cut; kept aside", self._folder.name, path.name)

    def _aside(self, suffix: str) -> Path:
        return unused(self._files, self._quarantine, self._folder.name, suffix)

    def _write_again(self, segments: list[Segment]) -> None:
        """Make what stands above the durable end really durable, before anyone reads it."""
        if self._rewrite_from is None:
            return
        first, position = self._rewrite_from
        for segment in segments[segments.index(first) :]:
            while position < segment.size:
                piece = segment.file.pread(min(_PIECE_BYTES, segment.size - position), position)
                segment.file.pwrite([piece], position)
                position += len(piece)
            segment.file.sync()
            position = 0
        self._files.sync_folder(self._folder)

    def _damaged(self, offset: int, cause: str) -> DamagedLogError:
        return DamagedLogError(
            f"open {self._folder.name}",
            f"damage at offset {offset}, below the durable end {self._known.end}: {cause}",
            f"restore the folder, or run `penstock log repair` on {self._folder}",
        )


def _has_marker(segments: list[Segment], offset: int) -> bool:
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if at < 0:
        return False
    segment = segments[at]
    for _, header in walk(segment, segment.floor(offset), segment.size):
        if header.last_offset >= offset:
            return header.base_offset == offset and header.is_control
    return False
