"""DeleteRecords (21)."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from kafka.protocol.admin import DeleteRecordsResponse

from penstock.broker.broker import Broker
from penstock.errors import PenstockError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.kafka.outcome import DONE, Outcome, failure, reply_when_durable
from penstock.log.partition import Partition
from penstock.wire.codec import Message

_NO_OFFSET = -1


class Deletion(NamedTuple):
    """What became of one partition of the request."""

    partition: int
    outcome: Outcome
    start: int = _NO_OFFSET
    log: Partition | None = None


async def delete_records(call: Call, request: Message) -> Message | None:
    """Move the start of partitions."""
    broker = call.context.broker
    topics = [
        (
            topic.name,
            [_delete(broker, topic.name, wanted) async for wanted in call.each(topic.partitions)],
        )
        async for topic in call.each(request.topics)
    ]
    if not any(item.outcome.ok for _, items in topics for item in items):
        return await _deleted(call, topics, DONE)
    reply_when_durable(call, partial(_deleted, call, topics))
    return None


def _delete(broker: Broker, name: str, wanted: Message) -> Deletion:
    number = wanted.partition_index
    try:
        partition = broker.topic(name).partition(number)
        return Deletion(number, DONE, broker.delete_records(partition, wanted.offset), partition)
    except (PenstockError, OSError) as error:
        return Deletion(number, failure(error))


async def _deleted(
    call: Call, topics: list[tuple[str, list[Deletion]]], durable: Outcome
) -> Message:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _result(item, durable, call.context.broker) async for item in call.each(items)
                ],
            )
            async for name, items in call.each(topics)
        ]
    )


def _result(item: Deletion, durable: Outcome, broker: Broker) -> Message:
    outcome = durable if item.outcome.ok else item.outcome
    if outcome.ok and item.log is not None and not broker.keeps_start(item.log):
        outcome = Outcome(Code.KAFKA_STORAGE_ERROR)
    message = DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult
    return message(
        partition_index=item.partition,
        low_watermark=item.start if outcome.ok else _NO_OFFSET,
        error_code=outcome.code,
    )
