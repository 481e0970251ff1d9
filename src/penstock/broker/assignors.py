"""Who gets which partitions: the assignors of the server (Kafka's `uniform` and `range`).

An assignor is a function of the members with the topics that each reads, the topics, and what was
shared out before; it returns everybody's new share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple
from uuid import UUID

from penstock.log.positions import PartitionId

Share = frozenset[PartitionId]
NOTHING: Final[Share] = frozenset()


class Shape(NamedTuple):
    """What sharing out needs to know of a topic."""

    id: UUID
    partitions: int


class Reader(NamedTuple):
    """A member and the topics it reads, all of which exist."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]


Shares = dict[str, Share]
Assignor = Callable[[list[Reader], Mapping[str, Shape], Mapping[str, Share]], Shares]


def share_by_range(
    readers: list[Reader], shapes: Mapping[str, Shape], before: Mapping[str, Share]
) -> Shares:
    """Of each topic a run of neighbours to every reader, so that equal keys stay together."""
    # Static members keep their place among the others when their process is replaced.
    in_order = sorted(
        readers, key=lambda r: (r.instance_id is None, r.instance_id or "", r.member_id)
    )
    shares: dict[str, set[PartitionId]] = {reader.member_id: set() for reader in readers}
    for name, shape in shapes.items():
        members = [reader.member_id for reader in in_order if name in reader.topics]
        if not members:
            continue
        each, more = divmod(shape.partitions, len(members))
        first = 0
        for place, member in enumerate(members):
            end = first + each + (place < more)
            shares[member].update(PartitionId(shape.id, n) for n in range(first, end))
            first = end
    return {member: frozenset(share) for member, share in shares.items()}


def share_uniformly(
    readers: list[Reader], shapes: Mapping[str, Shape], before: Mapping[str, Share]
) -> Shares:
    """As many partitions to everyone, and as few of them moved as that allows."""
    return _Uniform(readers, shapes).share(before)


class _Uniform:
    """Keeps what can stay, gives the rest to whoever has least, then evens out."""

    def __init__(self, readers: list[Reader], shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes
        self._names = {shape.id: name for name, shape in shapes.items()}
        # Readers of the same topics are equals: one heap for each kind finds the least loaded.
        self._kind_of = {reader.member_id: reader.topics for reader in readers}
        self._heaps: dict[frozenset[str], list[tuple[int, str]]] = {}
        self._readers: dict[str, list[frozenset[str]]] = {name: [] for name in shapes}
        for kind in dict.fromkeys(reader.topics for reader in readers):
            self._heaps[kind] = []
            for name in kind:
                self._readers[name].append(kind)
        # What each has, by topic: what can move depends on the topic only.
        self._shares: dict[str, dict[str, list[PartitionId]]] = {r.member_id: {} for r in readers}
        self._loads: dict[str, int] = dict.fromkeys(sorted(self._shares), 0)

    def share(self, before: Mapping[str, Share]) -> Shares:
        left = self._keep(before)
        for member, load in self._loads.items():
            self._heaps[self._kind_of[member]].append((load, member))
        for heap in self._heaps.values():
            heapify(heap)
        for name, partition in left:
            least = self._least(name)
            if least is not None:
                self._give(least, name, partition)
        while self._even_out():
            pass
        return {
            member: frozenset(p for items in by_topic.values() for p in items)
            for member, by_topic in self._shares.items()
        }

    def _keep(self, before: Mapping[str, Share]) -> list[tuple[str, PartitionId]]:
        """Leave partitions where they are; those that nobody had."""
        kept: set[PartitionId] = set()
        for member, share in before.items():
            for partition in sorted(share) if member in self._loads else ():
                name = self._names.get(partition.topic_id)
                if name is None or name not in self._kind_of[member] or partition in kept:
                    continue
                if partition.partition < self._shapes[name].partitions:
                    kept.add(partition)
                    self._shares[member].setdefault(name, []).append(partition)
                    self._loads[member] += 1
        everything = (
            (name, PartitionId(shape.id, number))
            for name, shape in self._shapes.items()
            for number in range(shape.partitions)
        )
        return [item for item in everything if item[1] not in kept]

    def _least(self, name: str) -> str | None:
        """The least loaded of those that read a topic."""
        best: tuple[int, str] | None = None
        for kind in self._readers[name]:
            heap = self._heaps[kind]
            while heap[0][0] != self._loads[heap[0][1]]:
                heappop(heap)  # that was its load once
            if best is None or heap[0] < best:
                best = heap[0]
        return None if best is None else best[1]

    def _give(self, member: str, name: str, partition: PartitionId) -> None:
        self._shares[member].setdefault(name, []).append(partition)
        self._count(member, 1)

    def _count(self, member: str, change: int) -> None:
        self._loads[member] += change
        heappush(self._heaps[self._kind_of[member]], (self._loads[member], member))

    def _even_out(self) -> bool:
        """Move from the most loaded first, so that nothing moves twice; whether anything did."""
        moved = False
        most = [(-load, member) for member, load in self._loads.items()]
        heapify(most)
        while most:
            _, member = heappop(most)
            if self._relieve(member):
                moved = True
                heappush(most, (-self._loads[member], member))
        return moved

    def _relieve(self, member: str) -> bool:
        """Move one partition to somebody who has at least two less."""
        for name, partitions in self._shares[member].items():
            least = self._least(name) if partitions else None
            if least is not None and self._loads[least] + 1 < self._loads[member]:
                partition = partitions.pop()
                self._count(member, -1)
                self._give(least, name, partition)
                return True
        return False


# The first is what a group uses whose members do not say; Kafka's group.consumer.assignors.
ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": share_uniformly, "range": share_by_range}
