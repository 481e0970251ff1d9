"""Groups whose members share partitions: ShareGroupHeartbeat (76), ShareGroupDescribe (77)."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.consumer_member import JOINING, LEAVING, Beat
from penstock.broker.group_errors import GroupError, InvalidHeartbeatError
from penstock.broker.share_group import ASSIGNOR, ShareMember
from penstock.kafka import shares
from penstock.kafka.call import Call
from penstock.kafka.groups import GROUP_OPERATIONS
from penstock.kafka.outcome import failure
from penstock.wire.codec import Message
from penstock.wire.share_group_messages import (
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatResponse,
)

# -- ShareGroupHeartbeat


def heartbeat(call: Call, request: Message) -> Message:
    """A member joins, stays or leaves, and learns what to fetch from."""
    groups = call.context.broker.groups
    try:
        _check(request)
        told = groups.share_heartbeat(request.group_id, _beat(call, request))
    except GroupError as error:
        outcome = failure(error)
        return ShareGroupHeartbeatResponse(error_code=outcome.code, error_message=outcome.message)
    interval = groups.configs.of(request.group_id).share_heartbeat_seconds
    return ShareGroupHeartbeatResponse(
        member_id=told.member_id,
        member_epoch=told.epoch,
        heartbeat_interval_ms=0 if told.epoch == LEAVING else round(interval * 1000),
        assignment=shares.told(ShareGroupHeartbeatResponse.Assignment, told.assigned),
    )


def _check(request: Message) -> None:
    operation = "take a heartbeat"
    if not request.group_id:
        raise InvalidHeartbeatError(operation, "GroupId can't be empty.")
    if not request.member_id:
        raise InvalidHeartbeatError(operation, "MemberId can't be empty.")
    if request.rack_id == "":
        raise InvalidHeartbeatError(operation, "RackId can't be empty.")
    if request.member_epoch < LEAVING:
        raise InvalidHeartbeatError(operation, f"{request.member_epoch} is no epoch")
    if request.member_epoch == JOINING and not request.subscribed_topic_names:
        raise InvalidHeartbeatError(operation, "SubscribedTopicNames must be set when joining.")


def _beat(call: Call, request: Message) -> Beat:
    topics = request.subscribed_topic_names
    return Beat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        client_id=call.client_id,
        client_host=f"/{call.peer.remote.rpartition(':')[0]}",
        topics=None if topics is None else frozenset(topics),
    )


# -- ShareGroupDescribe


async def describe(call: Call, request: Message) -> Message:
    """Groups and their members."""
    return ShareGroupDescribeResponse(
        # Each once, as in DescribeGroups.
        groups=[
            await _describe(call, name, operations=request.include_authorized_operations)
            async for name in call.each(dict.fromkeys(request.group_ids))
        ]
    )


async def _describe(call: Call, name: str, *, operations: bool) -> Message:
    message = ShareGroupDescribeResponse.DescribedGroup
    broker = call.context.broker
    try:
        group = broker.groups.share_group(name)
    except GroupError as error:
        return shares.not_described(message, name, error)
    return message(
        group_id=name,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=ASSIGNOR,
        members=[
            _describe_member(broker, member)
            async for member in call.each(list(group.members.values()))
        ],
        authorized_operations=GROUP_OPERATIONS if operations else None,
    )


def _describe_member(broker: Broker, member: ShareMember) -> Message:
    message = ShareGroupDescribeResponse.DescribedGroup.Member
    return message(
        member_id=member.id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=shares.described(message.Assignment, broker, member.assigned),
    )
