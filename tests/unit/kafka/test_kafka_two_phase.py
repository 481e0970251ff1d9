"""Two-phase transactions: prepared, they outlive everything and are ended by who takes them over."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.consumer import FetchRequest
from tests.unit.kafka.exchange import Exchange
from tests.unit.kafka.transactional import (
    NAME,
    add,
    added,
    append,
    begin,
    end,
    fetched,
    hold,
    init,
    latest,
)

from penstock.broker.transaction import NO_PRODUCER, NO_TIMEOUT_MS, Producer
from penstock.kafka.errors import Code

A_MONTH = 30 * 24 * 3600


@pytest.fixture(autouse=True)
def orders(exchange: Exchange) -> None:
    exchange.topic("orders", config={"retention.ms": "-1"})


def prepare(exchange: Exchange) -> Producer:
    """A two-phase producer that has written a record and does nothing more."""
    answer = init(exchange, 6, enable2_pc=True)
    assert ongoing(answer) == NO_PRODUCER
    producer = user(answer)
    assert append(exchange, producer) is Code.NONE
    return producer


def take_over(exchange: Exchange, **fields: Any) -> Any:
    answer = init(exchange, 6, enable2_pc=True, keep_prepared_txn=True, **fields)
    assert answer.error_code == Code.NONE
    return answer


def user(answer: Any) -> Producer:
    return Producer(answer.producer_id, answer.producer_epoch)


def ongoing(answer: Any) -> Producer:
    return Producer(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)


def later(exchange: Exchange, seconds: float) -> None:
    exchange.clock.advance(seconds)
    exchange.timers.advance(seconds)
    exchange.broker.keep_retention()
    exchange.drain()


def described(exchange: Exchange) -> Any:
    request = DescribeTransactionsRequest(transactional_ids=[NAME])
    return exchange.send(request, 0).transaction_states[0]


def test_its_time_is_never_up(exchange: Exchange) -> None:
    producer = prepare(exchange)
    later(exchange, A_MONTH)
    exchange.open()
    later(exchange, A_MONTH)
    assert latest(exchange, 1) == 0
    assert end(exchange, producer).error_code == Code.NONE
    assert latest(exchange, 1) == 2


def test_its_age_outlives_a_restart(exchange: Exchange) -> None:
    prepare(exchange)
    begun = described(exchange).transaction_start_time_ms
    later(exchange, A_MONTH)
    exchange.open()
    state = described(exchange)
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", NO_TIMEOUT_MS)
    assert state.transaction_start_time_ms == begun
    take_over(exchange)
    exchange.open()
    assert described(exchange).transaction_start_time_ms == begun


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_who_takes_over_ends_it(
    exchange: Exchange, commit: bool, restarts: bool, version: int
) -> None:
    author = prepare(exchange)
    assert hold(exchange, author) is Code.NONE
    first = take_over(exchange)
    second = take_over(exchange)
    assert ongoing(first) == ongoing(second) == author
    assert user(second).epoch == author.epoch + 2
    if restarts:
        exchange.open()
    for old in (author, user(first)):
        assert end(exchange, old, version).error_code == Code.PRODUCER_FENCED
    assert latest(exchange, 1) == 0
    assert end(exchange, user(second), version, commit=commit).error_code == Code.NONE
    assert latest(exchange, 1) == 2
    assert fetched(exchange) == (7 if commit else -1, Code.NONE)
    topic = exchange.broker.topic("orders")
    aborted = exchange.broker.appender.producers(topic.partition(0)).aborted_between(0, 2)
    assert bool(aborted) is not commit
    assert append(exchange, author, 1) is Code.INVALID_PRODUCER_EPOCH
    assert ongoing(take_over(exchange)) == NO_PRODUCER


def test_nothing_can_be_added_to_what_was_taken_over(exchange: Exchange) -> None:
    author = prepare(exchange)
    newer = user(take_over(exchange))
    assert append(exchange, newer) is Code.INVALID_TXN_STATE
    assert added(add(exchange, newer)) is Code.INVALID_TXN_STATE
    assert hold(exchange, newer) is Code.INVALID_TXN_STATE
    assert append(exchange, author, 1) is Code.INVALID_PRODUCER_EPOCH


def test_who_does_not_keep_it_aborts_it(exchange: Exchange) -> None:
    prepare(exchange)
    take_over(exchange)
    begin(exchange)
    assert latest(exchange, 1) == 2


def test_a_lost_answer_is_given_again(exchange: Exchange) -> None:
    author = prepare(exchange)
    claim = {"producer_id": author.id, "producer_epoch": author.epoch}
    first, again = take_over(exchange, **claim), take_over(exchange, **claim)
    assert user(first) == user(again)
    assert ongoing(first) == ongoing(again) == author


@pytest.mark.parametrize("restarts", [True, False])
def test_worn_out_epochs(exchange: Exchange, restarts: bool) -> None:
    """Who takes over gets another producer id, and the markers still go to the author's records."""
    first = user(init(exchange, 6, enable2_pc=True))
    transaction = exchange.broker.transactions.get(NAME)
    assert transaction is not None
    worn_out = first._replace(epoch=32_765)
    transaction.producer = worn_out
    newest = user(init(exchange, 6, enable2_pc=True))
    assert append(exchange, newest) is Code.NONE
    answer = take_over(exchange)
    assert user(answer).id != newest.id
    assert ongoing(answer) == newest
    if restarts:
        exchange.open()
        answer = take_over(exchange)
    assert append(exchange, newest, 1) is Code.INVALID_PRODUCER_EPOCH
    assert end(exchange, user(answer)).error_code == Code.NONE
    assert latest(exchange, 1) == 2
    following = user(take_over(exchange))
    assert append(exchange, following) is Code.NONE
    assert append(exchange, newest, 1) is Code.INVALID_PRODUCER_ID_MAPPING


def test_an_ordinary_transaction_can_be_kept_too(exchange: Exchange) -> None:
    """And is still aborted when its time is up, unless it was made a two-phase one."""
    author = begin(exchange)
    append(exchange, author)
    answer = init(exchange, 6, keep_prepared_txn=True)
    assert ongoing(answer) == author
    later(exchange, 10.1)
    assert latest(exchange, 1) == 2
    assert end(exchange, user(answer)).error_code == Code.INVALID_TXN_STATE


def test_records_that_are_deleted_before_it_ends(exchange: Exchange) -> None:
    """As by retention: readers of committed records wait at the start of what is left."""
    producer = prepare(exchange)
    topic = exchange.broker.topic("orders")
    exchange.append(topic, 1, 2, 3)
    exchange.broker.delete_records(topic.partition(0), 2)
    exchange.drain()
    assert latest(exchange, 1) == 2
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=0, fetch_offset=2, log_start_offset=-1, partition_max_bytes=1000
    )
    fetch = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic="orders", partitions=[partition])],
    )
    found = exchange.send(fetch, 12).responses[0].partitions[0]
    assert (found.error_code, found.last_stable_offset, found.records) == (0, 2, b"")
    exchange.open()
    assert latest(exchange, 1) == 2
    assert end(exchange, producer).error_code == Code.NONE
    assert latest(exchange, 1) == 5


def test_older_versions_know_nothing_of_it(exchange: Exchange) -> None:
    assert init(exchange, 5, timeout=NO_TIMEOUT_MS).error_code == Code.INVALID_TRANSACTION_TIMEOUT
    ordinary = init(exchange, 6, timeout=NO_TIMEOUT_MS)
    assert ordinary.error_code == Code.INVALID_TRANSACTION_TIMEOUT
