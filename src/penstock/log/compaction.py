"""Decides what to compact and when, and lets compacted segments take their places.

    rest --look: a partition is dirty enough--> a pass runs --group cleaned--> swap, the pass goes on
                                                    |------finished--> recorded --> look again
                                                    |------failed----> left alone for a while

One pass at a time, in another process (`start`). The active segment is never touched, nor anything that
is not durable, nor what may still be undecided (`up_to`).

A swap shows in memory first and then happens on the commit thread, in order with all other changes of
names. Both views are true: the older one only says more. So a swap that fails costs nothing but the
space, until the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from penstock.clock import Clock
from penstock.files import Files, SyncAllError
from penstock.limits import COMPACTION_RETRY_SECONDS
from penstock.log import compacted, swap
from penstock.log.checkpoint import Checkpoint
from penstock.log.cleaning import Cleaned, Failed, Plan, Report
from penstock.log.commit import GroupCommit
from penstock.log.compacted import Compacted
from penstock.log.partition import Partition
from penstock.log.positions import PartitionId
from penstock.log.segment import NO_TIMESTAMP, RELATIVE_OFFSET_MAX, Segment
from penstock.log.swap import Swap, cleaned_path

_log = logging.getLogger(__name__)

StartPass = Callable[[Plan, Callable[[Report], None]], None]
"""Begin a pass elsewhere. Reports come on the loop: any number of Cleaned, then one other."""


class _Candidate(NamedTuple):
    partition: Partition
    known: Compacted
    segments: list[Segment]
    """Those that may be compacted, from the first on."""
    ratio: float
    """How much of them no pass has looked at."""
    overdue: bool
    """Whether max.compaction.lag.ms or an expired tombstone asks for a pass whatever the ratio."""


class _Job:
    """A pass that runs."""

    def __init__(self, candidate: _Candidate) -> None:
        self.partition = candidate.partition
        self.segments = {segment.base_offset: segment for segment in candidate.segments}
        self.new: list[Segment] = []
        self.before = sum(segment.size for segment in candidate.segments)
        self.after = 0
        self.abandoned = False
        """The partition changed under the pass: what comes from now on is not used."""
        self.failed = False
        """A swap failed: names and memory differ, which only a restart may settle."""

    @property
    def good(self) -> bool:
        """Whether what the pass says may be used."""
        return not (self.abandoned or self.failed)


class Compactor:
    """See the module. Owned by the loop."""

    def __init__(self, files: Files, commit: GroupCommit, clock: Clock, start: StartPass) -> None:
        self._files = files
        self._commit = commit
        self._clock = clock
        self._start = start
        self._known: dict[PartitionId, Compacted] = {}
        self._not_before: dict[PartitionId, float] = {}
        self._failed: set[PartitionId] = set()
        self._job: _Job | None = None
        self._candidates: Callable[[], Iterable[Partition]] = tuple

    @property
    def running(self) -> bool:
        """Whether a pass is under way."""
        return self._job is not None

    def look(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        """Start a pass over the dirtiest partition, if one is worth it. Called now and then."""
        self._candidates = partitions
        now = self._clock.wall_ms()
        found: list[_Candidate] = []
        compacted_ones = [p for p in partitions() if p.settings.compact and p.offline is None]
        self._forget_others({partition.identity for partition in compacted_ones})
        for partition in compacted_ones:
            if partition.roll_if_overdue(now):
                self._commit.appended(partition)
            waits = self._clock.monotonic() < self._not_before.get(partition.identity, 0.0)
            if waits or partition.identity in self._failed:
                continue
            decided = partition.observer.last_stable_offset(partition.durable_offset)
            candidate = self._judge(partition, now, up_to=decided)
            if candidate is not None:
                found.append(candidate)
        if found and self._job is None:
            self._begin(max(found, key=lambda c: (c.overdue, c.ratio)), now)

    def _forget_others(self, identities: set[PartitionId]) -> None:
        """Keep nothing of deleted topics."""
        for kept in (self._known, self._not_before):
            for gone in kept.keys() - identities:
                del kept[gone]

    def _judge(self, partition: Partition, now: int, *, up_to: int) -> _Candidate | None:
        settings = partition.settings
        known = self._known.get(partition.identity)
        if known is None:
            known = self._known[partition.identity] = compacted.load(self._files, partition.folder)
        segments = cleanable(partition, now, up_to)
        dirty = [segment for segment in segments if segment.next_offset > known.end]
        total = sum(segment.size for segment in segments)
        if total == 0:
            return None
        ratio = sum(segment.size for segment in dirty) / total
        waiting = [s.first_timestamp for s in dirty if s.first_timestamp != NO_TIMESTAMP]
        overdue = any(now - first > settings.max_compaction_lag_ms for first in waiting)
        overdue = overdue or (known.horizon is not None and now >= known.horizon)
        if not overdue and not ratio > settings.min_dirty_ratio:
            return None
        return _Candidate(partition, known, segments, ratio, overdue)

    # -- a pass

    def _begin(self, candidate: _Candidate, now: int) -> None:
        partition, segments = candidate.partition, candidate.segments
        settings = partition.settings
        end = segments[-1].next_offset
        plan = Plan(
            folder=str(partition.folder),
            groups=_groups(segments, settings.segment_bytes),
            sizes=[segment.size for segment in segments],
            end=end,
            dirty=candidate.known.end,
            needed=[offset for offset in partition.observer.needed() if offset < end],
            aborted=[list(one) for one in partition.observer.aborted_between(0, end)],
            fences=[list(one) for one in partition.observer.fences()],
            now=now,
            delete_retention_ms=settings.delete_retention_ms,
            index_interval=settings.index_interval_bytes,
        )
        self._job = _Job(candidate)
        _log.debug("%s: compacting up to %d", partition, end)
        self._start(plan, partial(self._report, self._job))

    def _report(self, job: _Job, report: Report) -> None:
        if job.partition.offline is not None:
            job.abandoned = True
        if isinstance(report, Cleaned):
            self._swap(job, report)
            return
        if isinstance(report, Failed):
            _log.warning("%s: compaction is tried again later: %s", job.partition, report.cause)
            job.abandoned = True
        known = None if isinstance(report, Failed) else Compacted(report.end, report.horizon)
        # On the commit thread as well, and so after all swaps.
        self._commit.metadata_changed(partial(self._close, job, known))
        self._commit.after(partial(self._end, job, known))

    def _swap(self, job: _Job, cleaned: Cleaned) -> None:
        partition = job.partition
        old = [job.segments[base] for base in cleaned.bases]
        if any(segment not in partition.segments for segment in old):
            job.abandoned = True  # retention has removed them meanwhile
        if not job.good:
            return
        try:
            new = self._adopt(partition, cleaned)
        except OSError as error:
            _log.warning("%s: a compacted segment cannot be used: %s", partition, error)
            job.abandoned = True
            return
        partition.replace(old, new)
        job.new.append(new)
        partition.observer.forget_markers(cleaned.unmarked)
        job.after += cleaned.size
        self._commit.metadata_changed(
            partial(self._swap_files, job, Swap(cleaned.bases[0], cleaned.end))
        )

    def _adopt(self, partition: Partition, cleaned: Cleaned) -> Segment:
        base, folder = cleaned.bases[0], partition.folder
        segment = Segment(self._files, folder, base, partition.settings.index_interval_bytes)
        segment.restore(
            Checkpoint(
                next_offset=cleaned.end,
                position=cleaned.size,
                max_timestamp=cleaned.max_timestamp,
                max_timestamp_offset=cleaned.max_timestamp_offset,
                first_timestamp=cleaned.first_timestamp,
                batches=cleaned.batches,
                index_bytes=0,
                index_checksum=0,
                time_index_bytes=0,
                time_index_checksum=0,
                state=b"",
            )
        )
        parts = ("log", "index", "timeindex")
        segment.adopt(*(self._files.open(cleaned_path(folder, base, part)) for part in parts))
        return segment

    def _swap_files(self, job: _Job, change: Swap) -> None:
        """Runs on the commit thread."""
        folder = job.partition.folder
        if job.failed or not self._files.exists(folder):
            return
        try:
            swap.commit(self._files, folder, change)
        except SyncAllError:
            raise
        except OSError as error:
            job.failed = True
            _log.error("%s: a compacted segment could not be put in place: %s", folder.name, error)

    def _close(self, job: _Job, known: Compacted | None) -> None:
        """Record how far the partition is compacted, or remove what is in vain. On that thread too."""
        folder = job.partition.folder
        if job.failed or not self._files.exists(folder):
            return
        try:
            if known is not None and not job.abandoned:
                compacted.save(self._files, folder, known)
            else:
                swap.discard(self._files, folder)
        except SyncAllError:
            raise
        except OSError as error:
            # The next pass must not build on what is not on record.
            job.abandoned = True
            _log.warning("%s: after its compaction: %s", job.partition, error)

    def _end(self, job: _Job, known: Compacted | None) -> None:
        self._job = None
        identity = job.partition.identity
        if job.failed:
            self._failed.add(identity)
        else:
            for segment in job.new:
                segment.has_its_names = True
        if known is None or not job.good:
            self._not_before[identity] = self._clock.monotonic() + COMPACTION_RETRY_SECONDS
        else:
            self._known[identity] = known
            _log.info("%s: compacted %d bytes to %d", job.partition, job.before, job.after)
        self.look(self._candidates)


def cleanable(partition: Partition, now_ms: int, up_to: int) -> list[Segment]:
    """The segments, from the first on, that may be compacted.

    Args:
        partition: where they are.
        now_ms: the time; min.compaction.lag.ms keeps younger segments as they are.
        up_to: nothing from this offset on is decided yet.
    """
    lag = partition.settings.min_compaction_lag_ms
    found: list[Segment] = []
    for segment in partition.segments:
        if segment.base_offset >= partition.settled_offset or segment.next_offset > up_to:
            break
        if lag > 0 and segment.max_timestamp > now_ms - lag:
            break
        found.append(segment)
    return found


def _groups(segments: list[Segment], size_max: int) -> list[list[int]]:
    """Segments that fit into one, together."""
    groups: list[list[int]] = []
    size = 0
    for segment in segments:
        span = segment.next_offset - (groups[-1][0] if groups else 0)
        if not groups or size + segment.size > size_max or span > RELATIVE_OFFSET_MAX:
            groups.append([])
            size = 0
        groups[-1].append(segment.base_offset)
        size += segment.size
    return groups
