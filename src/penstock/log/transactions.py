"""What the journal of offsets keeps of transactions.

Lines, each of which changes what those before it said of the transactional id:

    {"transaction": T, "producer": P, "epoch": E, "timeout": MS, "time": MS}    who uses it now
    {..., "kept": [P, E]}                                                       and one stays open
    {"transaction": T, "enlisted": [[TOPIC_ID, PARTITION]...]}                  one is open, with these
    {..., "begun": MS}                                                          and since then
    {"transaction": T, "group": G, "type": K, "time": MS, "offsets": [...]}     it would commit these
    {"transaction": T, "commit": BOOL, "marker": [P, E], "ended": E, "producer": P, "epoch": E,
     "ends": [[TOPIC_ID, PARTITION, END]...], "time": MS}                       it ended; P, E are next
    {..., "owed": [[TOPIC_ID, PARTITION, END, COMMIT, P, E]...]}                and earlier ones did
    {"transaction": T, "cut": [[TOPIC_ID, PARTITION, END]...]}                  it is about nothing above
    {"transaction": T, "expired": true}                                         nothing is kept of it

A decision names the end that each partition had then: a transaction of that producer that is open in
the log below it is the one that was decided, and lacks its marker; one above it came later. Where a log
comes back shorter than that, "cut" says so, or what is written there from then on would be decided,
too. A partition that is damaged then has the end 2^63-1, and "owed" are earlier decisions on such
partitions, which may lack their markers as well. "kept" is who wrote the records of a transaction that
was taken over to be ended. A timeout of 2^31-1 stands for none.

Offsets that a transaction holds give way to those that are committed or removed after them, although it
ends later still: the lines stand in the order in which clients asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from penstock.log.committed import Committed, Offsets, fields_of, offsets_of
from penstock.log.positions import PartitionId

Held = dict[str, tuple[str, Offsets]]
"""Group to its type and the offsets it gets if the transaction commits."""


class Decision(NamedTuple):
    """How a transaction ended, and where its markers belong."""

    commit: bool
    producer_id: int
    epoch: int
    """Of the markers, which may be one above the transaction's own."""
    ended_epoch: int
    ends: Mapping[PartitionId, int]

    def cut(self, ends: Mapping[PartitionId, int]) -> Decision:
        """The same about nothing above these ends."""
        return self._replace(ends={p: min(end, ends.get(p, end)) for p, end in self.ends.items()})


@dataclass(slots=True)
class TransactionRecord:
    """What is kept of one transactional id."""

    producer_id: int = -1
    epoch: int = -1
    timeout_ms: int = 0
    used_ms: int = 0
    open: bool = False
    begun_ms: int | None = None
    """Since when, where that was written."""
    kept: tuple[int, int] | None = None
    """Id and epoch of who wrote the open transaction, if that is not who uses the id now."""
    enlisted: set[PartitionId] = field(default_factory=set)
    held: Held = field(default_factory=dict)
    committed: Held = field(default_factory=dict)
    """What the decision committed, of this run; for the one who shows it."""
    decision: Decision | None = None
    owed: dict[PartitionId, Decision] = field(default_factory=dict)
    """Earlier decisions on partitions that were damaged at the last one."""
    taken_over: bool = True
    """Whether a producer has registered since the decision."""


