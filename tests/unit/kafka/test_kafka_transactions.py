"""Transactions as clients ask for them, in every version, with the clock in our hands."""

from __future__ import annotations

import pytest
from kafka.protocol.producer import AddOffsetsToTxnRequest
from tests.support.log import grow
from tests.unit.kafka.exchange import Exchange, versions
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

from penstock.broker.transaction import Producer
from penstock.kafka.apis import APIS
from penstock.kafka.errors import Code
from penstock.limits import DISK_FREE_BYTES_MIN


@pytest.fixture(autouse=True)
def orders(exchange: Exchange) -> None:
    exchange.topic("orders")


@pytest.mark.parametrize("version", versions(22))
def test_an_id_keeps_its_producer_and_raises_its_epoch(exchange: Exchange, version: int) -> None:
    first, second = init(exchange, version), init(exchange, version)
    assert (first.error_code, second.error_code) == (Code.NONE, Code.NONE)
    assert first.producer_id == second.producer_id
    assert (first.producer_epoch, second.producer_epoch) == (0, 1)


@pytest.mark.parametrize("timeout", [0, -1, 15 * 60 * 1000 + 1])
def test_a_timeout_that_is_not_allowed(exchange: Exchange, timeout: int) -> None:
    answer = init(exchange, timeout=timeout)
    assert answer.error_code == Code.INVALID_TRANSACTION_TIMEOUT


def test_a_producer_that_claims_what_it_no_longer_has(exchange: Exchange) -> None:
    old = begin(exchange)
    begin(exchange)
    begin(exchange)
    claim = {"producer_id": old.id, "producer_epoch": old.epoch}
    assert init(exchange, 4, **claim).error_code == Code.PRODUCER_FENCED
    assert init(exchange, 3, **claim).error_code == Code.INVALID_PRODUCER_EPOCH


def test_a_lost_answer_to_a_claim_is_given_again(exchange: Exchange) -> None:
    old = begin(exchange)
    claim = {"producer_id": old.id, "producer_epoch": old.epoch}
    first, again = init(exchange, 5, **claim), init(exchange, 5, **claim)
    assert first.producer_epoch == again.producer_epoch == old.epoch + 1


@pytest.mark.parametrize("version", versions(24))
def test_older_protocol(exchange: Exchange, version: int) -> None:
    producer = begin(exchange)
    assert append(exchange, producer, begins=False) is Code.INVALID_TXN_STATE
    assert added(add(exchange, producer, version)) is Code.NONE
    assert append(exchange, producer, begins=False) is Code.NONE
    assert (latest(exchange, 0), latest(exchange, 1)) == (1, 0)
    assert end(exchange, producer, 4).error_code == Code.NONE
    assert (latest(exchange, 0), latest(exchange, 1)) == (2, 2)
    assert append(exchange, producer, 1, begins=False) is Code.INVALID_TXN_STATE


@pytest.mark.parametrize("version", versions(26))
def test_the_end_can_be_asked_for_again(exchange: Exchange, version: int) -> None:
    producer = begin(exchange)
    append(exchange, producer)
    first, again = end(exchange, producer, version), end(exchange, producer, version)
    assert (first.error_code, again.error_code) == (Code.NONE, Code.NONE)
    if version >= 5:
        assert first.producer_epoch == again.producer_epoch == producer.epoch + 1
    other = end(exchange, producer, version, commit=False).error_code
    assert other == Code.INVALID_TXN_STATE


def test_after_a_restart_too(exchange: Exchange) -> None:
    producer = begin(exchange)
    append(exchange, producer)
    end(exchange, producer)
    exchange.open()
    assert end(exchange, producer).producer_epoch == producer.epoch + 1


def test_newer_protocol_late_batches_stay_out_of_the_next(exchange: Exchange) -> None:
    producer = begin(exchange)
    append(exchange, producer)
    following = end(exchange, producer)
    assert append(exchange, producer, 1) is Code.INVALID_PRODUCER_EPOCH
    assert append(exchange, Producer(following.producer_id, following.producer_epoch)) is Code.NONE


@pytest.mark.parametrize(("version", "code"), [(4, Code.INVALID_TXN_STATE), (5, Code.NONE)])
def test_nothing_to_abort(exchange: Exchange, version: int, code: Code) -> None:
    producer = begin(exchange)
    assert end(exchange, producer, version, commit=False).error_code == code
    assert end(exchange, begin(exchange), version).error_code == Code.INVALID_TXN_STATE


def test_a_worn_out_epoch_brings_a_new_producer(exchange: Exchange) -> None:
    begin(exchange)
    transaction = exchange.broker.transactions.get(NAME)
    assert transaction is not None
    transaction.producer = worn_out = transaction.producer._replace(epoch=32_766)
    append(exchange, worn_out)
    following = end(exchange, worn_out)
    assert following.producer_id != worn_out.id
    assert following.producer_epoch == 0
    assert latest(exchange, 1) == 2


