"""All queues of the broker, by who reads them: found in the journal, made, moved and removed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from uuid import UUID

from penstock.broker.journaling import Done, write
from penstock.broker.queues import journal as journal_of
from penstock.broker.queues.journal import QueueId, QueueJournal
from penstock.broker.queues.ledger import Ledger
from penstock.broker.queues.queue import Queue, Rules
from penstock.broker.timers import CallLater
from penstock.clock import Clock
from penstock.errors import StorageError
from penstock.log.change_journal import Change
from penstock.log.positions import Ends, PartitionId
from penstock.log.store import LogStore

_RETRY_SECONDS = 1.0


class Queues:
    """See the module."""

    def __init__(
        self, store: LogStore, clock: Clock, call_later: CallLater, rules: Callable[[str], Rules]
    ) -> None:
        self._commit = store.commit
        self._journal = store.open_journal("queues.journal", QueueJournal)
        self._clock = clock
        self._call_later = call_later
        self._rules = rules
        self._queues: dict[str, dict[PartitionId, Queue]] = {}

    def open(self, topics: Collection[UUID], end_of: Ends) -> list[str]:
        """Take over what the journal knows; returns who has queues.

        Topics that are gone took their queues with them. A log that lost its end, as those may that
        are not synced, will get other records in the place of what was finished.
        """
        cut: list[tuple[Queue, int]] = []
        gone: set[UUID] = set()
        for queue_id, kept in self._journal.ledgers.items():
            topic_id = queue_id.partition.topic_id
            if topic_id not in topics:
                gone.add(topic_id)
                continue
            ledger = Ledger(kept.start, kept.kept())
            end = end_of(queue_id.partition)
            queue = self._add(queue_id, ledger)
            if end is not None and ledger.end > end:
                ledger.cut(end)
                cut.append((queue, end))
            else:
                queue.is_durable = True
        for queue, end in cut:
            self._cut(queue, end)
        for topic_id in gone:
            self._write(journal_of.topic_deleted(topic_id), lambda _: None)
        return list(self._queues)

    def _cut(self, queue: Queue, end: int) -> None:
        """Forget for good what is above a log's end; until then nothing of it is given out.

        Otherwise what was finished there would be taken for what comes there now.
        """

        def settled(error: StorageError | None) -> None:
            if error is None:
                queue.is_durable = True
                queue.wake()
            else:
                self._call_later(_RETRY_SECONDS, partial(self._cut, queue, end))

        self._write(journal_of.cut(queue.id, end), settled)

    def stop(self) -> None:
        """Watch no holder any more: the broker is on its way out."""
        for queues in self._queues.values():
            for queue in queues.values():
                queue.stop()

    # -- looking

    def of(self, readers: str) -> Mapping[PartitionId, Queue]:
        """All queues of some readers."""
        return self._queues.get(readers, {})

    # -- making and removing

    def begin(self, queue_id: QueueId, position: int, done: Done) -> Queue:
        """Make a queue, or let it start anew; it can be used when that is durable."""
        before = self.of(queue_id.readers).get(queue_id.partition)
        queue = self._add(queue_id, Ledger(position))

        def settled(error: StorageError | None) -> None:
            if error is None:
                queue.is_durable = True
                if before is not None:
                    before.stop()
            elif self.of(queue_id.readers).get(queue_id.partition) is queue:
                del self._queues[queue_id.readers][queue_id.partition]
                if before is not None:
                    self._queues[queue_id.readers][queue_id.partition] = before
            queue.wake()
            done(error)

        self._write(journal_of.begins(queue_id, position), settled)
        return queue

    def remove(self, readers: str, partitions: Collection[PartitionId], done: Done) -> None:
        """Forget some queues of some readers; done is called once, when the last is gone for good."""
        errors: list[StorageError] = []

        def note(error: StorageError | None) -> None:
            if error is not None:
                errors.append(error)

        for partition in partitions:
            queue = self._queues[readers].pop(partition)
            queue.stop()
            queue.wake()
            self._write(journal_of.deleted(queue.id), note)
        self._commit.after(lambda: done(errors[0] if errors else None))

    def remove_all(self, readers: str, done: Done) -> None:
        """Forget all queues of some readers."""
        for queue in self._queues.pop(readers, {}).values():
            queue.stop()
            queue.wake()
        self._write(journal_of.readers_deleted(readers), done)

    def remove_topic(self, topic_id: UUID) -> None:
        """Forget every queue over a topic; durable after the next round."""
        for queues in self._queues.values():
            for partition in [p for p in queues if p.topic_id == topic_id]:
                queue = queues.pop(partition)
                queue.stop()
                queue.wake()
        # Even if there is none: one may be on its way.
        self._write(journal_of.topic_deleted(topic_id), lambda _: None)

    def leave(self, readers: str, holder: str) -> None:
        """A holder has gone."""
        for queue in self.of(readers).values():
            queue.leave(holder)

    def _add(self, queue_id: QueueId, ledger: Ledger) -> Queue:
        queue = Queue(
            queue_id,
            ledger,
            write=self._write,
            rules=lambda: self._rules(queue_id.readers),
            clock=self._clock,
            call_later=self._call_later,
        )
        self._queues.setdefault(queue_id.readers, {})[queue_id.partition] = queue
        return queue

    def _write(self, change: Change, done: Done) -> None:
        write(self._journal, self._commit, change, "remember what is finished", done)
