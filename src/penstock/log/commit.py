"""Group commit: one round of syncing in flight, shared by everything that waits. No timer.

A round starts as soon as something waits and no round runs. Whatever is appended while it runs waits
for the next one, so that batching grows with the load and an idle log answers at once.

    idle --request--> scheduled --end of the loop's turn--> running --done--> idle or scheduled

The loop builds a round and finishes it; only the syncing in between runs on a thread (`run`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.files import Files
from penstock.limits import SYNC_ONE_BY_ONE_MAX
from penstock.log.partition import Partition, PendingCheckpoint, Round, write_checkpoint
from penstock.log.positions import PartitionId, Position, Positions

_log = logging.getLogger(__name__)

Job = Callable[[], "Outcome"]
Done = Callable[["Outcome"], None]
Run = Callable[[Job, Done], None]
Defer = Callable[[Callable[[], None]], object]


class Outcome(NamedTuple):
    """What the commit thread reports."""

    failed: dict[Partition, OSError]
    written: dict[Partition, list[PendingCheckpoint]]
    metadata_error: OSError | None


class GroupCommit:
    """See the module. `run` takes a job to the thread and its outcome back; `defer` ends a turn."""

    def __init__(
        self, files: Files, folder: Path, positions: Positions, *, run: Run, defer: Defer
    ) -> None:
        self._files = files
        self._folder = folder
        self._positions = positions
        self._run = run
        self._defer = defer
        self._dirty: dict[Partition, None] = {}
        self._metadata: list[Callable[[], None]] = []
        self._moved_starts: dict[PartitionId, Partition] = {}
        self._waiting: list[Callable[[], None]] = []
        self._last_ends: list[tuple[PartitionId, Position]] = []
        self._scheduled = False
        self._running = False
        self.rounds = 0
        self.metadata_failed: OSError | None = None

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
        self._moved_starts[partition.identity] = partition
        self._request()

    def after(self, callback: Callable[[], None]) -> None:
        """Call back when everything asked for up to now has been synced, or has failed."""
        self._waiting.append(callback)
        self._request()

    def forget(self, partition: Partition) -> None:
        """A deleted partition needs no round any more."""
        self._dirty.pop(partition, None)
        self._moved_starts.pop(partition.identity, None)

    def _request(self) -> None:
        if not (self._running or self._scheduled):
            self._scheduled = True
            self._defer(self._start)

    # -- one round

    def _start(self) -> None:
        self._scheduled = False
        self._running = True
        self.rounds += 1
        rounds = [partition.begin_round() for partition in self._dirty if not partition.offline]
        metadata, waiting = self._metadata, self._waiting
        moved = [
            (identity, Position(partition.durable_offset, partition.start_offset))
            for identity, partition in self._moved_starts.items()
        ]
        last_ends = self._last_ends
        self._dirty, self._metadata, self._waiting = {}, [], []
        self._moved_starts, self._last_ends = {}, []

        def job() -> Outcome:
            self._positions.record(last_ends, sync=False)
            outcome = self._sync(rounds, metadata)
            if moved:
                self._positions.record(moved, sync=True)
            return outcome

        self._run(job, lambda outcome: self._finish(rounds, waiting, outcome))

    def _sync(self, rounds: Sequence[Round], metadata: list[Callable[[], None]]) -> Outcome:
        """Runs on the commit thread."""
        outcome = Outcome({}, {}, None)
        try:
            for sync in metadata:
                sync()
        except OSError as error:
            outcome = Outcome({}, {}, error)
        together = sum(len(round_.syncs) for round_ in rounds) > SYNC_ONE_BY_ONE_MAX
        everything_failed = self._sync_all() if together else None
        for round_ in rounds:
            try:
                if everything_failed is not None:
                    raise everything_failed
                if not together:
                    for sync in round_.syncs:
                        sync()
            except OSError as error:
                outcome.failed[round_.partition] = error
                continue
            if round_.checkpoints:
                outcome.written[round_.partition] = self._checkpoint(round_)
        return outcome

    def _sync_all(self) -> OSError | None:
        try:
            self._files.sync_all(self._folder)
        except OSError as error:
            return error
        return None

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
        self._running = False
        if outcome.metadata_error is not None:
            self.metadata_failed = outcome.metadata_error
            _log.error("metadata could not be synced: %s", outcome.metadata_error)
        for round_ in rounds:
            partition = round_.partition
            error = outcome.failed.get(partition)
            if error is not None:
                # Linux marks the pages clean after a failed sync: trying again would lie.
                partition.fail(f"sync failed: {error}")
                continue
            end = Position(round_.point.offset, partition.start_offset)
            self._last_ends.append((partition.identity, end))
            partition.finish_round(round_, outcome.written.get(partition, []))
        for callback in waiting:
            try:
                callback()
            except Exception:
                # A mistake of ours in one answer must not cost all others theirs.
                _log.exception("what waited for a commit round failed after it")
        if self._dirty or self._metadata or self._waiting or self._moved_starts:
            self._request()
