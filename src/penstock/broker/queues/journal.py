"""The journal of queues: what of each is finished, and how often the rest was delivered.

    {"queue": [READERS, TOPIC_ID, PARTITION], "begins": N}    from here on nothing is known
    {"queue": [...], "kept": [[FIRST, LAST, DELIVERIES]...]}  null for DELIVERIES: finished
    {"queue": [...], "cut": N}                                the log ends here, and so do we
    {"queue": [...], "deleted": true}
    {"readers": READERS, "deleted": true}                     all their queues are gone
    {"topic_deleted": TOPIC_ID}                               all queues over it are gone

What is given out at the moment is not written: after a crash it is given out again, and counts as
often as it had been given back before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from penstock.broker.queues.ledger import Kept, Ledger
from penstock.files import Files
from penstock.log.change_journal import Change, ChangeJournal
from penstock.log.positions import PartitionId


class QueueId(NamedTuple):
    """Names a queue: who reads, and what."""

    readers: str
    partition: PartitionId


def begins(queue: QueueId, position: int) -> Change:
    """A queue is made, or starts anew somewhere else."""
    return Change({"queue": _name(queue), "begins": position})


def kept(queue: QueueId, runs: Sequence[Kept]) -> Change:
    """Positions are finished, or were given back."""
    return Change({"queue": _name(queue), "kept": runs})


def cut(queue: QueueId, position: int) -> Change:
    """The log has lost its end."""
    return Change({"queue": _name(queue), "cut": position})


def deleted(queue: QueueId) -> Change:
    """A queue is gone."""
    return Change({"queue": _name(queue), "deleted": True})


def readers_deleted(readers: str) -> Change:
    """All queues of some readers are gone."""
    return Change({"readers": readers, "deleted": True})


def topic_deleted(topic_id: UUID) -> Change:
    """All queues over a topic are gone."""
    return Change({"topic_deleted": str(topic_id)})


def _name(queue: QueueId) -> list[str | int]:
    return [queue.readers, str(queue.partition.topic_id), queue.partition.partition]


class QueueJournal(ChangeJournal):
    """See the module."""

    def __init__(self, files: Files, path: Path) -> None:
        self.ledgers: dict[QueueId, Ledger] = {}
        super().__init__(files, path)

    def _live(self) -> Iterator[Change]:
        for queue, ledger in self.ledgers.items():
            yield begins(queue, ledger.start)
            if len(ledger):
                yield kept(queue, list(ledger.kept()))

    def _apply(self, fields: dict[str, Any]) -> None:
        if "topic_deleted" in fields:
            topic_id = UUID(fields["topic_deleted"])
            self._forget([q for q in self.ledgers if q.partition.topic_id == topic_id])
        elif "readers" in fields:
            self._forget([q for q in self.ledgers if q.readers == fields["readers"]])
        else:
            readers, topic_id, number = fields["queue"]
            queue = QueueId(str(readers), PartitionId(UUID(topic_id), int(number)))
            self._apply_to(queue, fields)

    def _apply_to(self, queue: QueueId, fields: dict[str, Any]) -> None:
        if "deleted" in fields:
            self._forget([queue])
        elif "begins" in fields:
            self.ledgers[queue] = Ledger(int(fields["begins"]))
        elif queue in self.ledgers:  # or it was deleted while this was on its way
            ledger = self.ledgers[queue]
            if "cut" in fields:
                ledger.cut(int(fields["cut"]))
            else:
                ledger.restore(_runs(fields["kept"]))

    def _forget(self, queues: list[QueueId]) -> None:
        for queue in queues:
            self.ledgers.pop(queue, None)


def _runs(fields: list[Any]) -> list[Kept]:
    runs: list[Kept] = []
    for first, last, deliveries in fields:
        if not 0 <= first <= last:
            raise ValueError(f"no positions from {first} to {last}")
        runs.append(Kept(int(first), int(last), None if deliveries is None else int(deliveries)))
    return runs