def registered(
    name: str,
    producer_id: int,
    epoch: int,
    timeout_ms: int,
    now: int,
    kept: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """A producer has begun to use the id, and may have kept what another has written."""
    line: dict[str, Any] = {
        "transaction": name,
        "producer": producer_id,
        "epoch": epoch,
        "timeout": timeout_ms,
        "time": now,
    }
    return line if kept is None else line | {"kept": list(kept)}


def enlisted(
    name: str, partitions: Collection[PartitionId], begun_ms: int | None = None
) -> dict[str, Any]:
    """A transaction is open, and has, or may get, records in these partitions."""
    places = [[str(p.topic_id), p.partition] for p in partitions]
    line: dict[str, Any] = {"transaction": name, "enlisted": places}
    return line if begun_ms is None else line | {"begun": begun_ms}


def held(
    name: str, group: str, kind: str, offsets: Mapping[PartitionId, Committed]
) -> dict[str, Any]:
    """A transaction is open, and commits these offsets if it commits."""
    return {"transaction": name, "group": group, "type": kind, **fields_of(offsets)}


def decided(
    name: str,
    decision: Decision,
    producer_id: int,
    epoch: int,
    now: int,
    owed: Mapping[PartitionId, Decision],
) -> dict[str, Any]:
    """A transaction has ended; its producer goes on with this id and epoch."""
    line: dict[str, Any] = {
        "transaction": name,
        "commit": decision.commit,
        "marker": [decision.producer_id, decision.epoch],
        "ended": decision.ended_epoch,
        "ends": [[str(p.topic_id), p.partition, end] for p, end in decision.ends.items()],
        "producer": producer_id,
        "epoch": epoch,
        "time": now,
    }
    earlier = [
        [str(p.topic_id), p.partition, d.ends[p], d.commit, d.producer_id, d.epoch]
        for p, d in owed.items()
    ]
    return line | {"owed": earlier} if earlier else line


def cut(name: str, ends: Mapping[PartitionId, int]) -> dict[str, Any]:
    """Logs end here, below the ends that they had when transactions were decided."""
    places = [[str(p.topic_id), p.partition, end] for p, end in ends.items()]
    return {"transaction": name, "cut": places}


def expired(name: str) -> dict[str, Any]:
    """The id has not been used for so long that nothing is kept of it."""
    return {"transaction": name, "expired": True}


def apply(record: TransactionRecord, fields: Mapping[str, Any]) -> None:
    """Follow a line."""
    if "enlisted" in fields:
        record.open = True
        record.enlisted |= {PartitionId(UUID(t), int(n)) for t, n in fields["enlisted"]}
        if "begun" in fields:
            record.begun_ms = int(fields["begun"])
        return
    if "group" in fields:
        record.open = True
        _, offsets = record.held.setdefault(str(fields["group"]), (str(fields["type"]), {}))
        offsets.update(offsets_of(fields))
        return
    if "cut" in fields:
        ends = _ends(fields["cut"])
        record.decision = record.decision and record.decision.cut(ends)
        record.owed = {p: decision.cut(ends) for p, decision in record.owed.items()}
        return
    record.producer_id, record.epoch = int(fields["producer"]), int(fields["epoch"])
    record.used_ms = int(fields["time"])
    if "timeout" in fields:
        record.timeout_ms = int(fields["timeout"])
        record.taken_over = True
        if "kept" in fields:
            producer_id, epoch = fields["kept"]
            record.kept = (int(producer_id), int(epoch))
        return
    producer_id, epoch = fields["marker"]
    ends = _ends(fields["ends"])
    record.decision = Decision(
        bool(fields["commit"]), int(producer_id), int(epoch), int(fields["ended"]), ends
    )
    record.owed = _owed(fields.get("owed", ()))
    record.taken_over = False
    record.committed = record.held if record.decision.commit else {}
    record.open, record.enlisted, record.held = False, set(), {}
    record.begun_ms = record.kept = None


def _ends(places: Iterable[Any]) -> dict[PartitionId, int]:
    return {PartitionId(UUID(topic_id), int(n)): int(end) for topic_id, n, end in places}


def _owed(lines: Iterable[Any]) -> dict[PartitionId, Decision]:
    owed: dict[PartitionId, Decision] = {}
    for topic_id, number, end, commit, producer_id, epoch in lines:
        identity = PartitionId(UUID(topic_id), int(number))
        owed[identity] = Decision(
            bool(commit), int(producer_id), int(epoch), int(epoch), {identity: int(end)}
        )
    return owed


def live(name: str, record: TransactionRecord) -> Iterator[dict[str, Any]]:
    """The lines that still count, for a rewritten journal."""
    identity = (record.producer_id, record.epoch)
    lines = [registered(name, *identity, record.timeout_ms, record.used_ms, record.kept)]
    if record.decision is not None:
        line = decided(name, record.decision, *identity, record.used_ms, record.owed)
        lines.insert(0 if record.taken_over else 1, line)
    yield from lines
    if record.open:
        yield enlisted(name, record.enlisted, record.begun_ms)
    for group, (kind, offsets) in record.held.items():
        by_time: dict[int, Offsets] = {}
        for partition, position in offsets.items():
            by_time.setdefault(position.time_ms, {})[partition] = position
        for together in by_time.values():
            yield held(name, group, kind, together)
