"""Decisions of transactions whose markers a damaged partition may still lack.

A partition that is damaged at a start is out of service until it is repaired, and nobody can say which
transactions are open in it. Transactional ids go on meanwhile, so each of their decisions names every
damaged partition, and carries along what earlier ones owe to it: what was acknowledged as committed is
committed after the repair, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from typing import Final

from penstock.log import transactions as journal_of
from penstock.log.positions import PartitionId
from penstock.log.transactions import Decision, TransactionRecord

END_UNKNOWN: Final = 2**63 - 1
"""The end of a partition that is damaged: whatever its producer has open there was decided."""


def owed_to(
    damaged: Set[PartitionId], record: TransactionRecord | None
) -> dict[PartitionId, Decision]:
    """What the decisions so far owe to partitions that are damaged now."""
    if record is None or not damaged:
        return {}
    found = {identity: record.owed[identity] for identity in damaged & record.owed.keys()}
    if record.decision is not None:
        # What is owed already is older, and counts: a damaged partition gets no second transaction.
        for identity in damaged & record.decision.ends.keys() - found.keys():
            found[identity] = record.decision
    return found


def cuts(
    transactions: Mapping[str, TransactionRecord], ends: Mapping[PartitionId, int]
) -> Iterator[dict[str, object]]:
    """Lines that keep decisions to what is there: what comes after it is none of theirs."""
    for name, record in transactions.items():
        if above := _reached_above(record, ends):
            yield journal_of.cut(name, above)


def _reached_above(
    record: TransactionRecord, ends: Mapping[PartitionId, int]
) -> dict[PartitionId, int]:
    """The ends of those partitions of which a decision says that they ended later."""
    decisions = [*record.owed.values(), *filter(None, [record.decision])]
    return {
        identity: ends[identity]
        for decision in decisions
        for identity, end in decision.ends.items()
        if end > ends.get(identity, end)
    }


def ids_by_producer(transactions: Mapping[str, TransactionRecord]) -> Mapping[int, list[str]]:
    """The transactional ids that have decided anything for a producer; every producer has a list."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for name, record in transactions.items():
        decisions = [*record.owed.values(), *filter(None, [record.decision])]
        for producer_id in {decision.producer_id for decision in decisions}:
            found[producer_id].append(name)
    return found


def decision_on(
    record: TransactionRecord, identity: PartitionId, producer_id: int, start: int
) -> Decision | None:
    """How the transaction was decided that a producer has open in a partition, if it was."""
    for decision in (record.owed.get(identity), record.decision):
        if decision is None or decision.producer_id != producer_id:
            continue
        if start < decision.ends.get(identity, 0):
            return decision
    return None
