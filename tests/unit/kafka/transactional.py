"""A client with transactions, request by request."""

from __future__ import annotations

from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from tests.unit.kafka.exchange import Exchange

from penstock.broker.transaction import Producer
from penstock.errors import PenstockError
from penstock.kafka.errors import Code, code_of
from penstock.record.batch import TRANSACTIONAL_FLAG
from penstock.record.encode import NewRecord, encode

NAME = "payments"


def init(exchange: Exchange, version: int = 5, **fields: Any) -> Any:
    request = InitProducerIdRequest(
        transactional_id=fields.pop("name", NAME),
        transaction_timeout_ms=fields.pop("timeout", 10_000),
        producer_id=-1,
        producer_epoch=-1,
    )
    for field, value in fields.items():
        setattr(request, field, value)
    return exchange.send(request, version)


def begin(exchange: Exchange) -> Producer:
    answer = init(exchange)
    assert answer.error_code == Code.NONE
    return Producer(answer.producer_id, answer.producer_epoch)


def add(exchange: Exchange, producer: Producer, version: int = 3, topic: str = "orders") -> Any:
    message = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return exchange.send(
        AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[message(name=topic, partitions=[0])],
        ),
        version,
    )


def added(response: Any) -> Code:
    (topic,) = response.results_by_topic_v3_and_below
    return Code(topic.results_by_partition[0].partition_error_code)


def append(
    exchange: Exchange, producer: Producer, sequence: int = 0, *, begins: bool = True
) -> Code:
    data = encode(
        [NewRecord(b"v")],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL_FLAG,
    )
    topic = exchange.broker.topic("orders")
    try:
        exchange.broker.appender.append(topic, topic.partition(0), data, begins)
    except PenstockError as error:
        return code_of(error)
    exchange.drain()
    return Code.NONE


def end(exchange: Exchange, producer: Producer, version: int = 5, *, commit: bool = True) -> Any:
    return exchange.send(
        EndTxnRequest(
            transactional_id=NAME,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        ),
        version,
    )


def hold(exchange: Exchange, producer: Producer, version: int = 5, offset: int = 7) -> Code:
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    response = exchange.send(
        TxnOffsetCommitRequest(
            transactional_id=NAME,
            group_id="g",
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                topic(
                    name="orders",
                    partitions=[
                        topic.TxnOffsetCommitRequestPartition(
                            partition_index=0,
                            committed_offset=offset,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        )
                    ],
                )
            ],
        ),
        version,
    )
    return Code(response.topics[0].partitions[0].error_code)


def latest(exchange: Exchange, isolation: int) -> int:
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=-1, max_num_offsets=1
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[topic(name="orders", partitions=[partition])],
        timeout_ms=1,
    )
    response = exchange.send(request, 5)
    offset: int = response.topics[0].partitions[0].offset
    return offset


def fetched(exchange: Exchange) -> tuple[int, Code]:
    message = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = message.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    group = message(group_id="g", member_id=None, member_epoch=-1, topics=[topic])
    request = OffsetFetchRequest(groups=[group], require_stable=True)
    found = exchange.send(request, 9).groups[0].topics[0].partitions[0]
    return found.committed_offset, Code(found.error_code)
