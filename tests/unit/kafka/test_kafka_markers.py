"""WriteTxnMarkers: Kafka's way to abort a transaction from outside."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.producer import WriteTxnMarkersRequest
from tests.unit.kafka.exchange import Exchange, answer, versions
from tests.unit.kafka.transactional import append, begin, end, fetched, hold, latest

from penstock.broker.transaction import Producer
from penstock.kafka.errors import Code


@pytest.fixture(autouse=True)
def orders(exchange: Exchange) -> None:
    exchange.topic("orders")


def request(*producers: Producer, commit: bool = False, topic: str = "orders") -> Any:
    message = WriteTxnMarkersRequest.WritableTxnMarker
    return WriteTxnMarkersRequest(
        markers=[
            message(
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                transaction_result=commit,
                topics=[message.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
                coordinator_epoch=0,
                transaction_version=0,
            )
            for producer in producers
        ]
    )


def codes(response: Any) -> list[Code]:
    return [Code(marker.topics[0].partitions[0].error_code) for marker in response.markers]


@pytest.mark.parametrize("version", versions(27))
def test_all_of_it_is_aborted(exchange: Exchange, version: int) -> None:
    producer = begin(exchange)
    append(exchange, producer)
    hold(exchange, producer)
    slot = exchange.begin(asked := request(producer), version)
    assert slot.data is None, "answered before it is durable"
    exchange.drain()
    assert codes(answer(asked, version, slot)) == [Code.NONE]
    assert latest(exchange, 1) == 2
    assert fetched(exchange) == (-1, Code.NONE)
    assert end(exchange, producer).error_code == Code.INVALID_TXN_STATE
    exchange.open()
    assert latest(exchange, 1) == 2


def test_a_commit_is_refused(exchange: Exchange) -> None:
    producer = begin(exchange)
    append(exchange, producer)
    refused = exchange.send_highest(request(producer, commit=True))
    assert codes(refused) == [Code.INVALID_REQUEST]
    assert end(exchange, producer).error_code == Code.NONE


def test_an_older_epoch_is_refused(exchange: Exchange) -> None:
    producer = begin(exchange)._replace(epoch=0)
    newer = begin(exchange)
    append(exchange, newer)
    assert codes(exchange.send_highest(request(producer))) == [Code.INVALID_PRODUCER_EPOCH]
    assert end(exchange, newer).error_code == Code.NONE


def test_where_nothing_is_open_nothing_is_written(exchange: Exchange) -> None:
    producer, stranger = begin(exchange), Producer(999, 0)
    assert codes(exchange.send_highest(request(producer, stranger))) == [Code.NONE, Code.NONE]
    assert latest(exchange, 0) == 0
    assert exchange.send_highest(request()).markers == []


def test_a_topic_that_does_not_exist(exchange: Exchange) -> None:
    producer = begin(exchange)
    append(exchange, producer)
    missing = exchange.send_highest(request(producer, topic="no"))
    assert codes(missing) == [Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert end(exchange, producer).error_code == Code.NONE
