"""Committed offsets: OffsetCommit (8), OffsetFetch (9), OffsetDelete (47).

Commits and deletions are answered when they are durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple
from uuid import UUID

from kafka.protocol.consumer import (
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)

from penstock.broker.broker import Broker
from penstock.broker.consumer_group import ConsumerGroup
from penstock.broker.errors import UnknownTopicError
from penstock.broker.group_errors import NonEmptyGroupError
from penstock.broker.group_member import Identity
from penstock.broker.groups import AnyGroup
from penstock.broker.topic import Topic
from penstock.errors import PenstockError, StorageError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.kafka.outcome import DONE, Outcome, RefusedError, attempt, failure
from penstock.log.committed import Committed
from penstock.log.positions import PartitionId
from penstock.wire.codec import Message, MessageClass

_EPOCH_FROM, _BY_ID_FROM = 9, 10
_NOTHING: Final = Committed(-1, -1, "", 0)
_CONSUMER: Final = "consumer"
_COUNT, _LENGTH = Struct(">i"), Struct(">h")


# -- OffsetCommit


class Commit(NamedTuple):
    """One partition of the request."""

    number: int
    outcome: Outcome
    partition: PartitionId | None = None
    committed: Committed = _NOTHING


def offset_commit(call: Call, request: Message) -> Message | None:
    """Keep offsets; answered when they are durable."""
    groups = call.context.broker.groups
    instance_id = request.group_instance_id if call.version >= 7 else None
    who = Identity(request.member_id, instance_id)
    generation: int = request.generation_id_or_member_epoch
    commits = [(topic, list(_commits(call, topic))) for topic in request.topics]
    offsets = {c.partition: c.committed for _, items in commits for c in items if c.partition}
    outcome = attempt(lambda: _check_commit(call, request.group_id, who, generation))

    def settle(error: StorageError | None) -> None:
        call.reply(_committed(commits, DONE if error is None else failure(error)))

    if outcome.ok and offsets:
        outcome = attempt(lambda: groups.commit(request.group_id, offsets, settle))
        if outcome.ok:
            return None
    return _committed(commits, outcome)


def _check_commit(call: Call, name: str, who: Identity, generation: int) -> None:
    groups = call.context.broker.groups
    groups.check_commit(name, who, generation)
    if generation >= 0 and call.version < _EPOCH_FROM and groups.has_epochs(name, who.member_id):
        raise RefusedError(
            Code.UNSUPPORTED_VERSION,
            f"commit offsets of group {name}",
            f"members with an epoch need version {_EPOCH_FROM}",
        )


def _commits(call: Call, topic: Message) -> Iterator[Commit]:
    broker = call.context.broker
    for wanted in topic.partitions:
        number = wanted.partition_index
        epoch = wanted.committed_leader_epoch if call.version >= 6 else -1
        try:
            found = partition_id(_topic(call, topic), number)
            position = broker.groups.position(
                wanted.committed_offset, epoch, wanted.committed_metadata
            )
        except PenstockError as error:
            yield Commit(number, failure(error))
        else:
            yield Commit(number, DONE, found, position)


def _committed(commits: list[tuple[Message, list[Commit]]], outcome: Outcome) -> Message:
    message = OffsetCommitResponse.OffsetCommitResponseTopic
    return OffsetCommitResponse(
        topics=[
            message(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    message.OffsetCommitResponsePartition(
                        partition_index=item.number,
                        error_code=outcome.code if item.outcome.ok else item.outcome.code,
                    )
                    for item in items
                ],
            )
            for topic, items in commits
        ]
    )


def _topic(call: Call, wanted: Message) -> Topic:
    """A topic, by name or from version 10 on by id."""
    broker = call.context.broker
    if call.version < _BY_ID_FROM:
        return broker.topic(wanted.name)
    try:
        return broker.topic_by_id(wanted.topic_id)
    except UnknownTopicError as error:
        raise RefusedError(Code.UNKNOWN_TOPIC_ID, error.operation, error.cause) from error


def partition_id(topic: Topic, number: int) -> PartitionId:
    """A partition's name for good; whether its data is whole does not matter for an offset."""
    if not 0 <= number < len(topic.partitions):
        raise UnknownTopicError(
            f"use partition {number} of {topic.name}", f"it has {len(topic.partitions)}"
        )
    return PartitionId(topic.entry.id, number)