def test_time_is_up(exchange: Exchange) -> None:
    producer = begin(exchange)
    append(exchange, producer)
    exchange.timers.advance(9.9)
    exchange.drain()
    assert latest(exchange, 1) == 0
    exchange.timers.advance(0.2)
    exchange.drain()
    assert latest(exchange, 1) == 2
    assert append(exchange, producer, 1) is Code.INVALID_PRODUCER_EPOCH
    assert end(exchange, producer).error_code == Code.INVALID_TXN_STATE
    assert end(exchange, producer, commit=False).error_code == Code.NONE
    assert end(exchange, producer, 4, commit=False).error_code == Code.PRODUCER_FENCED


def test_after_its_time_was_up_a_producer_goes_on_unless_another_has_begun(
    exchange: Exchange,
) -> None:
    producer = begin(exchange)
    append(exchange, producer)
    exchange.timers.advance(10.1)
    exchange.drain()
    claim = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    answer = init(exchange, **claim)
    assert answer.error_code == Code.NONE
    assert answer.producer_epoch > producer.epoch
    going_on = Producer(answer.producer_id, answer.producer_epoch)
    assert append(exchange, going_on) is Code.NONE
    assert end(exchange, going_on).error_code == Code.NONE
    begin(exchange)
    assert init(exchange, **claim).error_code == Code.PRODUCER_FENCED


def test_taking_over_aborts(exchange: Exchange) -> None:
    producer = begin(exchange)
    append(exchange, producer)
    newer = begin(exchange)
    assert newer.epoch == producer.epoch + 2
    assert latest(exchange, 1) == 2
    assert added(add(exchange, producer)) is Code.PRODUCER_FENCED
    assert added(add(exchange, producer, 1)) is Code.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", versions(28))
def test_offsets(exchange: Exchange, version: int) -> None:
    producer = begin(exchange)
    if version < 5:
        assert hold(exchange, producer, version) is Code.INVALID_TXN_STATE
        request = AddOffsetsToTxnRequest(
            transactional_id=NAME,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            group_id="g",
        )
        assert exchange.send(request, version if version < 5 else 4).error_code == Code.NONE
    assert hold(exchange, producer, version) is Code.NONE
    assert fetched(exchange) == (-1, Code.UNSTABLE_OFFSET_COMMIT)
    end(exchange, producer, version)
    assert fetched(exchange) == (7, Code.NONE)
    grow(exchange.broker, exchange.broker.topic("orders"), 7)
    exchange.drain()
    exchange.open()
    assert fetched(exchange) == (7, Code.NONE)


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_begun_is_ended_on_a_full_disk(exchange: Exchange, commit: bool) -> None:
    producer = begin(exchange)
    assert append(exchange, producer) is Code.NONE
    exchange.store.space.found_full()
    exchange.files.capacity = DISK_FREE_BYTES_MIN // 2
    assert append(exchange, producer, 1) is Code.KAFKA_STORAGE_ERROR
    assert hold(exchange, producer) is Code.NONE
    assert end(exchange, producer, commit=commit).error_code == Code.NONE
    assert fetched(exchange) == (7 if commit else -1, Code.NONE)
    assert latest(exchange, 1) == 2


def test_offsets_of_an_aborted_transaction(exchange: Exchange) -> None:
    producer = begin(exchange)
    hold(exchange, producer)
    exchange.open()
    assert fetched(exchange) == (-1, Code.UNSTABLE_OFFSET_COMMIT)
    end(exchange, producer, commit=False)
    assert fetched(exchange) == (-1, Code.NONE)


def test_partitions_that_do_not_exist(exchange: Exchange) -> None:
    producer = begin(exchange)
    assert added(add(exchange, producer, topic="no")) is Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_stranger(exchange: Exchange) -> None:
    producer = begin(exchange)._replace(id=999)
    assert added(add(exchange, producer)) is Code.INVALID_PRODUCER_ID_MAPPING
    assert append(exchange, producer) is Code.INVALID_PRODUCER_ID_MAPPING
    assert end(exchange, producer).error_code == Code.INVALID_PRODUCER_ID_MAPPING


def test_a_deleted_topic_ends_nobodys_transaction(exchange: Exchange) -> None:
    producer = begin(exchange)
    append(exchange, producer)
    exchange.broker.delete_topic(exchange.broker.topic("orders"))
    exchange.drain()
    assert end(exchange, producer).error_code == Code.NONE


def test_an_id_that_is_not_used_for_a_week_is_forgotten(exchange: Exchange) -> None:
    begin(exchange)
    exchange.clock.advance(8 * 24 * 3600)
    exchange.broker.keep_retention()
    exchange.drain()
    assert exchange.broker.transactions.get(NAME) is None
    exchange.open()
    assert exchange.broker.transactions.get(NAME) is None


def test_the_versions_are_kafkas() -> None:
    assert [APIS[key].highest for key in (25, 26, 28)] == [4, 5, 5]
