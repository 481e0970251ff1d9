"""The journal of positions: how far each partition is durable, and where it begins.

Now and then a commit round appends the ends that the rounds before it made durable. After a crash
everything below an end that stands here was certainly acknowledged or could have been, and must be
intact; what is above it may be a torn tail. Entries are runs of

    16 bytes topic id, int32 partition, int64 durable end, int64 start offset

and the last one for a partition counts. Losing this file loses no record: recovery then cannot tell
damage from a torn tail, and reports what it cut as possibly acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from penstock.clock import Clock
from penstock.files import Files, SyncAllError, lacks_descriptor
from penstock.limits import MIB, POSITIONS_SYNC_SECONDS
from penstock.log.journal import Journal
from penstock.log.space import found_room, means_full

_ENTRY = Struct(">16siqq")
_REWRITE_BYTES = 4 * MIB
_log = logging.getLogger(__name__)


class PartitionId(NamedTuple):
    """Names a partition for good: a topic that is deleted and made anew has another id."""

    topic_id: UUID
    partition: int


Ends = Callable[[PartitionId], int | None]
"""Where a partition ends; None if it is damaged."""


class Position(NamedTuple):
    """Everything from start to end is durable and retained."""

    end: int
    start: int


class Positions:
    """The newest known position of every partition, in memory and in the journal."""

    def __init__(self, files: Files, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._journal = Journal(files, path)
        self._synced_at = clock.monotonic()
        self.failed: OSError | None = None
        """Why the journal is off for this run, if it is."""
        self.make_room: Callable[[], None] = lambda: None
        """Called when the disk is full, before another try."""
        self._known: dict[PartitionId, Position] = {}
        self._owed: dict[PartitionId, Position] = {}
        for payload in self._journal.entries:
            whole = len(payload) - len(payload) % _ENTRY.size
            for topic_id, partition, end, start in _ENTRY.iter_unpack(payload[:whole]):
                self._known[PartitionId(UUID(bytes=topic_id), partition)] = Position(end, start)
        if self._journal.torn:
            self._journal.renew()

    def get(self, partition: PartitionId) -> Position:
        """The last position recorded; zero where there is none."""
        return self._known.get(partition, Position(0, 0))

    def forget(self, partition: PartitionId) -> None:
        """Drop a deleted partition; the next rewrite leaves it out. While no round runs."""
        self._known.pop(partition, None)
        self._owed.pop(partition, None)

    def forget_topics(self, deleted: Collection[UUID]) -> None:
        """The same for all partitions of topics whose deletion a crash has cut short."""
        for partition in [p for p in self._known if p.topic_id in deleted]:
            self.forget(partition)

    @property
    def due(self) -> bool:
        """Whether the next round should record the ends of those before it."""
        return self._clock.monotonic() - self._synced_at >= POSITIONS_SYNC_SECONDS

    def record_ends(self, positions: Mapping[PartitionId, Position]) -> None:
        """Record the ends of the rounds before, which is due then no more. Runs on the commit thread."""
        self.record(positions)
        self._synced_at = self._clock.monotonic()

    def record(self, positions: Mapping[PartitionId, Position]) -> None:
        """Append positions and sync. Runs on the commit thread.

        A journal that fails is given up for this run: without it recovery is less sure of what it
        finds, but nothing acknowledged is lost, so the log goes on. What a full disk has no room for
        is recorded with what comes next.
        """
        self.note(positions)
        wanted = {**self._owed, **positions}
        self._owed = wanted if wanted and not self._recorded(wanted) else {}

    def _recorded(self, wanted: Mapping[PartitionId, Position]) -> bool:
        if self.failed is not None:
            return False
        try:
            if found_room(partial(self._append, _encoded(wanted)), self.make_room):
                self._journal.sync()
                return True
        except SyncAllError:
            raise
        except OSError as error:
            self.failed = error
            _log.error("the journal of durable ends failed and is off until a restart: %s", error)
            return False
        _log.warning("no room: durable ends are recorded when there is some again")
        return False

    def owes(self, partition: PartitionId) -> bool:
        """Whether the newest position that was to be recorded of a partition is not."""
        return partition in self._owed

    def note(self, positions: Mapping[PartitionId, Position]) -> None:
        """Take positions over; the next rewrite has them."""
        self._known.update(positions)

    def _append(self, payload: bytes) -> None:
        if self._journal.size + len(payload) > _REWRITE_BYTES:
            try:
                self.rewrite()
            except SyncAllError:
                raise
            except OSError as error:
                if not (means_full(error) or lacks_descriptor(error)):
                    raise
            else:
                return
        # Where there is no room, or no descriptor, for a second file this one gets longer.
        self._journal.append(payload)

    def rewrite(self) -> None:
        """Replace the journal by one entry for every partition."""
        payload = _encoded(self._known)
        self._journal.rewrite([payload] if payload else [])


def _encoded(positions: Mapping[PartitionId, Position]) -> bytes:
    return b"".join(
        _ENTRY.pack(partition.topic_id.bytes, partition.partition, *position)
        for partition, position in positions.items()
    )
