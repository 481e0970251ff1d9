"""Committed offsets: OffsetFetch (9) and OffsetDelete (47), which is answered when it is durable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from struct import Struct
from struct import error as struct_error
from typing import Final
from uuid import UUID

from kafka.protocol.consumer import (
    OffsetDeleteResponse,
    OffsetFetchResponse,
)

from penstock.broker.broker import Broker
from penstock.broker.consumer_group import ConsumerGroup
from penstock.broker.errors import UnknownTopicError, UnknownTopicIdError
from penstock.broker.group_errors import NonEmptyGroupError, UnknownGroupError
from penstock.broker.groups import AnyGroup
from penstock.broker.share_group import ShareGroup
from penstock.broker.topic import Topic
from penstock.errors import PenstockError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.kafka.outcome import DONE, Outcome, RefusedError, attempt, failure, replying
from penstock.log.committed import Committed, Offsets
from penstock.log.positions import PartitionId
from penstock.wire.codec import Message, MessageClass

EPOCH_FROM, _BY_ID_FROM = 9, 10
_NOTHING: Final = Committed(-1, -1, "", 0)
_CONSUMER: Final = "consumer"
_COUNT, _LENGTH = Struct(">i"), Struct(">h")


def _topic(call: Call, wanted: Message) -> Topic:
    """A topic, by name or from version 10 on by id."""
    broker = call.context.broker
    if call.version < _BY_ID_FROM:
        return broker.topic(wanted.name)
    return broker.topic_by_id(wanted.topic_id)


def partition_id(topic: Topic, number: int) -> PartitionId:
    """A partition's name for good; whether its data is whole does not matter for an offset."""
    if not 0 <= number < len(topic.partitions):
        raise UnknownTopicError(
            f"use partition {number} of {topic.name}", f"it has {len(topic.partitions)}"
        )
    return PartitionId(topic.entry.id, number)


def forget_deleted(broker: Broker, offsets: Offsets) -> None:
    """Take out what belongs to topics that were deleted while others went first."""
    for topic_id in {partition.topic_id for partition in offsets}:
        try:
            broker.topic_by_id(topic_id)
        except UnknownTopicError:
            for partition in [p for p in offsets if p.topic_id == topic_id]:
                del offsets[partition]


# -- OffsetFetch


async def offset_fetch(call: Call, request: Message) -> Message:
    """Where groups stand; who asks for stable offsets is told which may still change."""
    stable = call.version >= 7 and request.require_stable
    if call.version < 8:
        message = OffsetFetchResponse.OffsetFetchResponseTopic
        partition = message.OffsetFetchResponsePartition
        topics = await _fetched(call, request.group_id, request.topics, message, partition, stable)
        return OffsetFetchResponse(topics=topics)
    # Each once, as in DescribeGroups.
    wanted = {group.group_id: group for group in request.groups}.values()
    return OffsetFetchResponse(
        groups=[await _fetched_group(call, group, stable) async for group in call.each(wanted)]
    )


async def _fetched_group(call: Call, group: Message, stable: bool) -> Message:
    message = OffsetFetchResponse.OffsetFetchResponseGroup
    if call.version >= EPOCH_FROM:
        groups = call.context.broker.groups
        check = partial(groups.check_fetch, group.group_id, group.member_id, group.member_epoch)
        outcome = attempt(check)
        if not outcome.ok:
            return message(group_id=group.group_id, topics=[], error_code=outcome.code)
    topic = message.OffsetFetchResponseTopics
    topics = await _fetched(
        call, group.group_id, group.topics, topic, topic.OffsetFetchResponsePartitions, stable
    )
    return message(group_id=group.group_id, topics=topics)


async def _fetched(
    call: Call,
    group: str,
    wanted: Iterable[Message] | None,
    topic_message: MessageClass,
    partition_message: MessageClass,
    stable: bool,
) -> list[Message]:
    broker = call.context.broker
    offsets = broker.groups.offsets(group)
    unstable = broker.groups.held.partitions(group) if stable else set()
    found = _all(broker, offsets) if wanted is None else _wanted(call, offsets, wanted)
    topics: list[Message] = []
    async for name, topic_id, known, code, positions in call.each(found):
        waiting = {p.partition for p in unstable if p.topic_id == known}
        partitions = [
            partition_message(
                partition_index=number,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                metadata=position.metadata,
                error_code=code,
            )
            if number not in waiting
            else partition_message(
                partition_index=number,
                committed_offset=_NOTHING.offset,
                committed_leader_epoch=_NOTHING.leader_epoch,
                metadata=_NOTHING.metadata,
                error_code=Code.UNSTABLE_OFFSET_COMMIT,
            )
            async for number, position in call.each(positions)
        ]
        topic = topic_message(name=name, partitions=partitions)
        if call.version >= _BY_ID_FROM:
            topic.topic_id = topic_id
        topics.append(topic)
    return topics


