"""Group commit: one round of syncing in flight, shared by everything that waits. No timer.

A round starts when something waits, no round runs, and a look at the sockets brings nothing more that
it could take along. Whatever is appended while it runs waits for the next one, so that batching grows
with the load and an idle log answers at once.

    idle --request--> gathering --nothing more comes, or it is enough--> running --done--> idle
                          ^---------------- something waits again ----------'

The loop builds a round and finishes it; only the syncing in between runs on a thread. Nearly every
round has nothing but files to sync (`sync`), those of partitions and of the journals of changes, to
which the loop writes; one that must also write something else is a job (`run`).

A round over many partitions syncs what they got in the journal of rounds (round_journal.py). Their own
files have yet to be synced then: by a round that has to sync them anyway, or when that journal is full.

This module may run compiled (setup.py), with the C types that stand in commit.pxd.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from penstock.files import File, Files
from penstock.limits import (
    ROUND_BYTES_ENOUGH,
    ROUND_JOURNALED_BYTES_MAX,
    ROUND_JOURNALED_PARTITIONS_MAX,
    ROUND_WAITING_ENOUGH,
    SETTLE_ONE_BY_ONE_MAX,
    SYNC_ONE_BY_ONE_MAX,
)
from penstock.log.commit_job import CommitJob, Outcome, guarded
from penstock.log.partition import Partition, Round
from penstock.log.positions import PartitionId, Position, Positions
from penstock.log.round_journal import RoundJournal

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

Defer = Callable[[Callable[[], None]], object]
SyncsDone = Callable[[Sequence[OSError | None]], None]
SyncFiles = Callable[[Sequence[File], bool, SyncsDone], None]
"""Sync files each by itself, or together by one sync of their file system.

