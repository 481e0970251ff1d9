"""What clients of a broker were told and saw, and whether a later reading of the log agrees.

The journal is kept by the clients, outside of the broker that is killed: what was sent, at which
offset it was acknowledged, what a reader saw. `check` compares it with the whole log, as any client
reads it, and names what is wrong in the words of Jepsen's Kafka tests, as far as they fit a log
without transactions. (oracle.py does the same for the log's insides: batches, observers, topics.)

Producers are taken to be idempotent, so that no record may be there twice, acknowledged or not, and
the log to be kept whole from offset 0 on, so that it has no holes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Spot(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class Kind(StrEnum):
    """What can be wrong."""

    LOST = "lost: acknowledged, and not in the log although later records are"
    UNSEEN = "unseen: acknowledged at an offset that the log does not reach"
    VANISHED = "vanished: a reader saw it, and it is not in the log"
    INCONSISTENT = "inconsistent offsets: two records at one offset"
    DUPLICATE = "duplicate: one record at two offsets"
    REORDERED = "reordered: a producer's records are not in the order it sent them"
    STRANGER = "stranger: nobody sent it; changed, or put together from others"
    HOLE = "hole: an offset that no record has"
    SKIPPED = "skipped: a reader jumped over records"
    BACKWARDS = "backwards: a reader was sent back"


class Anomaly(NamedTuple):
    """One thing that is wrong."""

    kind: Kind
    spot: Spot
    detail: str

    def __str__(self) -> str:
        return f"{self.spot.topic}-{self.spot.partition}: {self.kind}: {self.detail}"


class Entry(NamedTuple):
    """A record at its offset."""

    offset: int
    name: bytes


class _Sent(NamedTuple):
    producer: int
    number: int
    """Counts the producer's records in this partition."""


class _Promises(NamedTuple):
    """How many lines the journal had when the log was asked."""

    acknowledged: int
    seen: int


@dataclass
class _Facts:
    """Everything is only ever added to, by one thread each, so that nobody needs a lock."""

    sent: dict[bytes, _Sent] = field(default_factory=dict)
    sent_by: dict[int, int] = field(default_factory=dict)
    acknowledged: list[Entry] = field(default_factory=list)
    seen: list[Entry] = field(default_factory=list)
    last_log: list[Entry] = field(default_factory=list)


class History:
    """The journal. A record's name tells it from all others, and its bytes from changed ones."""

    def __init__(self, spots: Sequence[Spot]) -> None:
        self._facts = {spot: _Facts() for spot in spots}

    @property
    def spots(self) -> list[Spot]:
        return list(self._facts)

    # -- what clients note

    def sent(self, spot: Spot, producer: int, name: bytes) -> None:
        """Noted before it is sent: a record can be read before its producer hears of it."""
        facts = self._facts[spot]
        assert name not in facts.sent
        number = facts.sent_by.get(producer, 0)
        facts.sent_by[producer] = number + 1
        facts.sent[name] = _Sent(producer, number)

    def acknowledged(self, spot: Spot, name: bytes, offset: int) -> None:
        self._facts[spot].acknowledged.append(Entry(offset, name))

    def saw(self, spot: Spot, offset: int, name: bytes) -> None:
        """A reader that goes on from record to record, through all of the broker's lives."""
        self._facts[spot].seen.append(Entry(offset, name))

    def counts(self) -> tuple[int, int, int]:
        """How many records were sent, acknowledged and seen."""
        every = self._facts.values()
        return (
            sum(len(facts.sent) for facts in every),
            sum(len(facts.acknowledged) for facts in every),
            sum(len(facts.seen) for facts in every),
        )

    # -- checking

    def promises(self) -> dict[Spot, _Promises]:
        """What the log must hold from now on. To be taken before the log is read."""
        return {
            spot: _Promises(len(facts.acknowledged), len(facts.seen))
            for spot, facts in self._facts.items()
        }

    def check(
        self, promises: dict[Spot, _Promises], logs: dict[Spot, list[Entry]]
    ) -> list[Anomaly]:
        """Compare whole logs, read after the promises were taken; then they are promises too."""
        found: list[Anomaly] = []
        for spot, facts in self._facts.items():
            checker = _Checker(spot, facts, logs[spot])
            checker.check(promises[spot])
            found += checker.found
            facts.last_log = logs[spot]
        return found


class _Checker:
    """One partition against one reading of it."""

    def __init__(self, spot: Spot, facts: _Facts, log: list[Entry]) -> None:
        self._spot = spot
        self._facts = facts
        self._log = log
        self._by_offset = dict(log)
        self._end = log[-1].offset + 1 if log else 0
        self.found: list[Anomaly] = []

    def check(self, promises: _Promises) -> None:
        self._check_log()
        self._check_acknowledged(self._facts.acknowledged[: promises.acknowledged])
        seen = self._facts.seen[: promises.seen]
        self._check_seen(seen)
        self._check_steps(seen)
        if self._log[: len(self._facts.last_log)] != self._facts.last_log:
            self._check_seen(self._facts.last_log)

    def _note(self, kind: Kind, detail: str) -> None:
        self.found.append(Anomaly(kind, self._spot, detail))

    def _check_log(self) -> None:
        """The log by itself, and what was sent."""
        places: dict[bytes, int] = {}
        last: dict[int, _Sent] = {}
        for expected, (offset, name) in enumerate(self._log):
            if offset != expected and (
                expected == 0 or self._log[expected - 1].offset != offset - 1
            ):
                self._note(Kind.HOLE, f"{offset} is record {expected} of the log")
            if name in places:
                self._note(Kind.DUPLICATE, f"{name!r} at {places[name]} and {offset}")
                continue
            places[name] = offset
            sent = self._facts.sent.get(name)
            if sent is None:
                self._note(Kind.STRANGER, f"{name!r} at {offset}")
                continue
            before = last.get(sent.producer)
            if before is not None and before.number > sent.number:
                self._note(
                    Kind.REORDERED,
                    f"number {sent.number} of producer {sent.producer} at {offset}, "
                    f"after its number {before.number}",
                )
            last[sent.producer] = sent

    def _check_acknowledged(self, acknowledged: list[Entry]) -> None:
        offsets: dict[int, bytes] = {}
        for offset, name in acknowledged:
            if offsets.setdefault(offset, name) != name:
                self._note(
                    Kind.INCONSISTENT, f"{offset} acknowledged for {offsets[offset]!r} and {name!r}"
                )
            if offset >= self._end:
                self._note(Kind.UNSEEN, f"{name!r} at {offset}, the log ends at {self._end}")
                continue
            there = self._by_offset.get(offset)
            if there is None:
                self._note(Kind.LOST, f"{name!r} at {offset}")
            elif there != name:
                self._note(Kind.INCONSISTENT, f"{name!r} acknowledged at {offset}, {there!r} there")

    def _check_seen(self, seen: list[Entry]) -> None:
        for offset, name in seen:
            there = self._by_offset.get(offset)
            if there is None:
                self._note(Kind.VANISHED, f"{name!r} at {offset}, the log ends at {self._end}")
            elif there != name:
                self._note(Kind.INCONSISTENT, f"{name!r} seen at {offset}, {there!r} there")

    def _check_steps(self, seen: list[Entry]) -> None:
        position = 0
        for offset, name in seen:
            if offset > position:
                self._note(Kind.SKIPPED, f"from {position} to {offset}, {name!r}")
            elif offset < position:
                self._note(Kind.BACKWARDS, f"from {position} to {offset}, {name!r}")
            position = offset + 1
