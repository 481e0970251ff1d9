"""The journal of committed offsets: where each group stands in each partition.

An entry is one or more lines of JSON, each of which changes what the lines before it said:

    {"group": G, "type": T, "time": MS, "offsets": [[TOPIC_ID, PARTITION, OFFSET, EPOCH, METADATA]...]}
    {"group": G, "type": T, "empty_since": MS or null}    without members since then, or with some
    {"group": G, "removed": [[TOPIC_ID, PARTITION]...]}   these offsets are gone
    {"group": G, "deleted": true}                         the group and all its offsets are gone
    {"topic_deleted": TOPIC_ID}                           the topic's offsets are gone, in all groups

and those with "transaction", which stand in the same journal because a transaction's decision and the
offsets that it commits must be one entry (transactions.py).

The loop queues changes and asks for a commit round. As for a partition, the loop writes what is queued
when the round begins (`begin_round`), the round syncs it with everything else, and then it counts
(`finish_round`). When the journal has grown so much that it must be rewritten, the commit thread does
all of that (`write`), so that it costs the loop nothing; what is known here is that thread's meanwhile.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.files import File, Files
from penstock.limits import MIB
from penstock.log import transactions
from penstock.log.committed import Committed, line_of, offsets_of
from penstock.log.journal import NOT_UNDERSTOOD, Journal
from penstock.log.positions import PartitionId
from penstock.log.space import means_full
from penstock.log.transactions import TransactionRecord

_REWRITE_BYTES = 4 * MIB
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class GroupRecord:
    """What is kept of one group."""

    type: str = ""
    empty_since: int | None = None
    """Milliseconds since the epoch; None while the group has members, as far as was written."""
    offsets: dict[PartitionId, Committed] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Change:
    """One line of the journal on its way to the disk."""

    fields: dict[str, Any]
    offsets: Mapping[PartitionId, Committed] | None = None
    """What a group has committed, if that is what the line says: it is not among the fields then."""
    durable: bool = False
    """Whether it would survive a power failure; meaningful once its commit round is over."""


def committed(group: str, kind: str, offsets: Mapping[PartitionId, Committed]) -> Change:
    """A group has reached new positions, all at the same time."""
    return Change({"group": group, "type": kind}, offsets)


def occupied(group: str, kind: str, empty_since: int | None) -> Change:
    """A group has lost its last member, or got its first."""
    return Change({"group": group, "type": kind, "empty_since": empty_since})


def removed(group: str, partitions: Sequence[PartitionId]) -> Change:
    """Some offsets of a group are no longer kept."""
    return Change({"group": group, "removed": [[str(p.topic_id), p.partition] for p in partitions]})


def group_deleted(group: str) -> Change:
    """Nothing of a group is kept."""
    return Change({"group": group, "deleted": True})


def topic_deleted(topic_id: UUID) -> Change:
    """No group's offsets in a topic are kept."""
    return Change({"topic_deleted": str(topic_id)})


