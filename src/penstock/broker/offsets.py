"""Committed offsets: what groups have committed, written before it is answered or shown.

Changes go to the journal (log/offsets.py) in the order they were asked for, which is the order in which
they are applied here. A commit that goes on from another one is answered when it would survive the death
of this process, and synced within a second: a power failure can take it back, and what was read since
the one before is delivered again, as it is when a consumer dies before it commits. Everything else is
answered and applied when its commit round is over: a first commit, without which a consumer may begin at
the end; one that goes back, because what it asks for would not be delivered; the offsets of a
transaction, which is about delivering nothing again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from uuid import UUID

from penstock.broker.journaling import Done, Write, write, write_ahead
from penstock.clock import Clock
from penstock.errors import StorageError
from penstock.limits import OFFSETS_RETENTION_MINUTES
from penstock.log import offsets as journal_of
from penstock.log.change_journal import Change
from penstock.log.committed import Committed, Offsets
from penstock.log.positions import Ends, PartitionId
from penstock.log.store import LogStore

_RETENTION_MS = OFFSETS_RETENTION_MINUTES * 60_000
_log = logging.getLogger(__name__)


class CommittedOffsets:
    """See the module."""

    def __init__(self, store: LogStore, clock: Clock) -> None:
        self._journal = store.offsets
        self._commit = store.commit
        self._clock = clock
        self._groups: dict[str, Offsets] = {}
        self._empty_since: dict[str, int] = {}

    def open(self, topics: Collection[UUID], end_of: Ends) -> dict[str, str]:
        """Take over what the journal knows; returns the type of each group found in it.

        Topics that are gone took their offsets with them, even if the journal did not hear of it. A log
        that lost its end, as those may that are not synced, will get other records there: a group that
        was beyond it goes on at the end, or it would skip them.
        """
        now = self._clock.wall_ms()
        types: dict[str, str] = {}
        changes: list[Change] = []
        gone: set[UUID] = set()
        for name, record in self._journal.groups.items():
            gone |= {p.topic_id for p in record.offsets if p.topic_id not in topics}
            offsets = {p: c for p, c in record.offsets.items() if p.topic_id in topics}
            if not offsets:
                continue
            beyond = _beyond(offsets, end_of, now)
            if beyond:
                offsets.update(beyond)
                changes.append(journal_of.committed(name, record.type, beyond))
                _log.warning("group %s goes back to the end of %d partition(s)", name, len(beyond))
            self._groups[name] = offsets
            types[name] = record.type
            if record.empty_since is None:  # its members are gone since the broker stopped
                changes.append(journal_of.occupied(name, record.type, now))
            self._empty_since[name] = record.empty_since or now
        changes += map(journal_of.topic_deleted, gone)
        for change in changes:
            self._journal.queue(change)
        if changes:
            self._commit.journal_changed(self._journal)
        return types

    def of(self, group: str) -> Mapping[PartitionId, Committed]:
        """Where a group stands."""
        return self._groups.get(group, {})

    def put(self, group: str, kind: str, offsets: Offsets, done: Done) -> None:
        """Commit; done is called with what went wrong, or None once it is certain (see the module)."""
        change = journal_of.committed(group, kind, offsets)
        how = write_ahead if self._goes_on(group, offsets) else write
        self._write(change, partial(self.take, group, offsets), done, how)

    def _goes_on(self, group: str, offsets: Offsets) -> bool:
        """Whether everything that would be delivered again without these offsets was read before."""
        before = self._groups.get(group)
        if before is None:
            return False
        for partition, wanted in offsets.items():
            reached = before.get(partition)
            if reached is None or wanted.offset < reached.offset:
                return False
        return True

    def sync(self) -> None:
        """Make commits survive a power failure too. Called every second."""
        if self._journal.is_ahead:
            self._commit.journal_changed(self._journal)

    def take(self, group: str, offsets: Offsets) -> None:
        """Show offsets that are written."""
        self._groups.setdefault(group, {}).update(offsets)

    def remove(self, group: str, partitions: Collection[PartitionId], done: Done) -> None:
        """Forget some of a group's offsets."""
        change = journal_of.removed(group, list(partitions))
        self._write(change, partial(self._forget, group, partitions), done)

    def _forget(self, group: str, partitions: Collection[PartitionId]) -> None:
        offsets = self._groups.get(group, {})
        for partition in partitions:
            offsets.pop(partition, None)
        if not offsets:
            self._groups.pop(group, None)

    def remove_group(self, group: str, done: Done) -> None:
        """Forget a group."""
        self.forget_age(group)
        forget = partial(self._groups.pop, group, None)
        self._write(journal_of.group_deleted(group), forget, done)

    def remove_topic(self, topic_id: UUID) -> None:
        """Forget every group's offsets in a topic; durable after the next round."""

        def forget() -> None:
            for group, offsets in list(self._groups.items()):
                self._forget(group, [p for p in offsets if p.topic_id == topic_id])

        # Even if no group stands in it: a commit may be on its way.
        self._write(journal_of.topic_deleted(topic_id), forget, lambda _: None)

    def occupied(self, group: str, kind: str, *, empty: bool) -> None:
        """A group has lost its last member, or got its first: from when on its offsets age."""
        if empty:
            self._empty_since[group] = self._clock.wall_ms()
        else:
            self._empty_since.pop(group, None)
        if group in self._groups:
            since = self._empty_since.get(group)
            self._write(journal_of.occupied(group, kind, since), lambda: None, lambda _: None)

    def forget_age(self, group: str) -> None:
        """Nothing of a group is left that could age."""
        self._empty_since.pop(group, None)

    def expire(self, group: str) -> None:
        """Forget what a group without members has not renewed for so long."""
        since = self._empty_since.get(group, 0)
        horizon = self._clock.wall_ms() - _RETENTION_MS
        old = [p for p, c in self.of(group).items() if max(c.time_ms, since) <= horizon]
        if old:
            self.remove(group, old, lambda _: None)

    def _write(
        self, change: Change, apply: Callable[[], object], done: Done, how: Write = write
    ) -> None:
        def settled(error: StorageError | None) -> None:
            if error is None:
                apply()
            done(error)

        how(self._journal, self._commit, change, "commit offsets", settled)


def _beyond(offsets: Offsets, end_of: Ends, now: int) -> Offsets:
    """Those that lie above the end of their partition, moved to it."""
    lowered: Offsets = {}
    for identity, committed in offsets.items():
        end = end_of(identity)
        if end is not None and committed.offset > end:
            lowered[identity] = committed._replace(offset=end, time_ms=now)
    return lowered
