"""The coordinator of transactions: decides each once, for good, and brings the decision everywhere.

The decision is one entry of the journal of offsets, with the offsets that the transaction commits. Once
it is durable the partitions get their markers; after a crash those that are missing are written from
the journal. What a transaction has touched is known from the log itself, so that a batch needs no entry.

Both of Kafka's protocols are served. In the older one clients enlist partitions before they write and
keep their epoch; in the newer one (KIP-890) writing enlists, and every transaction has an epoch of its
own, which keeps late batches of one out of the next.

A two-phase transaction (KIP-939) waits for a decision that is made elsewhere, in a database for example.
It needs nothing that others do not have, except that it never times out and can change hands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Set
from functools import partial

from penstock.broker.appending import Appender
from penstock.broker.groups import Groups
from penstock.broker.journaling import Done, write
from penstock.broker.owed_markers import END_UNKNOWN, cuts, decision_on, ids_by_producer, owed_to
from penstock.broker.timers import CallLater
from penstock.broker.transaction import (
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    Ended,
    Producer,
    State,
    Transaction,
)
from penstock.broker.transaction_errors import (
    InvalidTimeoutError,
    InvalidTransactionStateError,
    OldEpochError,
    UnknownTransactionError,
)
from penstock.clock import Clock
from penstock.errors import PenstockError, StorageError
from penstock.limits import TRANSACTION_ID_EXPIRY_MS, TRANSACTION_TIMEOUT_MS_MAX
from penstock.log import transactions as journal_of
from penstock.log.change_journal import Change
from penstock.log.committed import Offsets
from penstock.log.partition import Partition
from penstock.log.positions import PartitionId
from penstock.log.store import LogStore
from penstock.log.transactions import Decision, TransactionRecord

_EPOCH_MAX = 32_766  # the largest that can still be raised once, to fence
_RETRY_SECONDS = 1.0
_log = logging.getLogger(__name__)

ProducerDone = Callable[[PenstockError | None, Producer], None]
RegisterDone = Callable[[PenstockError | None, Producer, Producer], None]
"""What went wrong; the producer; and who wrote the open transaction that was kept, or NO_PRODUCER."""
FindPartition = Callable[[PartitionId], Partition | None]


class Transactions:
    """See the module."""

    def __init__(
        self,
        store: LogStore,
        clock: Clock,
        call_later: CallLater,
        *,
        groups: Groups,
        appender: Appender,
        find: FindPartition,
        damaged: Set[PartitionId],
        new_producer_id: Callable[[], int],
    ) -> None:
        self._journal = store.offsets
        self._commit = store.commit
        self._clock = clock
        self._call_later = call_later
        self._groups = groups
        self._appender = appender
        self._find = find
        self._damaged = damaged
        self._new_producer_id = new_producer_id
        self._by_name: dict[str, Transaction] = {}
        self._by_producer: dict[int, Transaction] = {}

    # -- after a start

    def open(self, partitions: Iterable[Partition]) -> None:
        """Take over what the journal and the partitions know, and finish what a crash interrupted."""
        for name, record in self._journal.transactions.items():
            self._take_over(name, record)
        ids = ids_by_producer(self._journal.transactions)
        ends: dict[PartitionId, int] = {}
        for partition in partitions:
            producers = self._appender.producers(partition)
            for producer_id, start in list(producers.open_transactions.items()):
                producer = Producer(producer_id, producers.epoch_of(producer_id))
                self._settle(partition, producer, start, ids[producer_id])
            ends[partition.identity] = partition.end_offset
        # Queued before any request is answered: durable before anything that comes there is.
        for line in cuts(self._journal.transactions, ends):
            self._write(line, lambda _: None)
        for transaction in self._by_name.values():
            if transaction.state is State.OPEN:
                self._set_alarm(transaction)

    def _take_over(self, name: str, record: TransactionRecord) -> None:
        producer = Producer(record.producer_id, record.epoch)
        transaction = Transaction(name, producer, record.timeout_ms, self._call_later)
        transaction.used_ms = record.used_ms
        if record.decision is not None and not record.taken_over:
            ended = Producer(record.decision.producer_id, record.decision.ended_epoch)
            transaction.last = Ended(ended, record.decision.commit)
        if record.kept is not None:
            transaction.kept = Producer(*record.kept)
        self._by_name[name] = transaction
        for number in transaction.producer_ids:
            self._by_producer[number] = transaction
        if record.open or record.kept is not None:
            self._begin(transaction, record.begun_ms)
            transaction.partitions |= record.enlisted
            for group, (_, offsets) in record.held.items():
                self._groups.held.hold(name, group, offsets)

    def _settle(self, partition: Partition, producer: Producer, start: int, ids: list[str]) -> None:
        """A transaction is open in a partition: decided, going on, or nobody's."""
        identity = partition.identity
        for name in ids:
            decision = decision_on(self._journal.transactions[name], identity, producer.id, start)
            if decision is not None:
                self._by_name[name].unmarked[identity] = decision
                self._mark_rest(self._by_name[name], decision)
                return
        transaction = self._by_producer.get(producer.id)
        if transaction is not None and transaction.author == producer:
            if transaction.state is State.EMPTY:
                self._begin(transaction)
            transaction.partitions.add(identity)
            return
        _log.warning(
            "%s: aborted a transaction of producer %d that nobody ends", partition, producer.id
        )
        self._abort_nobodys(partition, producer)

    def _abort_nobodys(self, partition: Partition, producer: Producer) -> None:
        abort = Decision(False, producer.id, producer.epoch, producer.epoch, {})
        if not self._mark(partition, abort) and partition.offline is None:
            self._call_later(_RETRY_SECONDS, partial(self._abort_nobodys, partition, producer))

    def _mark_rest(self, transaction: Transaction, decision: Decision) -> None:
        """Carry out a decision where its markers were missing at the start, as often as it takes."""
        transaction.settled = False
        for identity, made in list(transaction.unmarked.items()):
            partition = self._find(identity)
            if partition is None or self._mark(partition, made):
                del transaction.unmarked[identity]
            elif partition.offline is None:
                self._call_later(_RETRY_SECONDS, partial(self._mark_rest, transaction, decision))
                return
        self._wait_for_markers(transaction, decision)

    def _mark(self, partition: Partition, decision: Decision) -> bool:
        try:
            self._appender.append_marker(partition, *decision[1:3], commit=decision.commit)
        except StorageError as error:
            _log.error("%s: the end of a transaction could not be written: %s", partition, error)
            return False
        return True

    # -- looking

    def all(self) -> list[Transaction]:
        """Every transactional id that is kept, by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def get(self, name: str) -> Transaction | None:
        """One of them."""
        return self._by_name.get(name)

    # -- who uses an id

    def register(
        self,
        name: str,
        timeout_ms: int,
        claim: Producer,
        done: RegisterDone,
        *,
        two_phase: bool = False,
        keep: bool = False,
    ) -> None:
        """Give the id to a producer: earlier users are fenced, their open transaction is aborted.

        Args:
            name: the transactional id.
            timeout_ms: how long its transactions may stay open.
            claim: who the producer says it is, if it had the id before; else NO_PRODUCER.
            done: called in the end; without an error once all is durable.
            two_phase: its transactions stay open until somebody ends them.
            keep: do not abort an open transaction, so that it can be ended as its author decided.
        """
        try:
            if two_phase:
                timeout_ms = NO_TIMEOUT_MS
            elif not 0 < timeout_ms <= TRANSACTION_TIMEOUT_MS_MAX:
                raise InvalidTimeoutError(
                    f"use transactional id {name}",
                    f"a timeout of {timeout_ms} ms",
                    f"set transaction.timeout.ms between 1 and {TRANSACTION_TIMEOUT_MS_MAX}",
                )
            self._register(name, timeout_ms, claim, done, keep=keep)
        except PenstockError as error:
            done(error, NO_PRODUCER, NO_PRODUCER)

    def _register(
        self, name: str, timeout_ms: int, claim: Producer, done: RegisterDone, *, keep: bool
    ) -> None:
        transaction = self._by_name.get(name)
        if transaction is None:
            producer = Producer(self._new_producer_id(), 0)
            transaction = Transaction(name, producer, timeout_ms, self._call_later)
            self._by_name[name] = self._by_producer[producer.id] = transaction
            self._write_registered(transaction, done)
            return
        two_phase = timeout_ms == NO_TIMEOUT_MS
        again = partial(
            self.register, name, timeout_ms, claim, done, two_phase=two_phase, keep=keep
        )
        if claim != NO_PRODUCER and claim not in (transaction.producer, transaction.previous):
            raise transaction.fenced(claim)
        if transaction.state is State.DECIDING or not transaction.settled:
            transaction.waiting.append(again)
        elif transaction.state is State.OPEN and not keep:
            transaction.waiting.append(again)
            self._fence(transaction)
        else:
            self._hand_over(transaction, claim)
            # A transaction that is kept does not get a timeout that it did not have.
            if transaction.state is State.EMPTY or two_phase:
                transaction.timeout_ms = timeout_ms
            if transaction.two_phase:
                transaction.alarm.cancel()
            transaction.last = None
            self._write_registered(transaction, done)

    def _hand_over(self, transaction: Transaction, claim: Producer) -> None:
        if claim not in (NO_PRODUCER, transaction.producer):
            return  # to the one before: the answer that told of its successor was lost
        kept = transaction.author if transaction.state is State.OPEN else None
        transaction.previous = transaction.producer
        self._replace(transaction, self._successor(transaction.producer), kept)

    def _write_registered(self, transaction: Transaction, done: RegisterDone) -> None:
        producer, kept = transaction.producer, transaction.kept
        transaction.used_ms = self._clock.wall_ms()
        line = journal_of.registered(
            transaction.name, *producer, transaction.timeout_ms, transaction.used_ms, kept
        )
        self._write(line, lambda error: done(error, producer, kept or NO_PRODUCER))

    def _successor(self, producer: Producer) -> Producer:
        if producer.epoch >= _EPOCH_MAX:
            return Producer(self._new_producer_id(), 0)
        return Producer(producer.id, producer.epoch + 1)

    def _replace(
        self, transaction: Transaction, producer: Producer, kept: Producer | None = None
    ) -> None:
        for number in transaction.producer_ids:
            del self._by_producer[number]
        transaction.producer, transaction.kept = producer, kept
        for number in transaction.producer_ids:
            self._by_producer[number] = transaction

    def _fence(self, transaction: Transaction, done: ProducerDone = lambda *_: None) -> None:
        """Abort an open transaction, and let its producer do no more."""
        raised = transaction.producer._replace(epoch=transaction.producer.epoch + 1)
        marker = transaction.marker(raised.epoch)
        self._decide(transaction, marker, raised, done, commit=False)

    # -- what belongs to a transaction

    def enlist(self, producer_id: int, epoch: int, partition: Partition, begins: bool) -> None:
        """Pass a batch that belongs to an open transaction.

        Args:
            producer_id: who sent it.
            epoch: which incarnation of that.
            partition: where it goes.
            begins: whether the batch itself may open the transaction there, as in the newer protocol.

        Raises:
            TransactionError: it does not.
        """
        transaction = self._by_producer.get(producer_id)
        if transaction is None:
            raise UnknownTransactionError(
                f"append to {partition}",
                f"producer {producer_id} has no transactional id",
                "start the producer's transactions anew",
            )
        if transaction.producer != (producer_id, epoch):
            raise OldEpochError(
                f"append to {partition}",
                f"epoch {epoch} of transactional id {transaction.name} is not in use",
                "a newer producer has taken over, or the transaction timed out",
            )
        transaction.check_takes_more()
        if partition.identity in transaction.partitions:
            return
        if not begins:
            raise InvalidTransactionStateError(
                f"append to {partition}",
                f"it is not part of the transaction of {transaction.name}",
                "begin a transaction first",
            )
        self._begin_with_alarm(transaction)
        transaction.partitions.add(partition.identity)

    def add_partitions(
        self, name: str, producer: Producer, partitions: Collection[PartitionId], done: Done
    ) -> None:
        """Enlist partitions before they are written; done when that is durable.

        Raises:
            TransactionError: nothing was done.
        """
        transaction = self._open_for(name, producer)
        if transaction.state is State.OPEN and transaction.partitions.issuperset(partitions):
            # What enlisted them may not be durable yet.
            self._commit.after(lambda: done(None))
            return
        self._begin_with_alarm(transaction)
        transaction.partitions |= set(partitions)
        self._write(journal_of.enlisted(name, partitions), done)

    def hold_offsets(
        self,
        name: str,
        producer: Producer,
        group: str,
        offsets: Offsets,
        done: Done,
        *,
        begins: bool,
    ) -> None:
        """Commit a group's offsets if the transaction commits; done when that is durable.

        Args:
            name: the transactional id.
            producer: who asks.
            group: whose offsets.
            offsets: what to commit.
            done: called in the end, or never if this raises.
            begins: whether this may open the transaction, as in the newer protocol.

        Raises:
            TransactionError: nothing was done.
        """
        transaction = self._open_for(name, producer)
        if transaction.state is State.EMPTY and not begins:
            raise InvalidTransactionStateError(
                f"commit offsets in a transaction of {name}", "none is open", "begin one first"
            )
        self._begin_with_alarm(transaction)
        self._groups.held.hold(name, group, offsets)
        self._write(journal_of.held(name, group, self._groups.kind(group), offsets), done)

    def check(self, name: str, producer: Producer) -> Transaction:
        """The transaction of a producer that may use it.

        Raises:
            UnknownTransactionError, FencedError: it may not.
        """
        transaction = self._by_name.get(name)
        if transaction is None or transaction.producer.id != producer.id:
            raise UnknownTransactionError(
                f"use transactional id {name}", "this producer does not have it", "begin anew"
            )
        if transaction.producer.epoch != producer.epoch:
            raise transaction.fenced(producer)
        return transaction

    def _open_for(self, name: str, producer: Producer) -> Transaction:
        transaction = self.check(name, producer)
        transaction.check_takes_more()
        return transaction

    def _begin_with_alarm(self, transaction: Transaction) -> None:
        if transaction.state is not State.EMPTY:
            return
        self._begin(transaction)
        self._set_alarm(transaction)
        if transaction.two_phase:
            # It may be open for days and restarts, and somebody will ask for how long. Nobody has to
            # wait for it: without this line it is as old as the last start.
            line = journal_of.enlisted(transaction.name, (), transaction.begun_ms)
            self._write(line, lambda _: None)

    def _begin(self, transaction: Transaction, begun_ms: int | None = None) -> None:
        transaction.state = State.OPEN
        transaction.begun_ms = self._clock.wall_ms() if begun_ms is None else begun_ms
        transaction.last = None

    def _set_alarm(self, transaction: Transaction) -> None:
        if transaction.two_phase:
            return
        transaction.alarm.set(transaction.timeout_ms / 1000, partial(self._time_out, transaction))

    def _time_out(self, transaction: Transaction) -> None:
        if transaction.state is not State.OPEN:
            return
        _log.warning("transaction of %s aborted: open for too long", transaction.name)
        if transaction.settled:
            transaction.previous = transaction.producer
            self._fence(transaction)
        else:
            transaction.waiting.append(partial(self._time_out, transaction))

    # -- the end

    def end(
        self, name: str, producer: Producer, done: ProducerDone, *, commit: bool, new_epoch: bool
    ) -> None:
        """End the open transaction; done with the producer to go on as, once that is durable.

        Args:
            name: whose.
            producer: who asks.
            done: called in the end, or never if this raises.
            commit: or abort.
            new_epoch: the newer protocol, in which the producer goes on with another epoch.

        Raises:
            TransactionError: nothing was done.
        """
        transaction = self._by_name.get(name)
        if transaction and transaction.has_ended(producer, commit=commit, new_epoch=new_epoch):
            done(None, transaction.producer)  # asked again, because the answer was lost
            return
        transaction = self.check(name, producer)
        if transaction.state is State.DECIDING:
            raise transaction.concurrent()
        if transaction.state is State.EMPTY and (commit or not new_epoch):
            raise transaction.not_open()
        if not transaction.settled:
            transaction.waiting.append(
                lambda: self._end_later(name, producer, done, commit=commit, new_epoch=new_epoch)
            )
            return
        following = self._successor(producer) if new_epoch else producer
        marker = transaction.marker(producer.epoch + 1 if new_epoch else producer.epoch)
        self._decide(transaction, marker, following, done, commit=commit)

    def abort(
        self,
        author: Producer,
        partitions: Collection[Partition],
        done: Callable[[PenstockError | None], None],
    ) -> None:
        """Abort what a producer has open in any of some partitions; done when that is durable.

        Everywhere, and its producer is fenced: half a transaction is none.

        Raises:
            TransactionError: nothing was done.
        """
        tables = [self._appender.producers(partition) for partition in partitions]
        if any(author.epoch < table.epoch_of(author.id) for table in tables):
            raise OldEpochError(
                f"abort what producer {author.id} has written",
                f"epoch {author.epoch} is not its newest",
                "look again who has a transaction open",
            )
        transaction = self._by_producer.get(author.id)
        if transaction is None or not any(author.id in table.open_transactions for table in tables):
            self._commit.after(lambda: done(None))  # its end may not be durable yet
            return
        if transaction.state is State.DECIDING or not transaction.settled:
            raise transaction.concurrent()
        self._fence(transaction, lambda error, _: done(error))

    def _end_later(
        self, name: str, producer: Producer, done: ProducerDone, *, commit: bool, new_epoch: bool
    ) -> None:
        try:
            self.end(name, producer, done, commit=commit, new_epoch=new_epoch)
        except PenstockError as error:
            done(error, NO_PRODUCER)

    def _decide(
        self,
        transaction: Transaction,
        marker: Producer,
        following: Producer,
        done: ProducerDone,
        *,
        commit: bool,
    ) -> None:
        assert transaction.settled
        transaction.state = State.DECIDING
        transaction.committing = commit
        transaction.alarm.cancel()
        found = (p for i in transaction.partitions if (p := self._find(i)) is not None)
        ends = dict.fromkeys(self._damaged, END_UNKNOWN) | {p.identity: p.end_offset for p in found}
        owed = owed_to(self._damaged, self._journal.transactions.get(transaction.name))
        decision = Decision(commit, marker.id, marker.epoch, transaction.producer.epoch, ends)
        transaction.used_ms = self._clock.wall_ms()
        line = journal_of.decided(transaction.name, decision, *following, transaction.used_ms, owed)

        def settle(error: PenstockError | None) -> None:
            if error is not None:
                transaction.state = State.OPEN
                self._set_alarm(transaction)
                done(error, NO_PRODUCER)
                # Not at once: a disk that refused this will refuse them as well.
                self._call_later(_RETRY_SECONDS, partial(self._wake, transaction))
                return
            self._carry_out(transaction, decision, following, done)

        self._write(line, settle)

    def _carry_out(
        self, transaction: Transaction, decision: Decision, following: Producer, done: ProducerDone
    ) -> None:
        """The decision is durable: commit the offsets and mark the partitions."""
        record = self._journal.transactions[transaction.name]
        committed, record.committed = record.committed, {}
        for group, (_, offsets) in committed.items():
            self._groups.take(group, offsets)
        self._groups.held.end(transaction.name)
        ended = transaction.producer
        transaction.last = Ended(ended, decision.commit)
        transaction.partitions = set()
        self._replace(transaction, following)
        self._mark_all(transaction, decision, set(decision.ends), lambda: done(None, following))

    def _mark_all(
        self,
        transaction: Transaction,
        decision: Decision,
        left: set[PartitionId],
        done: Callable[[], None],
    ) -> None:
        """Write the markers, as often as it takes; the producer can go on when all are written."""
        for identity in list(left):
            partition = self._find(identity)  # None if the topic was deleted meanwhile
            if partition is None or self._mark(partition, decision):
                left.discard(identity)
        if left:
            retry = partial(self._mark_all, transaction, decision, left, done)
            self._call_later(_RETRY_SECONDS, retry)
            return
        transaction.state = State.EMPTY
        self._wait_for_markers(transaction, decision)
        done()

    def _wait_for_markers(self, transaction: Transaction, decision: Decision) -> None:
        transaction.settled = False
        self._commit.after(partial(self._settled, transaction, decision))

    def _settled(self, transaction: Transaction, decision: Decision) -> None:
        """The markers are durable, unless a partition failed, which only a restart can repair."""
        partitions = [self._find(identity) for identity in decision.ends]
        if transaction.unmarked:
            return
        if all(partition is None or partition.offline is None for partition in partitions):
            transaction.settled = True
            self._wake(transaction)

    def _wake(self, transaction: Transaction) -> None:
        waiting, transaction.waiting = transaction.waiting, []
        for call in waiting:
            call()

    # -- now and then

    def expire(self) -> None:
        """Forget ids that have not been used for a week, unless a damaged partition may need them."""
        horizon = self._clock.wall_ms() - TRANSACTION_ID_EXPIRY_MS
        for transaction in list(self._by_name.values()):
            idle = transaction.state is State.EMPTY and transaction.settled
            if idle and not self._damaged and transaction.used_ms < horizon:
                del self._by_name[transaction.name]
                del self._by_producer[transaction.producer.id]
                self._write(journal_of.expired(transaction.name), lambda _: None)

    def _write(self, line: dict[str, object], done: Done) -> None:
        write(self._journal, self._commit, Change(line), "change a transaction", done)
