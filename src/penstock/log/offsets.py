"""The journal of committed offsets: where each group stands in each partition.

An entry is one or more lines of JSON, each of which changes what the lines before it said:

    {"group": G, "type": T, "time": MS, "offsets": [[TOPIC_ID, PARTITION, OFFSET, EPOCH, METADATA]...]}
    {"group": G, "type": T, "empty_since": MS or null}    without members since then, or with some
    {"group": G, "removed": [[TOPIC_ID, PARTITION]...]}   these offsets are gone
    {"group": G, "deleted": true}                         the group and all its offsets are gone
    {"topic_deleted": TOPIC_ID}                           the topic's offsets are gone, in all groups

and those with "transaction", which stand in the same journal because a transaction's decision and the
offsets that it commits must be one entry (transactions.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.files import Files
from penstock.log import transactions
from penstock.log.change_journal import Change, ChangeJournal
from penstock.log.committed import Committed, line_of, offsets_of
from penstock.log.positions import PartitionId
from penstock.log.transactions import Held, TransactionRecord


@dataclass(slots=True)
class GroupRecord:
    """What is kept of one group."""

    type: str = ""
    empty_since: int | None = None
    """Milliseconds since the epoch; None while the group has members, as far as was written."""
    offsets: dict[PartitionId, Committed] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Reached(Change):
    """A line of what a group has committed, which is not among the fields: there are many of them."""

    offsets: Mapping[PartitionId, Committed] = field(default_factory=dict)

    def line(self) -> bytes:
        """As it is written."""
        return line_of(self.fields["group"], self.fields["type"], self.offsets)


def committed(group: str, kind: str, offsets: Mapping[PartitionId, Committed]) -> Reached:
    """A group has reached new positions, all at the same time."""
    return Reached({"group": group, "type": kind}, offsets=offsets)


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


class OffsetsJournal(ChangeJournal):
    """See the module."""

    def __init__(self, files: Files, path: Path) -> None:
        self.groups: dict[str, GroupRecord] = {}
        self.transactions: dict[str, TransactionRecord] = {}
        self._holders: dict[str, set[str]] = {}
        """Group to the transactional ids that hold offsets of it."""
        super().__init__(files, path)

    def _live(self) -> Iterator[Change]:
        for name, record in self.groups.items():
            # An entry for each time, because the positions in a line share one.
            by_time: dict[int, dict[PartitionId, Committed]] = {}
            for partition, position in record.offsets.items():
                by_time.setdefault(position.time_ms, {})[partition] = position
            for offsets in by_time.values():
                yield committed(name, record.type, offsets)
            if record.offsets and record.empty_since is not None:
                yield occupied(name, record.type, record.empty_since)
        for name, transaction in self.transactions.items():
            for fields in transactions.live(name, transaction):
                yield Change(fields)

    def _follow(self, change: Change) -> None:
        if isinstance(change, Reached):
            self._reach(change.fields, change.offsets)
        else:
            self._apply(change.fields)

    def _apply(self, fields: dict[str, Any]) -> None:
        if "transaction" in fields:
            self._apply_transaction(fields)
        elif "topic_deleted" in fields:
            self._forget_topic(UUID(fields["topic_deleted"]))
        elif "deleted" in fields:
            self._delete(str(fields["group"]))
        elif "removed" in fields:
            self._remove(fields)
        elif "empty_since" in fields:
            since = fields["empty_since"]
            self._record(fields).empty_since = None if since is None else int(since)
        else:
            self._reach(fields, offsets_of(fields))

    def _reach(self, fields: dict[str, Any], offsets: Mapping[PartitionId, Committed]) -> None:
        self._record(fields).offsets.update(offsets)
        self._let_go(str(fields["group"]), offsets)

    def _remove(self, fields: dict[str, Any]) -> None:
        partitions = [PartitionId(UUID(t), int(number)) for t, number in fields["removed"]]
        offsets = self._record(fields).offsets
        for partition in partitions:
            offsets.pop(partition, None)
        if not offsets:
            del self.groups[fields["group"]]
        self._let_go(str(fields["group"]), partitions)

    def _delete(self, group: str) -> None:
        self.groups.pop(group, None)
        for name in self._holders.pop(group, ()):
            self.transactions[name].held.pop(group, None)

    def _let_go(self, group: str, partitions: Iterable[PartitionId]) -> None:
        """Open transactions hold these no more: what came later counts."""
        for name in self._holders.get(group, ()):
            _, offsets = self.transactions[name].held[group]
            for partition in partitions:
                offsets.pop(partition, None)

    def _apply_transaction(self, fields: dict[str, Any]) -> None:
        name = str(fields["transaction"])
        if "expired" in fields:
            self.transactions.pop(name, None)
            return
        record = self.transactions.setdefault(name, TransactionRecord())
        held = record.held
        transactions.apply(record, fields)
        if "group" in fields:
            self._holders.setdefault(str(fields["group"]), set()).add(name)
        elif "commit" in fields:
            self._ended(name, record, held)

    def _ended(self, name: str, record: TransactionRecord, held: Held) -> None:
        for group in held:
            self._holders[group].discard(name)
            if not self._holders[group]:
                del self._holders[group]
        for group, (kind, offsets) in record.committed.items():
            if offsets:
                self._record({"group": group, "type": kind}).offsets.update(offsets)

    def _record(self, fields: dict[str, Any]) -> GroupRecord:
        record = self.groups.setdefault(str(fields["group"]), GroupRecord())
        record.type = str(fields.get("type", record.type))
        return record

    def _forget_topic(self, topic_id: UUID) -> None:
        for name, record in list(self.groups.items()):
            for partition in [p for p in record.offsets if p.topic_id == topic_id]:
                del record.offsets[partition]
            if not record.offsets:
                del self.groups[name]
        for transaction in self.transactions.values():
            for _, offsets in transaction.held.values():
                for partition in [p for p in offsets if p.topic_id == topic_id]:
                    del offsets[partition]
