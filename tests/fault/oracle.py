"""What the clients of a log were told, and whether a log that was opened later keeps to it.

Every acknowledged record is there once, at its offset and in order; nothing is there twice; what a
reader saw before a crash is there after it; deletions that were acknowledged stay done, and those
that were not are done wholly or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID


class Spot(NamedTuple):
    """A partition, named for good."""

    topic_id: UUID
    partition: int


class Token(NamedTuple):
    """What tells a batch from all others of its partition."""

    producer: int
    sequence: int


@dataclass
class Sent:
    """A batch that a producer tried to write, and what it was told."""

    token: Token
    values: list[bytes]
    acked_at: int | None = None
    refused: bool = False


@dataclass
class TopicFacts:
    """What is known of a topic from outside."""

    name: str
    partitions: int
    created: bool = False
    delete_asked: bool = False
    deleted: bool = False
    revision_asked: int = 0
    revision_acked: int = -1
    partitions_acked: int = 0


@dataclass
class PartitionFacts:
    """What is known of a partition from outside."""

    sent: dict[Token, Sent] = field(default_factory=dict)
    seen: dict[int, bytes] = field(default_factory=dict)
    start_asked: int = 0
    start_acked: int = 0


class Found(NamedTuple):
    """A partition as a reader finds it."""

    start: int
    end: int
    values: dict[int, bytes]
    batches: list[tuple[Token, int]]
    witnessed: list[tuple[Token, int]]


class Broken(AssertionError):
    """A promise that was not kept."""


@dataclass
class Oracle:
    """Remembers, across all lives of the log."""

    topics: dict[UUID, TopicFacts] = field(default_factory=dict)
    partitions: dict[Spot, PartitionFacts] = field(default_factory=dict)
    next_number: int = 1

    def number(self) -> int:
        """A number nobody had."""
        self.next_number += 1
        return self.next_number

    def at(self, spot: Spot) -> PartitionFacts:
        """What is known of a partition."""
        return self.partitions.setdefault(spot, PartitionFacts())

    def unknown(self, spot: Spot) -> list[Sent]:
        """Batches whose fate their producer does not know, in the order they were sent."""
        sent = self.at(spot).sent.values()
        return [batch for batch in sent if batch.acked_at is None and not batch.refused]

    def forget_records(self) -> None:
        """Release the log from what it said of records; topics that are not synced promise less."""
        for facts in self.partitions.values():
            facts.seen.clear()
            facts.start_acked = 0
            for sent in facts.sent.values():
                sent.acked_at, sent.refused = None, True

    # -- checks

    def check_topics(self, found: dict[UUID, tuple[str, int, int]]) -> None:
        """Found are name, partitions and revision of every topic."""
        names = [name for name, _, _ in found.values()]
        _must(len(names) == len(set(names)), f"two topics of one name: {sorted(names)}")
        for topic_id, facts in self.topics.items():
            who = f"topic {facts.name} {topic_id}"
            if facts.deleted:
                _must(topic_id not in found, f"{who} was deleted and is back")
            elif facts.created and not facts.delete_asked:
                _must(topic_id in found, f"{who} was created and is gone")
            if topic_id in found:
                _, partitions, revision = found[topic_id]
                _must(
                    facts.revision_acked <= revision <= facts.revision_asked,
                    f"{who} has revision {revision}, acknowledged was {facts.revision_acked}",
                )
                _must(partitions >= facts.partitions_acked, f"{who} lost partitions")
        unheard = set(found) - set(self.topics)
        _must(not unheard, f"topics nobody made: {unheard}")

    def check_partition(self, spot: Spot, found: Found) -> None:
        """Raise Broken if a promise about the partition was not kept."""
        facts = self.at(spot)
        who = f"{self.topics[spot.topic_id].name}-{spot.partition}"
        _must(
            facts.start_acked <= found.start <= facts.start_asked,
            f"{who} starts at {found.start}; acknowledged {facts.start_acked}, "
            f"asked {facts.start_asked}",
        )
        _must(
            list(found.values) == list(range(found.start, found.end)),
            f"{who} has holes: {list(found.values)} for {found.start} to {found.end}",
        )
        self._check_values(who, facts, found)
        for offset, value in facts.seen.items():
            if offset >= found.start:
                _must(
                    found.values.get(offset) == value, f"{who}: {value!r} seen at {offset} is gone"
                )
        stored = [batch for batch in found.witnessed if batch[1] >= found.start]
        expected = [batch for batch in found.batches if batch[1] >= found.start]
        _must(stored == expected, f"{who}: the observer knows {stored}, the log holds {expected}")

    def _check_values(self, who: str, facts: PartitionFacts, found: Found) -> None:
        sent = {value for batch in facts.sent.values() for value in batch.values}
        twice = _twice(found.values.values())
        _must(not twice, f"{who}: {twice} are there twice")
        strangers = set(found.values.values()) - sent
        _must(not strangers, f"{who}: {strangers} were never sent")
        for batch in facts.sent.values():
            if batch.acked_at is None:
                continue
            for index, value in enumerate(batch.values):
                offset = batch.acked_at + index
                if offset >= found.start:
                    _must(
                        found.values.get(offset) == value,
                        f"{who}: {value!r}, acknowledged at {offset}, is lost: the log holds "
                        f"{found.values.get(offset)!r} there, {found.start} to {found.end}",
                    )
        last: dict[int, int] = {}
        for token, offset in found.batches:
            _must(
                token.sequence > last.get(token.producer, -1), f"{who}: {token} at {offset} moved"
            )
            last[token.producer] = token.sequence

    def note_seen(self, spot: Spot, found: Found) -> None:
        """A reader has seen this."""
        self.at(spot).seen.update(found.values)


def _twice(values: Iterable[bytes]) -> list[bytes]:
    def repeated() -> Iterator[bytes]:
        known: set[bytes] = set()
        for value in values:
            if value in known:
                yield value
            known.add(value)

    return list(repeated())


def _must(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Broken(otherwise)
