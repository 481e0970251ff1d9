"""InitProducerId."""

from __future__ import annotations

import errno

import pytest
from kafka.protocol.producer import InitProducerIdRequest
from tests.clients.admin_requests import init_producer_id
from tests.unit.kafka.exchange import Exchange, answer, versions

from penstock.kafka.errors import Code


@pytest.mark.parametrize("version", versions(22))
def test_new_ids(exchange: Exchange, version: int) -> None:
    slot = exchange.begin(request := init_producer_id(), version)
    assert slot.data is None, "answered before it is durable"
    exchange.drain()
    first = answer(request, version, slot)
    assert (first.error_code, first.producer_epoch) == (Code.NONE, 0)
    second = exchange.send(init_producer_id(), version)
    assert 0 <= first.producer_id < second.producer_id
    exchange.open()
    third = exchange.send(init_producer_id(), version)
    assert third.producer_id > second.producer_id


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_had_an_id_gets_a_new_one(exchange: Exchange, version: int) -> None:
    old = exchange.send(init_producer_id(), version)
    request = InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout_ms=1000,
        producer_id=old.producer_id,
        producer_epoch=old.producer_epoch,
    )
    new = exchange.send(request, version)
    assert (new.error_code, new.producer_epoch) == (Code.NONE, 0)
    assert new.producer_id != old.producer_id


def test_not_durable(exchange: Exchange) -> None:
    exchange.files.fail("sync", errno.EIO, sticky=True)
    refused = exchange.send_highest(init_producer_id())
    assert (refused.error_code, refused.producer_id) == (Code.KAFKA_STORAGE_ERROR, -1)


def test_not_written(exchange: Exchange) -> None:
    exchange.files.fail("pwrite", errno.EIO)
    assert exchange.send_highest(init_producer_id()).error_code == Code.KAFKA_STORAGE_ERROR