_Fetched = tuple[str, UUID | None, UUID | None, Code, Iterable[tuple[int, Committed]]]
"""Name, id if the topic was asked for by it, id if it is known, and the positions."""


def _all(broker: Broker, offsets: Mapping[PartitionId, Committed]) -> Iterator[_Fetched]:
    by_topic: dict[UUID, list[tuple[int, Committed]]] = {}
    for partition, position in offsets.items():
        by_topic.setdefault(partition.topic_id, []).append((partition.partition, position))
    for topic_id, positions in by_topic.items():
        try:
            name = broker.topic_by_id(topic_id).name
        except UnknownTopicError:
            continue  # deleted, and its offsets are about to go
        yield name, topic_id, topic_id, Code.NONE, sorted(positions)


def _wanted(
    call: Call, offsets: Mapping[PartitionId, Committed], wanted: Iterable[Message]
) -> Iterator[_Fetched]:
    for item in wanted:
        topic_id = item.topic_id if call.version >= _BY_ID_FROM else None
        code = Code.NONE
        try:
            known: UUID | None = _topic(call, item).entry.id
        except UnknownTopicIdError:
            known, code = None, Code.UNKNOWN_TOPIC_ID
        except UnknownTopicError:
            # By name Kafka does not say whether the topic or only the offset is missing.
            known = None
        yield item.name, topic_id, known, code, _positions(item, known, offsets)


def _positions(
    wanted: Message, known: UUID | None, offsets: Mapping[PartitionId, Committed]
) -> Iterator[tuple[int, Committed]]:
    for number in wanted.partition_indexes:
        found = None if known is None else offsets.get(PartitionId(known, number))
        yield number, found or _NOTHING


# -- OffsetDelete


async def offset_delete(call: Call, request: Message) -> Message | None:
    """Forget offsets of topics that the group does not read; answered when that is durable."""
    broker = call.context.broker
    results: list[tuple[str, int, Outcome]] = []
    removed: list[PartitionId] = []
    try:
        subscribed = _subscribed(broker.groups.get(request.group_id))
        while True:
            async for topic in call.each(request.topics):
                async for item in call.each(topic.partitions):
                    number = item.partition_index
                    find = partial(_removable, broker, topic.name, number, subscribed, removed)
                    results.append((topic.name, number, attempt(find)))
            before = subscribed
            subscribed = _subscribed(broker.groups.get(request.group_id))
            if subscribed == before:
                break
            # A request that takes long lets members join, and what they read must stay.
            results.clear()
            removed.clear()
    except PenstockError as error:
        return OffsetDeleteResponse(error_code=failure(error).code, topics=[])
    if not removed:
        return await _deleted(call, results, DONE)
    settle = replying(call, partial(_deleted, call, results))
    broker.groups.remove_offsets(request.group_id, removed, settle)
    return None


def _removable(
    broker: Broker, name: str, number: int, subscribed: set[str] | None, removed: list[PartitionId]
) -> None:
    partition = partition_id(broker.topic(name), number)
    if subscribed is None or name in subscribed:
        raise RefusedError(
            Code.GROUP_SUBSCRIBED_TO_TOPIC, "delete an offset", f"the group reads {name}"
        )
    removed.append(partition)


def _subscribed(group: AnyGroup) -> set[str] | None:
    """The topics that members read; None if that cannot be told, NonEmptyGroupError if it matters."""
    if isinstance(group, ShareGroup):
        raise UnknownGroupError(f"use offsets of group {group.name}", "It is a share group.")
    if group.is_empty:
        return set()
    if isinstance(group, ConsumerGroup):
        return group.subscribed()
    if group.protocol_type != _CONSUMER:
        raise NonEmptyGroupError(f"delete offsets of group {group.name}", "it has members")
    try:
        return {
            topic
            for member in group.members.values()
            for topic in _topics_of(member.metadata(group.protocol))
        }
    except (struct_error, UnicodeDecodeError):
        return None


def _topics_of(subscription: bytes) -> Iterator[str]:
    """The topics of a consumer's subscription, which stand first in every version of it."""
    (count,) = _COUNT.unpack_from(subscription, _LENGTH.size)
    position = _LENGTH.size + _COUNT.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(subscription, position)
        position += _LENGTH.size
        yield subscription[position : position + length].decode()
        position += length


async def _deleted(
    call: Call, results: list[tuple[str, int, Outcome]], durable: Outcome
) -> Message:
    message = OffsetDeleteResponse.OffsetDeleteResponseTopic
    topics: dict[str, list[Message]] = {}
    async for name, number, done in call.each(results):
        outcome = durable if done.ok else done
        topics.setdefault(name, []).append(
            message.OffsetDeleteResponsePartition(partition_index=number, error_code=outcome.code)
        )
    return OffsetDeleteResponse(
        topics=[message(name=name, partitions=items) for name, items in topics.items()]
    )
