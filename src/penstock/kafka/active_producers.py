"""DescribeProducers (61): who has written to a partition lately, and how far."""

from __future__ import annotations

from kafka.protocol.admin import DescribeProducersResponse

from penstock.errors import PenstockError
from penstock.kafka.call import Call
from penstock.kafka.outcome import failure
from penstock.wire.codec import Message

_TOPIC = DescribeProducersResponse.TopicResponse
_PARTITION = _TOPIC.PartitionResponse


async def describe_producers(call: Call, request: Message) -> Message:
    """The idempotent producers of each partition, as duplicates are recognised by them."""
    return DescribeProducersResponse(
        topics=[
            _TOPIC(
                name=topic.name,
                partitions=[
                    await _partition(call, topic.name, number)
                    # Each once: an answer can be far larger than what asks for it.
                    async for number in call.each(dict.fromkeys(topic.partition_indexes))
                ],
            )
            async for topic in call.each(request.topics)
        ]
    )


async def _partition(call: Call, topic: str, number: int) -> Message:
    broker = call.context.broker
    try:
        table = broker.appender.producers(broker.topic(topic).partition(number))
    except PenstockError as error:
        outcome = failure(error)
        return _PARTITION(
            partition_index=number,
            error_code=outcome.code,
            error_message=outcome.message,
            active_producers=[],
        )
    return _PARTITION(
        partition_index=number,
        error_code=0,
        error_message=None,
        active_producers=[
            _PARTITION.ProducerState(
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                last_sequence=one.last_sequence,
                last_timestamp=one.last_timestamp,
                coordinator_epoch=-1,
                current_txn_start_offset=one.transaction_start,
            )
            async for one in call.each(list(table.states()))
        ],
    )