# -- OffsetFetch


def offset_fetch(call: Call, request: Message) -> Message:
    """Where groups stand; who asks for stable offsets is told which may still change."""
    stable = call.version >= 7 and request.require_stable
    if call.version < 8:
        message = OffsetFetchResponse.OffsetFetchResponseTopic
        partition = message.OffsetFetchResponsePartition
        topics = _fetched(call, request.group_id, request.topics, message, partition, stable)
        return OffsetFetchResponse(topics=topics)
    # Each once, as in DescribeGroups.
    wanted = {group.group_id: group for group in request.groups}.values()
    return OffsetFetchResponse(groups=[_fetched_group(call, group, stable) for group in wanted])


def _fetched_group(call: Call, group: Message, stable: bool) -> Message:
    message = OffsetFetchResponse.OffsetFetchResponseGroup
    if call.version >= _EPOCH_FROM:
        groups = call.context.broker.groups
        check = partial(groups.check_fetch, group.group_id, group.member_id, group.member_epoch)
        outcome = attempt(check)
        if not outcome.ok:
            return message(group_id=group.group_id, topics=[], error_code=outcome.code)
    topic = message.OffsetFetchResponseTopics
    topics = _fetched(
        call, group.group_id, group.topics, topic, topic.OffsetFetchResponsePartitions, stable
    )
    return message(group_id=group.group_id, topics=topics)


def _fetched(
    call: Call,
    group: str,
    wanted: Iterable[Message] | None,
    topic_message: MessageClass,
    partition_message: MessageClass,
    stable: bool,
) -> list[Message]:
    broker = call.context.broker
    offsets = broker.groups.offsets(group)
    unstable = broker.transactions.holds_offsets(group) if stable else set()
    found = _all(broker, offsets) if wanted is None else _wanted(call, offsets, wanted)
    topics: list[Message] = []
    for name, topic_id, known, code, positions in found:
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
            for number, position in positions
        ]
        topic = topic_message(name=name, partitions=partitions)
        if call.version >= _BY_ID_FROM:
            topic.topic_id = topic_id
        topics.append(topic)
    return topics


_Fetched = tuple[str, UUID | None, UUID | None, Code, list[tuple[int, Committed]]]
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
        except RefusedError as error:
            known, code = None, error.code
        except UnknownTopicError:
            known = (
                None  # by name Kafka does not say whether the topic or only the offset is missing
            )
        positions = [
            (n, _NOTHING if known is None else offsets.get(PartitionId(known, n), _NOTHING))
            for n in item.partition_indexes
        ]
        yield item.name, topic_id, known, code, positions


# -- OffsetDelete


def offset_delete(call: Call, request: Message) -> Message | None:
    """Forget offsets of topics that the group does not read; answered when that is durable."""
    broker = call.context.broker
    try:
        group = broker.groups.get(request.group_id)
        subscribed = _subscribed(group)
    except PenstockError as error:
        return OffsetDeleteResponse(error_code=failure(error).code, topics=[])
    results: list[tuple[str, int, Outcome]] = []
    removed: list[PartitionId] = []
    for topic in request.topics:
        for item in topic.partitions:
            number = item.partition_index
            find = partial(_removable, broker, topic.name, number, subscribed, removed)
            results.append((topic.name, number, attempt(find)))

    def settle(error: StorageError | None) -> None:
        call.reply(_deleted(results, DONE if error is None else failure(error)))

    if not removed:
        return _deleted(results, DONE)
    broker.groups.remove_offsets(group.name, removed, settle)
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


def _deleted(results: list[tuple[str, int, Outcome]], durable: Outcome) -> Message:
    message = OffsetDeleteResponse.OffsetDeleteResponseTopic
    topics: dict[str, list[Message]] = {}
    for name, number, done in results:
        outcome = durable if done.ok else done
        topics.setdefault(name, []).append(
            message.OffsetDeleteResponsePartition(partition_index=number, error_code=outcome.code)
        )
    return OffsetDeleteResponse(
        topics=[message(name=name, partitions=items) for name, items in topics.items()]
    )
