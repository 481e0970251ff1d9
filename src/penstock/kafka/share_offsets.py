"""Where share groups stand: Describe-, Alter- and DeleteShareGroupOffsets (90, 91, 92)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from uuid import UUID

from penstock.broker.broker import Broker
from penstock.broker.group_errors import NonEmptyGroupError
from penstock.broker.queues.journal import QueueId
from penstock.broker.queues.queue import Queue
from penstock.broker.share_group import ShareGroup
from penstock.errors import PenstockError, StorageError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.kafka.outcome import DONE, Outcome, RefusedError, attempt, failure, replying
from penstock.log.partition import Partition
from penstock.log.positions import PartitionId
from penstock.wire.codec import Message
from penstock.wire.share_group_messages import (
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponse,
)

_UNKNOWN = -1
_NO_ID = UUID(int=0)


# -- DescribeShareGroupOffsets


async def describe(call: Call, request: Message) -> Message:
    """Where groups begin to deliver, and how much is left."""
    return DescribeShareGroupOffsetsResponse(
        # Each once: five bytes of a request can be worth thousands of the answer.
        groups=[
            await _describe(call, group)
            async for group in call.each({g.group_id: g for g in request.groups}.values())
        ]
    )


async def _describe(call: Call, wanted: Message) -> Message:
    broker = call.context.broker
    message = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    outcome, topics = DONE, []
    try:
        if wanted.group_id in broker.groups:
            broker.groups.share_group(wanted.group_id)
        topics = [
            await _described_topic(call, wanted.group_id, name, numbers)
            async for name, numbers in call.each(_wanted(broker, wanted))
        ]
    except PenstockError as error:
        outcome = failure(error)
    return message(
        group_id=wanted.group_id,
        topics=topics,
        error_code=outcome.code,
        error_message=outcome.message,
    )


def _wanted(broker: Broker, wanted: Message) -> Iterable[tuple[str, list[int]]]:
    """The topics asked for, or all that the group has ever read."""
    if wanted.topics is not None:
        return [(topic.topic_name, list(topic.partitions)) for topic in wanted.topics]
    found: dict[str, list[int]] = {}
    for topic_id, number in sorted(broker.groups.queues.of(wanted.group_id)):
        found.setdefault(broker.topic_by_id(topic_id).name, []).append(number)
    return found.items()


async def _described_topic(call: Call, group: str, name: str, numbers: list[int]) -> Message:
    broker = call.context.broker
    message = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    message = message.DescribeShareGroupOffsetsResponseTopic
    partitions: list[Message] = []
    async for number in call.each(dict.fromkeys(numbers)):
        one = message.DescribeShareGroupOffsetsResponsePartition(
            partition_index=number, start_offset=_UNKNOWN, leader_epoch=broker.epoch, lag=_UNKNOWN
        )
        try:
            partition = broker.topic(name).partition(number)
            queue = broker.groups.queues.of(group).get(partition.identity)
            if queue is not None:
                one.start_offset, one.lag = _standing(queue, partition)
        except PenstockError as error:
            one.error_code, one.error_message = failure(error)
        partitions.append(one)
    topic_id = _id_of(broker, name)
    return message(topic_name=name, topic_id=topic_id, partitions=partitions)


def _standing(queue: Queue, partition: Partition) -> tuple[int, int]:
    """Where a queue begins, and how many positions are not finished."""
    queue.follow(partition.start_offset)
    return queue.start, max(0, partition.durable_offset - queue.start - queue.finished)


def _id_of(broker: Broker, name: str) -> UUID:
    try:
        return broker.topic(name).entry.id
    except PenstockError:
        return _NO_ID


# -- AlterShareGroupOffsets


async def alter(call: Call, request: Message) -> Message | None:
    """Let a group without members start somewhere else; answered when it is durable."""
    broker = call.context.broker
    outcomes: dict[tuple[str, int], Outcome] = {}
    try:
        group = _without_members(broker.groups.share_group_to_be(request.group_id))
    except PenstockError as error:
        refused = failure(error)
        return AlterShareGroupOffsetsResponse(
            error_code=refused.code, error_message=refused.message, responses=[]
        )

    def settle(place: tuple[str, int], error: StorageError | None) -> None:
        outcomes[place] = DONE if error is None else failure(error)

    async for topic in call.each(request.topics):
        async for item in call.each(topic.partitions):
            place = (topic.topic_name, item.partition_index)
            done = partial(settle, place)
            outcomes[place] = attempt(partial(_move, broker, group, place, item.start_offset, done))
    # After the round that settles the last of them.
    broker.commit.after(lambda: call.context.pace.answer(call, _altered(call, outcomes)))
    return None


def _without_members(group: ShareGroup) -> ShareGroup:
    if not group.is_empty:
        raise NonEmptyGroupError(
            f"change where group {group.name} stands",
            f"it has {len(group.members)} members",
            "stop them",
        )
    return group


def _move(
    broker: Broker, group: ShareGroup, place: tuple[str, int], position: int, done: partial[None]
) -> None:
    # Still: a request that takes long lets members join, and the group be deleted.
    _without_members(broker.groups.share_group(group.name))
    partition = broker.topic(place[0]).partition(place[1])
    if position < 0:
        operation = f"move group {group.name}"
        raise RefusedError(Code.INVALID_REQUEST, operation, f"{position} is no offset")
    broker.groups.queues.begin(QueueId(group.name, partition.identity), position, done)


async def _altered(call: Call, outcomes: dict[tuple[str, int], Outcome]) -> Message:
    broker = call.context.broker
    message = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
    topics: dict[str, list[Message]] = {}
    async for (name, number), outcome in call.each(outcomes.items()):
        topics.setdefault(name, []).append(
            message.AlterShareGroupOffsetsResponsePartition(
                partition_index=number, error_code=outcome.code, error_message=outcome.message
            )
        )
    return AlterShareGroupOffsetsResponse(
        responses=[
            message(topic_name=name, topic_id=_id_of(broker, name), partitions=partitions)
            async for name, partitions in call.each(topics.items())
        ]
    )


# -- DeleteShareGroupOffsets


async def delete(call: Call, request: Message) -> Message | None:
    """Forget where a group without members stands in some topics; answered when it is durable."""
    broker = call.context.broker
    removed: set[PartitionId] = set()
    try:
        group = _without_members(broker.groups.share_group(request.group_id))
        outcomes = {
            topic.topic_name: attempt(partial(_find, broker, group.name, topic.topic_name, removed))
            async for topic in call.each(request.topics)
        }
        # Still: a request that takes long lets members join, and the group be deleted.
        _without_members(broker.groups.share_group(request.group_id))
    except PenstockError as error:
        refused = failure(error)
        return DeleteShareGroupOffsetsResponse(
            error_code=refused.code, error_message=refused.message, responses=[]
        )
    removed &= broker.groups.queues.of(group.name).keys()
    settled = replying(call, partial(_deleted, call, outcomes))
    broker.groups.queues.remove(group.name, removed, settled)
    return None


def _find(broker: Broker, group: str, name: str, removed: set[PartitionId]) -> None:
    topic_id = broker.topic(name).entry.id
    removed |= {p for p in broker.groups.queues.of(group) if p.topic_id == topic_id}


async def _deleted(call: Call, outcomes: dict[str, Outcome], durable: Outcome) -> Message:
    broker = call.context.broker
    responses: list[Message] = []
    async for name, found in call.each(outcomes.items()):
        outcome = durable if found.ok else found
        responses.append(
            DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=_id_of(broker, name),
                error_code=outcome.code,
                error_message=outcome.message,
            )
        )
    return DeleteShareGroupOffsetsResponse(responses=responses)
