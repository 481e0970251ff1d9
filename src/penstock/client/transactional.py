"""One transaction that several processes write to: whoever knows its producer id and epoch may.

One process opens it (`Transaction.begin`, which fences whatever an earlier one left) and ends it;
others write batches to it (`BatchWriter`), no two of them to the same partition. This is the newer one
of Kafka's transaction protocols, in which writing to a partition brings it in and is verified by the
broker: a straggler of an earlier transaction is refused, and cannot write outside of any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from penstock.client.cluster import Cluster, Place
from penstock.client.connection import library
from penstock.client.fencing import check
from penstock.client.produce_request import PRODUCE, produce_request
from penstock.errors import UnavailableError
from penstock.record.batch import TRANSACTIONAL_FLAG
from penstock.record.encode import NewRecord, encode

_INIT_PRODUCER_ID: Final = 5
_END_TXN: Final = 5
_RETRY_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.05
# Coordinator loading, not available, another; the last transaction is still being ended.
_PASSING: Final = frozenset({14, 15, 16, 51})


class Ticket(NamedTuple):
    """What a process needs to write to a transaction."""

    name: str
    producer_id: int
    epoch: int


class Transaction:
    """Opened, and to be ended, by one process.

    Args:
        cluster: where.
        name: the transactional id; who begins with the same name ends what the last one left open.
        operation: what it is needed for, for the errors.
    """

    def __init__(self, cluster: Cluster, name: str, operation: str) -> None:
        self._cluster = cluster
        self._name = name
        self._operation = operation

    def begin(self, timeout_ms: int) -> Ticket:
        """Fence whoever used the name, and end what they left open.

        Raises:
            PenstockError: the cluster refused, or could not be asked.
        """
        request = library("kafka.protocol.producer").InitProducerIdRequest(
            transactional_id=self._name,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = self._ask(request, _INIT_PRODUCER_ID)
        return Ticket(self._name, answer.producer_id, answer.producer_epoch)

    def end(self, ticket: Ticket, *, commit: bool) -> None:
        """Make everything that was written visible at once, or nothing of it.

        Raises:
            FencedError: another one has begun with the same name; it was aborted then.
            PenstockError: the cluster refused, or could not be asked.
        """
        request = library("kafka.protocol.producer").EndTxnRequest(
            transactional_id=self._name,
            producer_id=ticket.producer_id,
            producer_epoch=ticket.epoch,
            committed=commit,
        )
        self._ask(request, _END_TXN)

    def _ask(self, request: Any, newest: int) -> Any:
        """The coordinator's answer, which it gives again to a request that is repeated."""
        deadline = time.monotonic() + _RETRY_SECONDS
        while True:
            answer = self._cluster.ask_coordinator(self._name, request, newest)
            if answer.error_code not in _PASSING or time.monotonic() > deadline:
                break
            self._cluster.forget_coordinator(self._name)
            time.sleep(_PAUSE_SECONDS)
        _check(self._operation, answer.error_code)
        return answer


class BatchWriter:
    """Writes records to partitions within a transaction, each partition from its first sequence on."""

    def __init__(
        self, cluster: Cluster, ticket: Ticket, operation: str, clock_ms: Callable[[], int]
    ) -> None:
        self._cluster = cluster
        self._ticket = ticket
        self._operation = operation
        self._clock_ms = clock_ms
        self._sequences: dict[Place, int] = {}

    def write(self, place: Place, records: Sequence[NewRecord]) -> None:
        """Append one batch, and wait until it is acknowledged.

        An answer that is missing is an error: the transaction cannot go on, because what was written
        is not known.

        Raises:
            FencedError: the transaction is over.
            PenstockError: the cluster refused, or could not be asked.
        """
        sequence = self._sequences.get(place, 0)
        now = self._clock_ms()
        timed = [one if one.timestamp else one._replace(timestamp=now) for one in records]
        batch = encode(
            timed,
            producer_id=self._ticket.producer_id,
            producer_epoch=self._ticket.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL_FLAG,
        )
        request = produce_request(place, bytes(batch), self._ticket.name)
        answer = self._cluster.ask_leader(place, request, PRODUCE)
        ((result,),) = (one.partition_responses for one in answer.responses)
        _check(self._operation, result.error_code, result.error_message)
        self._sequences[place] = sequence + len(records)


def _check(operation: str, code: int, message: str | None = None) -> None:
    if code in _PASSING:
        raise UnavailableError(operation, f"its coordinator is not ready (error {code})")
    check(operation, code, message)
