"""Which transactional ids a start has to ask about a transaction that is open in a partition."""

from __future__ import annotations

from uuid import uuid4

from penstock.broker.owed_markers import ids_by_producer
from penstock.log.positions import PartitionId
from penstock.log.transactions import Decision, TransactionRecord


def test_only_those_that_decided_something_for_its_producer() -> None:
    place = PartitionId(uuid4(), 0)
    decided = {
        f"id-{number}": TransactionRecord(decision=Decision(True, number, 0, 0, {place: 9}))
        for number in range(100)
    }
    decided["id-7"].owed = {place: Decision(False, 3, 0, 0, {place: 5})}
    decided["never"] = TransactionRecord()
    found = ids_by_producer(decided)
    assert found[3] == ["id-3", "id-7"]
    assert found[7] == ["id-7"]
    assert found[1000] == []
