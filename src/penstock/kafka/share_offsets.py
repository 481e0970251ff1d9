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
from penstock.kafka.outcome import DONE, Outcome, RefusedError, attempt, failure
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


def describe(call: Call, request: Message) -> Message:
    """Where groups begin to deliver, and how much is left."""
    return DescribeShareGroupOffsetsResponse(
        # Each once: five bytes of a request can be worth thousands of the answer.
        groups=[
            _describe(call.context.broker, group)
            for group in {group.group_id: group for group in request.groups}.values()
        ]
    )


def _describe(broker: Broker, wanted: Message) -> Message:
    message = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    outcome, topics = DONE, []
    try:
        if wanted.group_id in broker.groups:
            broker.groups.share_group(wanted.group_id)
        topics = [
            _described_topic(broker, wanted.group_id, name, numbers)
            for name, numbers in _wanted(broker, wanted)
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


def _described_topic(broker: Broker, group: str, name: str, numbers: list[int]) -> Message:
    message = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    message = message.DescribeShareGroupOffsetsResponseTopic
    partitions: list[Message] = []
    for number in dict.fromkeys(numbers):
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


def alter(call: Call, request: Message) -> Message | None:
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

    for topic in request.topics:
        for item in topic.partitions:
            place = (topic.topic_name, item.partition_index)
            done = partial(settle, place)
            outcomes[place] = attempt(
                partial(_move, broker, group.name, place, item.start_offset, done)
            )
    # After the round that settles the last of them.
    broker.commit.after(lambda: call.reply(_altered(broker, outcomes)))
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
    broker: Broker, group: str, place: tuple[str, int], position: int, done: partial[None]
) -> None:
    partition = broker.topic(place[0]).partition(place[1])
    if position < 0:
        raise RefusedError(Code.INVALID_REQUEST, f"move group {group}", f"{position} is no offset")
    broker.groups.queues.begin(QueueId(group, partition.identity), position, done)


def _altered(broker: Broker, outcomes: dict[tuple[str, int], Outcome]) -> Message:
    message = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
    topics: dict[str, list[Message]] = {}
    for (name, number), outcome in outcomes.items():
        topics.setdefault(name, []).append(
            message.AlterShareGroupOffsetsResponsePartition(
                partition_index=number, error_code=outcome.code, error_message=outcome.message
            )
        )
    return AlterShareGroupOffsetsResponse(
        responses=[
            message(topic_name=name, topic_id=_id_of(broker, name), partitions=partitions)
            for name, partitions in topics.items()
        ]
    )


# -- DeleteShareGroupOffsets


def delete(call: Call, request: Message) -> Message | None:
    """Forget where a group without members stands in some topics; answered when it is durable."""
    broker = call.context.broker
    try:
        group = _without_members(broker.groups.share_group(request.group_id))
    except PenstockError as error:
        refused = failure(error)
        return DeleteShareGroupOffsetsResponse(
            error_code=refused.code, error_message=refused.message, responses=[]
        )
    removed: set[PartitionId] = set()
    outcomes = {
        topic.topic_name: attempt(partial(_find, broker, group.name, topic.topic_name, removed))
        for topic in request.topics
    }

    def settled(error: StorageError | None) -> None:
        call.reply(_deleted(broker, outcomes, DONE if error is None else failure(error)))

    broker.groups.queues.remove(group.name, removed, settled)
    return None


def _find(broker: Broker, group: str, name: str, removed: set[PartitionId]) -> None:
    topic_id = broker.topic(name).entry.id
    removed |= {p for p in broker.groups.queues.of(group) if p.topic_id == topic_id}


def _deleted(broker: Broker, outcomes: dict[str, Outcome], durable: Outcome) -> Message:
    responses: list[Message] = []
    for name, found in outcomes.items():
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
