"""One transactional id: who uses it, and what its open transaction has touched.

EMPTY    --first batch, partition or offset--> OPEN
OPEN     --commit, abort, time is up, the id is taken over--> DECIDING
DECIDING --the decision is durable, and every partition has its marker--> EMPTY

"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from penstock.broker.timers import Alarm, CallLater
from penstock.log.positions import PartitionId
from penstock.log.transactions import Held


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
        """Who used the id before the last change of hands."""
        self.timeout_ms = timeout_ms
        self.used_ms = 0
        self.begun_ms = -1
        self.state = State.EMPTY
        self.committing = False
        self.partitions: set[PartitionId] = set()
        self.held: Held = {}
        self.last: Ended | None = None
        self.settled = True
        """Whether the markers of the last one are durable: until then it cannot be followed by another
        decision, which would take its place in the journal."""
        self.waiting: list[Callable[[], None]] = []
        """Called when the transaction is settled."""
        self.alarm = Alarm(call_later)

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
