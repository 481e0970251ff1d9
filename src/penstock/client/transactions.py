"""Transactions of a cluster: list, abort."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from penstock.client.connection import admin, connect, translated
from penstock.clock import SystemClock
from penstock.errors import ConflictError, NotFoundError

_OPEN = "Ongoing"


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
    timeout_seconds: float
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
    return TransactionSummary(
        name,
        state,
        described.producer_id,
        described.producer_epoch,
        (now_ms - begun) / 1000 if state == _OPEN and begun >= 0 else None,
        described.transaction_timeout_ms / 1000,
        sorted(f"{place.topic}-{place.partition}" for place in described.topic_partitions),
    )


def abort_transaction(bootstrap: str, name: str) -> TransactionSummary:
    """Abort the open transaction of an id, and fence its producer; what was aborted.

    Raises:
        NotFoundError: nobody uses the id.
        ConflictError: no transaction is open.
        PenstockError: the cluster could not be asked.
    """
    operation = f"cannot abort the transaction of {name}"
    known = {one.name: one for one in list_transactions(bootstrap)}
    if name not in known:
        raise NotFoundError(
            operation, "nobody uses that id", "`penstock transactions list` shows those in use"
        )
    if known[name].open_seconds is None:
        raise ConflictError(operation, f"none is open: its state is {known[name].state}")
    # Who takes an id over ends what its last user left open.
    producer = connect("KafkaProducer", bootstrap, operation, transactional_id=name)
    with translated(operation), contextlib.closing(producer):
        producer.init_transactions()
    return known[name]
