"""Transactions of a cluster: list, and end one that is left open."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from penstock.client import two_phase
from penstock.client.connection import admin, connect, translated
from penstock.client.direct import Direct
from penstock.clock import SystemClock
from penstock.errors import ConflictError, NotFoundError

_OPEN = "Ongoing"
_NO_TIMEOUT_MS = 2**31 - 1
_END_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    """What the cluster says about a transactional id."""

    name: str
    state: str
    """In Kafka's words."""
    producer_id: int
    epoch: int
    open_seconds: float | None
    """How long its transaction has been open; None if none is."""
    timeout_seconds: float | None
    """None if it never times out."""
    two_phase: bool
    """Whether it waits, once it is prepared, until somebody commits or aborts it."""
    partitions: list[str]
    """TOPIC-NUMBER of those it has written to."""


def list_transactions(bootstrap: str, *, only_open: bool = False) -> list[TransactionSummary]:
    """All transactional ids, by name.

    Raises:
        PenstockError: the cluster could not be asked.
    """
    with admin(bootstrap, "cannot list transactions") as client:
        by_broker = client.list_transactions(state_filters=[_OPEN] if only_open else None)
        names = sorted(one.transactional_id for listed in by_broker.values() for one in listed)
        found = client.describe_transactions(names) if names else {}
    now_ms = SystemClock().wall_ms()
    return [_summary(name, found[name], now_ms) for name in names]


def _summary(name: str, described: Any, now_ms: float) -> TransactionSummary:
    state = str(described.state.value)
    begun: int = described.transaction_start_time_ms
    two_phase = described.transaction_timeout_ms == _NO_TIMEOUT_MS
    return TransactionSummary(
        name,
        state,
        described.producer_id,
        described.producer_epoch,
        (now_ms - begun) / 1000 if state == _OPEN and begun >= 0 else None,
        None if two_phase else described.transaction_timeout_ms / 1000,
        two_phase,
        sorted(f"{place.topic}-{place.partition}" for place in described.topic_partitions),
    )


def open_transaction(bootstrap: str, name: str, operation: str) -> TransactionSummary:
    """The open transaction of an id.

    Raises:
        NotFoundError: nobody uses the id.
        ConflictError: no transaction is open.
        PenstockError: the cluster could not be asked.
    """
    known = {one.name: one for one in list_transactions(bootstrap)}
    if name not in known:
        raise NotFoundError(
            operation, "nobody uses that id", "`penstock transactions list` shows those in use"
        )
    if known[name].open_seconds is None:
        raise ConflictError(operation, f"none is open: its state is {known[name].state}")
    return known[name]


def abort_transaction(bootstrap: str, name: str) -> None:
    """Abort the open transaction of an id, and fence its producer.

    Raises:
        PenstockError: the cluster could not be asked.
    """
    operation = f"cannot abort the transaction of {name}"
    # Who takes an id over ends what its last user left open.
    producer = connect("KafkaProducer", bootstrap, operation, transactional_id=name)
    with translated(operation), contextlib.closing(producer):
        producer.init_transactions()


def commit_transaction(bootstrap: str, name: str) -> None:
    """Commit the open two-phase transaction of an id, and fence its producer.

    Raises:
        ConflictError: none is open.
        UsageError: the cluster has no two-phase transactions.
        PenstockError: the cluster could not be asked.
    """
    operation = f"cannot commit the transaction of {name}"
    with contextlib.closing(Direct(bootstrap, operation)) as direct:
        identity, left = two_phase.take_over(direct, name, operation)
        if left is None:
            raise ConflictError(operation, "somebody else has ended it")
        two_phase.end(direct, name, identity, operation, commit=True, seconds=_END_SECONDS)
