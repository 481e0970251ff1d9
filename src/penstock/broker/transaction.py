"""One transactional id: who uses it, and what its open transaction has touched.

EMPTY    --first batch, partition or offset--> OPEN
OPEN     --commit, abort, time is up, the id is taken over--> DECIDING
DECIDING --the decision is durable, and every partition has its marker--> EMPTY

A two-phase transaction is OPEN until somebody ends it: its time is never up. Who takes the id over may
keep it, to end it then: the records stay those of their author, who is fenced, and no more can be added.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from penstock.broker.timers import Alarm, CallLater
from penstock.broker.transaction_errors import (
    ConcurrentTransactionError,
    FencedError,
    InvalidTransactionStateError,
)
from penstock.log.positions import PartitionId
from penstock.log.transactions import Decision


class State(Enum):
    """See the module."""

    EMPTY = "empty"
    OPEN = "open"
    DECIDING = "deciding"


class Producer(NamedTuple):
    """An incarnation of a producer."""

    id: int
    epoch: int


NO_PRODUCER = Producer(-1, -1)
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of two-phase transactions, in Kafka's own files too."""


class Ended(NamedTuple):
    """How the last transaction ended, so that a request that is sent again gets the same answer."""

    producer: Producer
    commit: bool


class Transaction:
    """See the module."""

    def __init__(
        self, name: str, producer: Producer, timeout_ms: int, call_later: CallLater
    ) -> None:
        self.name = name
        self.producer = producer
        self.previous = NO_PRODUCER
        """Who used the id before it changed hands, or before its time was up: it may go on (KIP-588)."""
        self.kept: Producer | None = None
        """Who wrote the open transaction, if the id has changed hands since without ending it."""
        self.timeout_ms = timeout_ms
        self.used_ms = 0
        self.begun_ms = -1
        self.state = State.EMPTY
        self.committing = False
        self.partitions: set[PartitionId] = set()
        self.last: Ended | None = None
        self.unmarked: dict[PartitionId, Decision] = {}
        """Decisions that have not been carried out since the start of the broker, and where."""
        self.settled = True
        """Whether the markers of the last one are durable: until then it cannot be followed by another
        decision, which would take its place in the journal."""
        self.waiting: list[Callable[[], None]] = []
        """Called when the transaction is settled."""
        self.alarm = Alarm(call_later)

    @property
    def author(self) -> Producer:
        """Whose records the open transaction has."""
        return self.kept or self.producer

    @property
    def producer_ids(self) -> set[int]:
        """The ids that mean this transaction: of who uses it, and of its author."""
        return {self.producer.id, self.author.id}

    @property
    def two_phase(self) -> bool:
        """Whether its transactions stay open until somebody ends them."""
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def shown_state(self) -> str:
        """The state by Kafka's name."""
        if self.state is State.OPEN:
            return "Ongoing"
        if self.state is State.DECIDING:
            return "PrepareCommit" if self.committing else "PrepareAbort"
        if self.last is not None:
            return "CompleteCommit" if self.last.commit else "CompleteAbort"
        return "Empty"

    def marker(self, epoch: int) -> Producer:
        """Who the markers name: the one who wrote the records, with an epoch that fences it."""
        author = self.author
        if author.id != self.producer.id:  # its epochs were used up
            return author._replace(epoch=author.epoch + 1)
        return author._replace(epoch=epoch)

    def has_ended(self, producer: Producer, *, commit: bool, new_epoch: bool) -> bool:
        """Whether what a producer asks for is how its last transaction ended.

        Its epoch has moved on then in the newer protocol. In the older one it has not, unless the
        transaction was ended by others, of which the producer must hear.

        Raises:
            InvalidTransactionStateError: it has ended the other way.
        """
        if self.last is None or self.last.producer != producer:
            return False
        if producer == self.producer:
            return self.last.commit == commit
        if new_epoch and self.last.commit != commit:
            raise InvalidTransactionStateError(
                f"end the transaction of {self.name}",
                "it was committed" if self.last.commit else "it was aborted, or its time was up",
                "begin another one",
            )
        return new_epoch

    def check_takes_more(self) -> None:
        """Pass while something can be added.

        Raises:
            TransactionError: it is being ended, or only waits for its end.
        """
        if self.state is State.DECIDING:
            raise self.concurrent()
        if self.kept is not None:
            raise InvalidTransactionStateError(
                f"use transactional id {self.name}",
                "a transaction was prepared, and waits for its end",
                "commit or abort it first",
            )

    def fenced(self, producer: Producer) -> FencedError:
        """For a producer that is not the one who uses the id."""
        return FencedError(
            f"use transactional id {self.name}",
            f"epoch {producer.epoch} is not the one in use, {self.producer.epoch}",
            "a newer producer has taken over, or the transaction timed out; start anew",
        )

    def not_open(self) -> InvalidTransactionStateError:
        """For who wants to end what has not begun."""
        return InvalidTransactionStateError(
            f"end the transaction of {self.name}", "none is open", "begin one first"
        )

    def concurrent(self) -> ConcurrentTransactionError:
        """For who comes while the transaction is being ended."""
        return ConcurrentTransactionError(
            f"use transactional id {self.name}",
            "its last transaction is being ended",
            "try again",
        )
