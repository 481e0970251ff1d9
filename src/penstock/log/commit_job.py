"""What a commit round does on the commit thread: sync, and write what is due. Knows no loop."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from penstock.files import File, Files, SyncAllError, sync_all
from penstock.limits import ROOM_AHEAD_FREE_BYTES_MIN
from penstock.log.partition import Partition, PendingCheckpoint, Round, write_checkpoint
from penstock.log.positions import PartitionId, Position, Positions

_log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """What the commit thread reports."""

    failed: dict[Partition, OSError]
    written: dict[Partition, list[PendingCheckpoint]]
    metadata_error: OSError | None = None
    everything_failed: OSError | None = None
    """A sync of the whole file system failed: nothing written and not yet synced is certain."""


class CommitJob:
    """Works on one data folder, one round at a time."""

    def __init__(self, files: Files, folder: Path, positions: Positions) -> None:
        self._files = files
        self._folder = folder
        self._positions = positions

    def sync_files(self, files: Sequence[File], together: bool) -> list[OSError | None]:
        """A round that has nothing to write: the errors of its files, or of all of them together."""
        if together:
            return [self._sync_all()]
        return [_error_of(file.sync) for file in files]

    def run(
        self,
        rounds: Sequence[Round],
        together: bool,
        metadata: Sequence[Callable[[], None]],
        ends: Mapping[PartitionId, Position] | None,
        moved: Mapping[PartitionId, Position],
        *,
        shared: File | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> Outcome:
        """A round with everything that can be in one.

        Args:
            rounds: what each partition needs.
            together: whether one sync of the file system serves for all their files.
            metadata: changes that must be durable before the data, in this order.
            ends: durable ends of earlier rounds, to be recorded; None if that is not due.
            moved: new starts, to be recorded once the data is synced.
            shared: the journal of rounds, for the rounds that are written to it.
            prepare: makes that journal for later rounds. Without it they take longer, and no more.
        """
        if ends is not None:
            self._positions.record_ends(ends)
        outcome = self._sync(rounds, together, metadata, shared)
        if prepare is not None and isinstance(error := _error_of(prepare), SyncAllError):
            outcome = outcome._replace(everything_failed=error)
        self._reserve_room([round_ for round_ in rounds if round_.needs_room])
        if moved:
            failed = {partition.identity for partition in outcome.failed}
            self._positions.record({m: at for m, at in moved.items() if m not in failed})
            if self._positions.failed is not None:
                return outcome._replace(metadata_error=self._positions.failed)
        return outcome

    def _sync(
        self,
        rounds: Sequence[Round],
        together: bool,
        metadata: Sequence[Callable[[], None]],
        shared: File | None,
    ) -> Outcome:
        metadata_error = next((e for change in metadata if (e := _error_of(change))), None)
        everything_failed: OSError | None = None
        if isinstance(metadata_error, SyncAllError):
            everything_failed = metadata_error
        if together and everything_failed is None:
            everything_failed = self._sync_all()
        shared_error = _error_of(shared.sync) if shared is not None else None
        outcome = Outcome({}, {}, metadata_error, everything_failed)
        for round_ in rounds:
            error = outcome.everything_failed
            if error is None and round_.is_journaled:
                error = shared_error
            elif error is None:
                finish = partial(self._finish, round_, together, outcome.written)
                error = _error_of(finish)
            if isinstance(error, SyncAllError):
                outcome = outcome._replace(everything_failed=error)
            if error is not None:
                outcome.failed[round_.partition] = error
        return outcome

    def _finish(
        self, round_: Round, together: bool, written: dict[Partition, list[PendingCheckpoint]]
    ) -> None:
        """All that a partition's round is for; together means that its files are synced already."""
        if not together:
            self._sync_one(round_)
        if round_.checkpoints:
            written[round_.partition] = self._checkpoint(round_)

    def _reserve_room(self, rounds: Sequence[Round]) -> None:
        """Allocate ahead where there is plenty. Without it writing costs more, and nothing else."""
        with suppress(OSError):
            for round_ in rounds:
                segment = round_.point.segment
                wanted = segment.room_end - segment.size
                if self._files.free_bytes(self._folder) - wanted >= ROOM_AHEAD_FREE_BYTES_MIN:
                    segment.reserve_room()

    def _sync_all(self) -> OSError | None:
        return _error_of(partial(sync_all, self._files, self._folder))

    def _sync_one(self, round_: Round) -> None:
        for file in round_.files:
            file.sync()
        if round_.folder is not None:
            self._files.sync_folder(round_.folder)

    def _checkpoint(self, round_: Round) -> list[PendingCheckpoint]:
        """Write what is due. A checkpoint that fails costs time at recovery and nothing else."""
        written: list[PendingCheckpoint] = []
        for pending in round_.checkpoints:
            try:
                write_checkpoint(self._files, pending)
            except SyncAllError:
                raise
            except OSError as error:
                _log.warning("%s: checkpoint not written: %s", round_.partition, error)
            else:
                written.append(pending)
            if pending.final:
                with suppress(OSError):  # as in a stop: the disk keeps what nobody needs
                    pending.segment.give_back_room()
        return written


def guarded(job: Callable[[], Outcome]) -> Outcome:
    """Do a round that always ends: after a mistake of ours nobody knows what it leaves on the disk."""
    try:
        return job()
    except Exception as error:
        _log.exception("a commit round failed")
        failure = OSError(errno.EIO, f"a commit round failed: {error!r}")
        return Outcome({}, {}, everything_failed=failure)


def _error_of(action: Callable[[], None]) -> OSError | None:
    try:
        action()
    except OSError as error:
        return error
    return None