class OffsetsJournal:
    """See the module."""

    def __init__(self, files: Files, path: Path) -> None:
        self.groups: dict[str, GroupRecord] = {}
        self.transactions: dict[str, TransactionRecord] = {}
        self._queue: list[Change] = []
        self._written: list[Change] = []
        self._journal = Journal(files, path)
        self._live_bytes = 0
        for payload in self._journal.entries:
            self._load(payload)
        self.torn = self._journal.torn

    def renew(self) -> None:
        """Make certain what was found after a crash."""
        self._journal.renew()

    def queue(self, change: Change) -> None:
        """Have a change written by the next commit round, which the caller asks for."""
        self._queue.append(change)

    @property
    def must_be_rewritten(self) -> bool:
        """Whether most of it no longer counts."""
        return self._journal.size > _REWRITE_BYTES + 2 * self._live_bytes

    # -- a round, by the loop

    def begin_round(self) -> File | None:
        """Write all that is queued; what is to be synced, None if nothing was written.

        Changes that could not be written are dropped and stay marked as not durable: the next ones
        may find room again.
        """
        changes, self._queue = self._queue, []
        if not changes:
            return None
        try:
            self._journal.append(b"\n".join([_line_of(change) for change in changes]))
        except OSError as error:
            _log.error("%d changes of committed offsets not written: %s", len(changes), error)
            return None
        self._written = changes
        return self._journal.file

    def finish_round(self, *, synced: bool) -> None:
        """What was written counts, or never will."""
        changes, self._written = self._written, []
        if synced:
            for change in changes:
                self._follow(change)
                change.durable = True

    def refuse(self) -> None:
        """Drop what is queued: nothing can be made durable any more."""
        self._queue = []

    # -- a round, by the commit thread

    def write(self) -> None:
        """Write and sync all that is queued, then rewrite the journal.

        Raises:
            OSError: the sync failed, which is final.
        """
        if self.begin_round() is not None:
            self._journal.sync()
            self.finish_round(synced=True)
        self._rewrite()

    def _rewrite(self) -> None:
        """Replace a journal that has grown by what still counts."""
        try:
            self._journal.rewrite(self._live())
        except OSError as error:
            if not means_full(error):
                raise
            # Nothing was replaced yet, and there may be room for further entries.
            _log.warning("the journal of offsets could not be rewritten: %s", error)
            return
        self._live_bytes = self._journal.size

    def _live(self) -> Iterator[bytes]:
        for name, record in self.groups.items():
            # An entry for each time, because the positions in a line share one.
            by_time: dict[int, dict[PartitionId, Committed]] = {}
            for partition, position in record.offsets.items():
                by_time.setdefault(position.time_ms, {})[partition] = position
            for offsets in by_time.values():
                yield line_of(name, record.type, offsets)
            if record.offsets and record.empty_since is not None:
                yield _line(occupied(name, record.type, record.empty_since).fields)
        for name, transaction in self.transactions.items():
            for fields in transactions.live(name, transaction):
                yield _line(fields)

    def _load(self, payload: bytes) -> None:
        for line in payload.split(b"\n"):
            try:
                self._apply(json.loads(line))
            except NOT_UNDERSTOOD as error:
                # Whole by its checksum, so another version wrote it: what it meant is not guessed.
                _log.error("offset entry not understood and left out: %r (%s)", line[:80], error)

    def _follow(self, change: Change) -> None:
        if change.offsets is None:
            self._apply(change.fields)
        else:
            self._record(change.fields).offsets.update(change.offsets)

    def _apply(self, fields: dict[str, Any]) -> None:
        if "transaction" in fields:
            self._apply_transaction(fields)
        elif "topic_deleted" in fields:
            self._forget_topic(UUID(fields["topic_deleted"]))
        elif "deleted" in fields:
            self.groups.pop(fields["group"], None)
        elif "removed" in fields:
            offsets = self._record(fields).offsets
            for topic_id, partition in fields["removed"]:
                offsets.pop(PartitionId(UUID(topic_id), int(partition)), None)
        elif "empty_since" in fields:
            since = fields["empty_since"]
            self._record(fields).empty_since = None if since is None else int(since)
        else:
            self._record(fields).offsets.update(offsets_of(fields))

    def _apply_transaction(self, fields: dict[str, Any]) -> None:
        name = str(fields["transaction"])
        if "expired" in fields:
            self.transactions.pop(name, None)
            return
        record = self.transactions.setdefault(name, TransactionRecord())
        held = transactions.apply(record, fields)
        for group, (kind, offsets) in held.items():
            self._record({"group": group, "type": kind}).offsets.update(offsets)

    def _record(self, fields: dict[str, Any]) -> GroupRecord:
        record = self.groups.setdefault(str(fields["group"]), GroupRecord())
        record.type = str(fields.get("type", record.type))
        return record

    def _forget_topic(self, topic_id: UUID) -> None:
        for record in self.groups.values():
            for partition in [p for p in record.offsets if p.topic_id == topic_id]:
                del record.offsets[partition]
        for transaction in self.transactions.values():
            for _, offsets in transaction.held.values():
                for partition in [p for p in offsets if p.topic_id == topic_id]:
                    del offsets[partition]


def _line_of(change: Change) -> bytes:
    if change.offsets is None:
        return _line(change.fields)
    return line_of(change.fields["group"], change.fields["type"], change.offsets)


def _line(fields: dict[str, Any]) -> bytes:
    return _ENCODER.encode(fields).encode()
