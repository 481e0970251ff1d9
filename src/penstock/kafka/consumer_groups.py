"""Groups that the server shares work out to: ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.broker.broker import Broker
from penstock.broker.consumer_group import ConsumerGroup
from penstock.broker.consumer_member import JOINING, Beat, ConsumerMember, Told
from penstock.broker.group_errors import GroupError, InvalidHeartbeatError
from penstock.kafka import shares
from penstock.kafka.call import Call
from penstock.kafka.groups import GROUP_OPERATIONS
from penstock.kafka.outcome import failure
from penstock.limits import CONSUMER_WAITING_HEARTBEAT_SECONDS
from penstock.log.positions import PartitionId
from penstock.wire.codec import Message
from penstock.wire.consumer_group_messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
)

_CLASSIC, _CONSUMER = 0, 1  # the protocol that a member uses, as Kafka calls it


# -- ConsumerGroupHeartbeat


def heartbeat(call: Call, request: Message) -> Message:
    """A member joins, stays or leaves, and learns what it may use."""
    try:
        _check_names(call, request)
        told = call.context.broker.groups.consumer_heartbeat(request.group_id, _beat(call, request))
    except GroupError as error:
        outcome = failure(error)
        return ConsumerGroupHeartbeatResponse(
            error_code=outcome.code, error_message=outcome.message
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=told.member_id,
        member_epoch=told.epoch,
        heartbeat_interval_ms=_interval_ms(call, request.group_id, told),
        assignment=shares.told(ConsumerGroupHeartbeatResponse.Assignment, told.assigned),
    )


def _interval_ms(call: Call, group: str, told: Told) -> int:
    if told.epoch < 0:
        return 0  # it is leaving
    if told.is_waiting:
        return round(CONSUMER_WAITING_HEARTBEAT_SECONDS * 1000)
    return round(call.context.broker.groups.heartbeat_seconds(group) * 1000)


def _check_names(call: Call, request: Message) -> None:
    if not request.group_id:
        raise InvalidHeartbeatError("take a heartbeat", "GroupId can't be empty.")
    # Members make their own ids from version 1 on (KIP-1082).
    if not request.member_id and (call.version >= 1 or request.member_epoch != JOINING):
        raise InvalidHeartbeatError("take a heartbeat", "MemberId can't be empty.")


def _beat(call: Call, request: Message) -> Beat:
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    return Beat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=call.client_id,
        client_host=f"/{call.peer.remote.rpartition(':')[0]}",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if topics is None else frozenset(topics),
        pattern=request.subscribed_topic_regex if call.version >= 1 else None,
        assignor=request.server_assignor,
        owned=None if owned is None else frozenset(_partitions(owned)),
    )


def _partitions(topics: Iterable[Message]) -> Iterator[PartitionId]:
    for topic in topics:
        for number in topic.partitions:
            yield PartitionId(topic.topic_id, number)


# -- ConsumerGroupDescribe


async def describe(call: Call, request: Message) -> Message:
    """Groups and their members."""
    return ConsumerGroupDescribeResponse(
        # Each once, as in DescribeGroups.
        groups=[
            await _describe(call, name, operations=request.include_authorized_operations)
            async for name in call.each(dict.fromkeys(request.group_ids))
        ]
    )


async def _describe(call: Call, name: str, *, operations: bool) -> Message:
    message = ConsumerGroupDescribeResponse.DescribedGroup
    broker = call.context.broker
    try:
        group = broker.groups.consumer_group(name)
    except GroupError as error:
        return shares.not_described(message, name, error)
    return message(
        group_id=name,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[
            _describe_member(broker, group, member)
            async for member in call.each(list(group.members.values()))
        ],
        authorized_operations=GROUP_OPERATIONS if operations else None,
    )


def _describe_member(broker: Broker, group: ConsumerGroup, member: ConsumerMember) -> Message:
    message = ConsumerGroupDescribeResponse.DescribedGroup.Member
    return message(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern or "",
        assignment=shares.described(message.Assignment, broker, member.current.assigned),
        target_assignment=shares.described(message.Assignment, broker, group.target(member)),
        member_type=_CONSUMER if member.seat is None else _CLASSIC,
    )
