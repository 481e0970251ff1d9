"""DescribeLogDirs (35): how much every partition takes on the disk."""

from __future__ import annotations

from collections.abc import Iterable

from kafka.protocol.admin import DescribeLogDirsResponse

from penstock.broker.errors import UnknownTopicError
from penstock.broker.topic import Topic
from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.log.partition import Partition
from penstock.wire.codec import Message


async def describe_log_dirs(call: Call, request: Message) -> Message:
    """The data folder, with the partitions that are asked for and in service."""
    broker = call.context.broker
    topics: list[Message] = []
    if request.topics is None:
        topics = [
            await _topic(call, topic, range(len(topic.partitions)))
            async for topic in call.each(broker.topics())
        ]
    else:
        async for wanted in call.each(request.topics):
            try:
                topics.append(await _topic(call, broker.topic(wanted.topic), wanted.partitions))
            except UnknownTopicError:
                continue  # as Kafka: what is not there takes no space
    return DescribeLogDirsResponse(
        error_code=Code.NONE,
        results=[
            DescribeLogDirsResponse.DescribeLogDirsResult(
                error_code=Code.NONE,
                log_dir=str(broker.folder),
                topics=topics,
                total_bytes=broker.total_bytes(),
                usable_bytes=broker.free_bytes(),
            )
        ],
    )


async def _topic(call: Call, topic: Topic, numbers: Iterable[int]) -> Message:
    message = DescribeLogDirsResponse.DescribeLogDirsResult.DescribeLogDirsTopic
    partitions: list[Message] = []
    async for number in call.each(numbers):
        if 0 <= number < len(topic.partitions):
            partition = topic.partitions[number]
            if isinstance(partition, Partition):
                partitions.append(
                    message.DescribeLogDirsPartition(
                        partition_index=number,
                        partition_size=partition.size_bytes,
                        offset_lag=0,
                        is_future_key=False,
                    )
                )
    return message(name=topic.name, partitions=partitions)
