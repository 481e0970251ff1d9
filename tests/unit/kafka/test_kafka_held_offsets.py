"""Offsets that a transaction will commit, and what happens to its group before it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.kafka.exchange import DATA, Exchange
from tests.unit.kafka.transactional import begin, end, fetched, hold, init

from penstock.broker.transaction import Producer
from penstock.errors import StorageError
from penstock.kafka.errors import Code
from penstock.log.positions import PartitionId

Later = Callable[[Exchange], None]


def settled(error: StorageError | None) -> None:
    assert error is None


def orders(exchange: Exchange) -> PartitionId:
    return exchange.broker.topic("orders").partition(0).identity


def commit(exchange: Exchange, offset: int = 3) -> None:
    groups = exchange.broker.groups
    groups.commit("g", {orders(exchange): groups.position(offset, -1, "")}, settled)
    exchange.drain()


def remove(exchange: Exchange) -> None:
    exchange.broker.groups.remove_offsets("g", [orders(exchange)], settled)
    exchange.drain()


def delete(exchange: Exchange) -> None:
    exchange.broker.groups.delete("g", settled)
    exchange.drain()


@pytest.fixture
def producer(exchange: Exchange) -> Producer:
    """One whose transaction would commit 7 for a group that stands at 1."""
    exchange.grown_topic(10)
    commit(exchange, 1)
    producer = begin(exchange)
    assert hold(exchange, producer) is Code.NONE
    assert fetched(exchange)[1] is Code.UNSTABLE_OFFSET_COMMIT
    return producer


@pytest.mark.parametrize("restart", ["never", "before the end", "after it", "rewritten"])
@pytest.mark.parametrize(("later", "left"), [(commit, 3), (remove, -1), (delete, -1)])
def test_what_comes_later_counts_though_the_transaction_ends_last(
    exchange: Exchange,
    producer: Producer,
    later: Later,
    left: int,
    restart: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later(exchange)
    code = fetched(exchange)[1]
    # Kafka says so as well: what was committed may yet be replaced, what was removed may not.
    assert code is (Code.UNSTABLE_OFFSET_COMMIT if later is commit else Code.NONE)
    if restart == "rewritten":
        monkeypatch.setattr("penstock.log.change_journal._REWRITE_BYTES", -1_000_000)
        size = exchange.files.open(DATA / "offsets.journal").size()
        init(exchange, name="another")
        assert exchange.files.open(DATA / "offsets.journal").size() < size
    if restart in ("before the end", "rewritten"):
        exchange.open()
    assert end(exchange, producer).error_code == Code.NONE
    if restart == "after it":
        exchange.open()
    assert fetched(exchange) == (left, Code.NONE)
    if later is delete:
        assert exchange.broker.groups.all() == []


def test_what_is_held_after_a_commit_counts(exchange: Exchange, producer: Producer) -> None:
    commit(exchange, 3)
    assert hold(exchange, producer, offset=9) is Code.NONE
    assert end(exchange, producer).error_code == Code.NONE
    assert fetched(exchange) == (9, Code.NONE)


def test_nothing_is_held_in_a_topic_that_was_deleted(
    exchange: Exchange, producer: Producer
) -> None:
    exchange.broker.delete_topic(exchange.broker.topic("orders"))
    exchange.drain()
    exchange.grown_topic(10)
    assert fetched(exchange) == (-1, Code.NONE)
    assert end(exchange, producer).error_code == Code.NONE
    assert fetched(exchange) == (-1, Code.NONE)