Reports an error or None for each, one for all together, and nothing at all if all went well.
"""


class Run(Protocol):
    """Takes work to the commit thread."""

    def __call__(self, job: Callable[[], _T], done: Callable[[_T], None], /) -> None:
        """Run job there, then done(its result) here."""
        ...


class Journaled(Protocol):
    """A journal that is written by rounds: by the loop, or by the thread when it is much work."""

    @property
    def must_be_rewritten(self) -> bool:
        """Whether the next round is one for the thread."""
        ...

    def begin_round(self) -> File | None:
        """Write what is queued; the file to sync, or None."""
        ...

    def finish_round(self, *, synced: bool) -> None:
        """What became of it."""
        ...

    def hand_over(self) -> Callable[[], None]:
        """All of it, for the thread."""
        ...

    def refuse(self) -> None:
        """Drop what is queued."""
        ...


class GroupCommit:
    """See the module.

    Args:
        files, folder: what is synced.
        positions: the journal of durable ends.
        run: takes a job to the thread and its outcome back.
        defer: calls at the end of the loop's turn, and what is deferred there after another look.
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
        self._positions = positions
        self._job = CommitJob(files, folder, positions)
        self._run = run
        self._defer = defer
        self._sync = sync or self._sync_by_job
        # What the next round is asked for.
        self._dirty: dict[Partition, None] = {}
        self._metadata: list[Callable[[], None]] = []
        self._changed_journals: dict[Journaled, None] = {}
        self._moved_starts: set[Partition] = set()
        self._waiting: list[Callable[[], None]] = []
        self._unrecorded: dict[Partition, int] = {}
        self._round_journal = RoundJournal(files, folder)
        self._unsettled: dict[Partition, File] = {}
        """What stands in the journal of rounds, and the file that it is to be synced in."""
        self._leaving: set[Partition] = set()
        """What is being deleted."""
        self._gathering = False
        self._waited_before = -1
        self._bytes = 0
        # The round that runs, and those who wait for it.
        self._running = False
        self._rounds: list[Round] = []
        self._journals: list[tuple[Journaled, File]] = []
        self._together = False
        self._settles = False
        """Whether it syncs all that only the journal of rounds has."""
        self._shared: File | None = None
        """The journal of rounds, if it is synced for some of them."""
        self._answered: list[Callable[[], None]] = []
        self._forgotten: list[Partition] = []
        """What was to be deleted since it began."""
        self.metadata_failed: OSError | None = None
        self.on_everything_failed: Callable[[OSError], None] = lambda error: None
        """Told when nothing that was not synced can be trusted, to take every partition offline."""

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not (self._running or self._gathering)

    # -- what a round is asked for

    def appended(self, partition: Partition, size: int = 0) -> None:
        """The partition has so many more bytes that are not synced."""
        self._dirty[partition] = None
        self._bytes += size
        self._request()

    def metadata_changed(self, *syncs: Callable[[], None]) -> None:
        """Something else must be synced by the next round, in this order, before partitions."""
        self._metadata.extend(syncs)
        self._request()

    def journal_changed(self, journal: Journaled) -> None:
        """A journal has something queued, or written and not synced."""
        self._changed_journals[journal] = None
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
        """A partition that is being deleted needs no round any more.

        What is known of it, and what only the journal of rounds has, stays until it is `deleted`:
        before that is durable a power failure brings the partition back.
        """
        self._dirty.pop(partition, None)
        self._moved_starts.discard(partition)
        self._unrecorded.pop(partition, None)
        self._leaving.add(partition)
        if self._running:
            self._forgotten.append(partition)

    def deleted(self, partitions: Iterable[Partition]) -> None:
        """The deletion of partitions is durable. Called by who waits for a round, so none runs."""
        for partition in partitions:
            self._leaving.discard(partition)
            self._unsettled.pop(partition, None)
            self._positions.forget(partition.identity)
        if not self._unsettled:
            self._round_journal.begin_anew()

    def remove_round_journal(self) -> None:
        """At an orderly stop: the files of all partitions are synced."""
        self._round_journal.remove()

    def record_ends(self) -> None:
        """Have durable ends recorded that no round has recorded yet. Called now and then."""
        if self._unrecorded:
            self._request()

    def _request(self) -> None:
        if not (self._running or self._gathering):
            self._gathering = True
            self._waited_before = -1
            self._defer(self.gather)

    # -- one round

    def gather(self) -> None:
        """Start the round that was asked for, unless more is arriving. Called by `defer`.

        A client that pipelines sends its requests one by one: a round for the first of them would
        keep all others waiting.
        """
        waiting = len(self._waiting)
        enough = waiting >= ROUND_WAITING_ENOUGH or self._bytes >= ROUND_BYTES_ENOUGH
        if enough or waiting == self._waited_before:
            self._start()
        else:
            self._waited_before = waiting
            self._defer(self.gather)

    def _start(self) -> None:
        self._gathering = False
        self._running = True
        self._bytes = 0
        rounds: list[Round] = []
        files: list[File] = []
        if self.metadata_failed is not None:
            self._metadata.clear()  # never again in this run: those who wait are told
            for journal in self._changed_journals:
                journal.refuse()
        elif self._changed_journals:
            self._begin_journals(files)
        self._changed_journals = {}
        only_syncs = not (self._metadata or self._moved_starts or self._positions.due)
        self._settles = bool(self._unsettled) and self._round_journal.is_full
        if self._settles:
            self._dirty.update(dict.fromkeys(self._unsettled))
            only_syncs = False
        for partition in self._dirty:
            round_ = _begin(partition)
            if round_ is not None:
                rounds.append(round_)
                files.extend(round_.files)
                if round_.writes or not round_.files:
                    only_syncs = False
        self._rounds = rounds
        self._answered, self._waiting = self._waiting, []
        self._dirty = {}
        most = SETTLE_ONE_BY_ONE_MAX if self._settles else SYNC_ONE_BY_ONE_MAX
        self._together = len(files) > most
        if self._together and self._round_journal.is_wanted:
            only_syncs = False
        elif self._together and not self._settles:
            files = self._share_journal(files)
        if only_syncs and files:
            self._sync(files, self._together, self.synced)
        else:
            self._start_job()

    def _share_journal(self, files: list[File]) -> list[File]:
        """Write to the journal of rounds what many files have got; what is to be synced then."""
        plain = [round_ for round_ in self._rounds if round_.is_plain]
        few = [file for _, file in self._journals]
        for round_ in self._rounds:
            if not round_.is_plain:
                few.extend(round_.files)
        journal = self._round_journal.file
        size = sum([round_.point.position - round_.kept_to for round_ in plain])
        if (
            journal is None
            or self._round_journal.is_full  # of what was deleted: it begins anew after this round
            or (few and len(few) >= SYNC_ONE_BY_ONE_MAX)
            or len(plain) > ROUND_JOURNALED_PARTITIONS_MAX
            or size > ROUND_JOURNALED_BYTES_MAX
            or not self._round_journal.write(plain)
        ):
            return files
        for round_ in plain:
            round_.is_journaled = True
        self._shared = journal
        self._together = False
        # In the order in which `synced` takes their errors.
        few.insert(len(self._journals), journal)
        return few

    def _begin_journals(self, files: list[File]) -> None:
        for journal in self._changed_journals:
            if journal.must_be_rewritten:
                self._metadata.append(journal.hand_over())
                continue
            file = journal.begin_round()
            if file is not None:
                self._journals.append((journal, file))
                files.append(file)

    def _sync_by_job(self, files: Sequence[File], together: bool, done: SyncsDone) -> None:
        """Sync files where the thread can only run jobs."""
        self._run(partial(self._job.sync_files, files, together), done)

    def synced(self, errors: Sequence[OSError | None]) -> None:
        """A round that only synced has ended."""
        if not any(errors):
            self._finish(None)
        elif self._together:
            self._finish(Outcome({}, {}, everything_failed=errors[0]))
        else:
            left = iter(errors)
            of_journals = [error for _ in self._journals if (error := next(left))]
            of_shared = next(left) if self._shared is not None else None
            failed: dict[Partition, OSError] = {}
            for round_ in self._rounds:
                # Without sealed segments, which bring checkpoints, a partition has one file to sync.
                error = of_shared if round_.is_journaled else next(left)
                if error is not None:
                    failed[round_.partition] = error
            of_journal = of_journals[0] if of_journals else None
            self._finish(Outcome(failed, {}, metadata_error=of_journal))

    def _start_job(self) -> None:
        metadata, self._metadata = self._metadata, []
        # After the catalog: a topic that is gone takes with it what journals say of it, not before.
        metadata = metadata + [file.sync for _, file in self._journals]
        ends: dict[PartitionId, Position] | None = None
        if self._positions.due:
            ends = {p.identity: _position(p, end) for p, end in self._unrecorded.items()}
            self._unrecorded = {}
        moved = {
            round_.partition.identity: _position(round_.partition, round_.point.offset)
            for round_ in self._rounds
            if round_.partition in self._moved_starts
        }
        self._moved_starts = set()
        wanted = self._together and self._round_journal.is_wanted
        job = partial(
            self._job.run,
            self._rounds,
            self._together,
            metadata,
            ends,
            moved,
            shared=self._shared,
            prepare=self._round_journal.prepare if wanted else None,
        )
        self._run(partial(guarded, job), self._finish)

    def _finish(self, outcome: Outcome | None) -> None:
        """Back on the loop; None means that everything was synced and nothing else was to do."""
        rounds, self._rounds = self._rounds, []
        answered, self._answered = self._answered, []
        self._running = False
        self._shared = None
        if self._journals:
            synced = outcome is None or not (outcome.metadata_error or outcome.everything_failed)
            for journal, _ in self._journals:
                journal.finish_round(synced=synced)
            self._journals = []
        if outcome is not None:
            self._take_out(rounds, outcome)
        for round_ in rounds:
            partition = round_.partition
            if outcome is not None and partition in outcome.failed:
                # Linux marks the pages clean after a failed sync: trying again would lie.
                partition.fail(f"sync failed: {outcome.failed[partition]}")
                continue
            self._unrecorded[partition] = round_.point.offset
            if round_.is_journaled:
                self._unsettled[partition] = round_.files[0]
            elif self._unsettled.get(partition) in round_.files:
                del self._unsettled[partition]  # not if its file was no longer open, and not synced
            partition.finish_round(round_, outcome.written.get(partition, ()) if outcome else ())
        self._look_after_journal(rounds, outcome)
        # The round knew nothing of it: it has recorded their ends, or would have the next one do so.
        forgotten, self._forgotten = self._forgotten, []
        for partition in forgotten:
            self.forget(partition)
        for callback in answered:
            try:
                callback()
            except Exception:
                # A mistake of ours in one answer must not cost all others theirs.
                _log.exception("what waited for a commit round failed after it")
        if (
            self._dirty
            or self._metadata
            or self._changed_journals
            or self._waiting
            or self._moved_starts
        ):
            self._request()

    def _look_after_journal(self, rounds: Sequence[Round], outcome: Outcome | None) -> None:
        """Let the journal of rounds begin anew if nothing depends on it; leave it if that cannot be."""
        journal = self._round_journal
        if outcome is not None:
            failed = outcome.failed
            if any(round_.is_journaled and round_.partition in failed for round_ in rounds):
                journal.give_up()
        if self._together and (outcome is None or outcome.everything_failed is None):
            # Of what went offline before a sync proves nothing.
            left = {p: file for p, file in self._unsettled.items() if p.offline is not None}
            self._unsettled = left
        if not self._unsettled:
            journal.begin_anew()
        elif self._settles and not self._leaving.issuperset(self._unsettled):
            journal.give_up()  # or every round would try again to sync what is offline

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
        for partition in (*[round_.partition for round_ in rounds], *self._dirty):
            partition.fail(f"sync failed: {error}")
            outcome.failed[partition] = error
        self.on_everything_failed(error)


def _begin(partition: Partition) -> Round | None:
    """What a round does for a partition; None for one in memory, or that is offline."""
    if partition.offline is not None or partition.memory is not None:
        return None
    return partition.begin_round()


def _position(partition: Partition, end: int) -> Position:
    # The start may have moved on since the round began, beyond what it has synced.
    return Position(end, min(partition.start_offset, end))
