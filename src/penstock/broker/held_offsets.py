"""Offsets that open transactions will commit: until then nobody can say where their groups stand.

Which of them count in the end is the journal's to say, where they stand in order with the commits that
came later (log/offsets.py).
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from penstock.log.positions import PartitionId


class HeldOffsets:
    """Group to transactional id to partitions."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, set[PartitionId]]] = {}

    def partitions(self, group: str) -> set[PartitionId]:
        """Those of a group that a transaction may move."""
        return set().union(*self._groups.get(group, {}).values())

    def hold(self, transaction: str, group: str, partitions: Collection[PartitionId]) -> None:
        """A transaction commits these if it commits."""
        self._groups.setdefault(group, {}).setdefault(transaction, set()).update(partitions)

    def end(self, transaction: str) -> None:
        """A transaction has ended."""
        for group in [name for name, holders in self._groups.items() if transaction in holders]:
            del self._groups[group][transaction]
            if not self._groups[group]:
                del self._groups[group]

    def remove(self, group: str, partitions: Collection[PartitionId]) -> None:
        """Some of a group's offsets were removed."""
        for held in self._groups.get(group, {}).values():
            held.difference_update(partitions)

    def remove_group(self, group: str) -> None:
        """All of a group's offsets were removed."""
        self._groups.pop(group, None)

    def remove_topic(self, topic_id: UUID) -> None:
        """A topic was deleted."""
        for group in list(self._groups):
            gone = [p for p in self.partitions(group) if p.topic_id == topic_id]
            self.remove(group, gone)
