"""Group commit: one round of syncing in flight, shared by everything that waits. No timer.

A round starts as soon as something waits and no round runs. Whatever is appended while it runs waits
for the next one, so that batching grows with the load and an idle log answers at once.

    idle --request--> scheduled --end of the loop's turn--> running --done--> idle or scheduled

The loop builds a round and finishes it; only the syncing in between runs on a thread. Nearly every
round has nothing but files to sync (`sync`); one that must also write something is a job (`run`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from penstock.files import File, Files, SyncAllError, sync_all
from penstock.limits import SYNC_ONE_BY_ONE_MAX
from penstock.log.partition import Partition, PendingCheckpoint, Round, write_checkpoint
from penstock.log.positions import PartitionId, Position, Positions

_log = logging.getLogger(__name__)

Job = Callable[[], "Outcome"]
Done = Callable[["Outcome"], None]
SyncsDone = Callable[[Sequence[OSError | None]], None]
SyncFiles = Callable[[Sequence[File], bool, SyncsDone], None]
"""Sync files each by itself, or together by one sync of their file system (then one error tells)."""
_T = TypeVar("_T")


class Run(Protocol):
    """Takes work to the commit thread."""

    def __call__(self, job: Callable[[], _T], done: Callable[[_T], None], /) -> None:
        """Run job there, then done(its result) here."""
        ...


Defer = Callable[[Callable[[], None]], object]


class Outcome(NamedTuple):
    """What the commit thread reports."""

    failed: dict[Partition, OSError]
    written: dict[Partition, list[PendingCheckpoint]]
    metadata_error: OSError | None = None
    everything_failed: OSError | None = None
    """A sync of the whole file system failed: nothing written and not yet synced is certain."""


class GroupCommit:
    """See the module.

    Args:
        files, folder: what is synced.
        positions: the journal of durable ends.
        run: takes a job to the thread and its outcome back.
        defer: calls at the end of the loop's turn.
        sync: the same as a job that syncs, but faster; where there is none, such jobs are run.
    """

    def __init__(
        self,
        files: Files,
        folder: Path,
        positions: Positions,
        *,
        run: Run,
        defer: Defer,
        sync: SyncFiles | None = None,
    ) -> None:
        self._files = files
        self._folder = folder
        self._positions = positions
        self._run = run
        self._defer = defer
        self._sync_files = sync or self._sync_by_job
        self._dirty: dict[Partition, None] = {}
        self._metadata: list[Callable[[], None]] = []
        self._moved_starts: set[Partition] = set()
        self._waiting: list[Callable[[], None]] = []
        self._unrecorded: dict[PartitionId, Position] = {}
        self._scheduled = False
        self._running = False
        self.rounds = 0
        self.metadata_failed: OSError | None = None
        self.on_everything_failed: Callable[[OSError], None] = lambda error: None
        """Told when nothing that was not synced can be trusted, to take every partition offline."""

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not (self._running or self._scheduled)

    # -- what a round is asked for

    def appended(self, partition: Partition) -> None:
        """The partition has bytes that are not synced."""
        self._dirty[partition] = None
        self._request()

    def metadata_changed(self, *syncs: Callable[[], None]) -> None:
        """Something else must be synced by the next round, in this order, before partitions."""
        self._metadata.extend(syncs)
        self._request()

    def start_moved(self, partition: Partition) -> None:
        """A partition begins later now; the next round records it for good."""
        self._moved_starts.add(partition)
        # Synced as well: a start must never be recorded above an end that could still be lost.
        self._dirty[partition] = None
        self._request()

    def after(self, callback: Callable[[], None]) -> None:
        """Call back when everything asked for up to now has been synced, or has failed."""
        self._waiting.append(callback)
        self._request()

    def forget(self, partition: Partition) -> None:
        """A deleted partition needs no round any more."""
        self._dirty.pop(partition, None)
        self._moved_starts.discard(partition)
        self._unrecorded.pop(partition.identity, None)

    def record_ends(self) -> None:
        """Have durable ends recorded that no round has recorded yet. Called now and then."""
        if self._unrecorded:
            self._request()

    def _request(self) -> None:
        if not (self._running or self._scheduled):
            self._scheduled = True
            self._defer(self._start)

    # -- one round

    def _start(self) -> None:
        self._scheduled = False
        self._running = True
        if self.metadata_failed is not None:
            self._metadata.clear()  # never again in this run: those who wait are told
        self.rounds += 1
        rounds = [partition.begin_round() for partition in self._dirty if not partition.offline]
        waiting, self._waiting = self._waiting, []
        self._dirty = {}

        def done(outcome: Outcome) -> None:
            self._running = False
            self._take_out(rounds, outcome)
            self._finish(rounds, waiting, outcome)

        if self._only_syncs(rounds):
            self._start_syncs(rounds, done)
        else:
            self._start_job(rounds, done)

    def _only_syncs(self, rounds: Sequence[Round]) -> bool:
        """Whether a round has files to sync and nothing to write."""
        if not rounds or self._metadata or self._moved_starts or self._positions.due:
            return False
        return not any(round_.checkpoints or round_.folder for round_ in rounds)

    def _start_syncs(self, rounds: Sequence[Round], done: Done) -> None:
        files = [file for round_ in rounds for file in round_.files]
        together = len(files) > SYNC_ONE_BY_ONE_MAX

        def synced(errors: Sequence[OSError | None]) -> None:
            if not any(errors):
                done(Outcome({}, {}))
            elif together:
                done(Outcome({}, {}, everything_failed=errors[0]))
            else:
                # Without sealed segments, which bring checkpoints, a round has exactly one file.
                partitions = (round_.partition for round_ in rounds)
                pairs = zip(partitions, errors, strict=True)
                done(Outcome({partition: error for partition, error in pairs if error}, {}))

        self._sync_files(files, together, synced)

    def _sync_by_job(self, files: Sequence[File], together: bool, done: SyncsDone) -> None:
        """Sync files where the thread can only run jobs."""

        def job() -> list[OSError | None]:
            if together:
                return [_error_of(partial(sync_all, self._files, self._folder))]
            return [_error_of(file.sync) for file in files]

        self._run(job, done)

    def _start_job(self, rounds: Sequence[Round], done: Done) -> None:
        metadata, self._metadata = self._metadata, []
        ends, self._unrecorded = self._unrecorded, {}
        moved = {
            r.partition.identity: Position(r.point.offset, r.partition.start_offset)
            for r in rounds
            if r.partition in self._moved_starts
        }
        self._moved_starts = set()

        def job() -> Outcome:
            self._positions.record(ends)
            outcome = self._sync(rounds, metadata)
            if moved:
                failed = {partition.identity for partition in outcome.failed}
                self._positions.record({m: at for m, at in moved.items() if m not in failed})
                if self._positions.failed is not None:
                    return outcome._replace(metadata_error=self._positions.failed)
            return outcome

        self._run(job, done)

    def _sync(self, rounds: Sequence[Round], metadata: list[Callable[[], None]]) -> Outcome:
        """Runs on the commit thread."""
        metadata_error = self._sync_metadata(metadata)
        everything_failed: OSError | None = None
        if isinstance(metadata_error, SyncAllError):
            everything_failed = metadata_error
        together = sum(len(round_.files) for round_ in rounds) > SYNC_ONE_BY_ONE_MAX
        if together and everything_failed is None:
            everything_failed = _error_of(partial(sync_all, self._files, self._folder))
        outcome = Outcome({}, {}, metadata_error, everything_failed)
        for round_ in rounds:
            try:
                if everything_failed is not None:
                    raise everything_failed
                if not together:
                    self._sync_one(round_)
            except OSError as error:
                outcome.failed[round_.partition] = error
                continue
            if round_.checkpoints:
                outcome.written[round_.partition] = self._checkpoint(round_)
        return outcome

    @staticmethod
    def _sync_metadata(metadata: list[Callable[[], None]]) -> OSError | None:
        return next((error for change in metadata if (error := _error_of(change))), None)

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
            except OSError as error:
                _log.warning("%s: checkpoint not written: %s", round_.partition, error)
            else:
                written.append(pending)
        return written

    def _finish(
        self, rounds: Sequence[Round], waiting: list[Callable[[], None]], outcome: Outcome
    ) -> None:
        """Back on the loop."""
        for round_ in rounds:
            partition = round_.partition
            error = outcome.failed.get(partition)
            if error is not None:
                # Linux marks the pages clean after a failed sync: trying again would lie.
                partition.fail(f"sync failed: {error}")
                continue
            end = Position(round_.point.offset, partition.start_offset)
            self._unrecorded[partition.identity] = end
            partition.finish_round(round_, outcome.written.get(partition, []))
        for callback in waiting:
            try:
                callback()
            except Exception:
                # A mistake of ours in one answer must not cost all others theirs.
                _log.exception("what waited for a commit round failed after it")
        if self._dirty or self._metadata or self._waiting or self._moved_starts:
            self._request()

    def _take_out(self, rounds: Sequence[Round], outcome: Outcome) -> None:
        """Take everything offline after a failure of metadata, or of a sync of everything.

        A disk that fails metadata is not asked to hold data. What was written during the round may
        have been dropped as well, and a next sync would not say so.
        """
        error = outcome.everything_failed or outcome.metadata_error
        if error is None:
            return
        self.metadata_failed = error
        _log.error("metadata could not be made durable: %s", error)
        for partition in (*(round_.partition for round_ in rounds), *self._dirty):
            partition.fail(f"sync failed: {error}")
            outcome.failed[partition] = error
        self.on_everything_failed(error)


def _error_of(action: Callable[[], None]) -> OSError | None:
    try:
        action()
    except OSError as error:
        return error
    return None
