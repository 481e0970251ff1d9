"""Groups: JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), and their administration.

DescribeGroups (15), ListGroups (16), DeleteGroups (42) are for people.

Joins and syncs are answered when the group has got that far; nothing else waits for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from kafka.protocol.admin import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from kafka.protocol.consumer import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)

from penstock.broker.group import Group, State
from penstock.broker.group_errors import (
    GroupError,
    InconsistentProtocolError,
    MemberIdRequiredError,
    UnknownMemberError,
)
from penstock.broker.group_member import (
    Identity,
    Joined,
    JoinRequest,
    Member,
    Protocol,
    Synced,
)
from penstock.broker.mixed_group import MixedGroup
from penstock.broker.share_group import ShareGroup
from penstock.errors import StorageError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code, code_of
from penstock.kafka.outcome import Outcome, attempt, outcome_of
from penstock.wire.codec import Message

_TYPES: Final = {Group: "classic", MixedGroup: "consumer", ShareGroup: "share"}
# The group sees so many go together; 1,000 strangers take a millisecond.
_LEAVING_AT_ONCE = 1_000
# What Kafka reports when there is no authorizer: every operation a group knows.
GROUP_OPERATIONS: Final = frozenset({3, 6, 8, 10, 11})


# -- JoinGroup


def join_group(call: Call, request: Message) -> None:
    """Become or stay a member; answered when everybody has joined."""
    session_timeout: int = request.session_timeout_ms
    # Version 0 knows one timeout.
    rebalance_timeout = request.rebalance_timeout_ms if call.version >= 1 else session_timeout
    # The first of equal names counts; Kafka has them as a map, too.
    protocols = {p.name: bytes(p.metadata) for p in reversed(request.protocols)}
    joining = JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id if call.version >= 5 else None,
        client_id=call.client_id,
        client_host=f"/{call.peer.remote.rpartition(':')[0]}",
        session_timeout_ms=session_timeout,
        rebalance_timeout_ms=max(0, rebalance_timeout),
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(*item) for item in reversed(protocols.items())),
        must_know_id=call.version >= 4,
        may_skip_assignment=call.version >= 9,
    )
    answer = partial(_answer_join, call, request.member_id)
    call.context.broker.groups.join(request.group_id, joining, answer)


def _answer_join(call: Call, member_id: str, result: Joined | GroupError) -> None:
    if isinstance(result, GroupError):
        call.reply(
            JoinGroupResponse(
                error_code=code_of(result),
                # Before version 7 it cannot be null.
                protocol_name=None if call.version >= 7 else "",
                leader="",
                member_id=(
                    result.member_id if isinstance(result, MemberIdRequiredError) else member_id
                ),
                members=[],
            )
        )
        return
    call.reply(
        JoinGroupResponse(
            generation_id=result.generation,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol,
            leader=result.leader_id,
            skip_assignment=result.skip_assignment,
            member_id=result.member_id,
            members=[
                JoinGroupResponse.JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    metadata=member.metadata,
                )
                for member in result.members
            ],
        )
    )


# -- SyncGroup


def sync_group(call: Call, request: Message) -> None:
    """Ask for a share of the work, or share it out; answered when the leader has."""
    answer = partial(_answer_sync, call)
    protocol: tuple[str | None, str | None] = (None, None)
    if call.version >= 5:
        protocol = (request.protocol_type, request.protocol_name)
        if None in protocol:
            answer(InconsistentProtocolError("sync with a group", "the protocol is not named"))
            return
    call.context.broker.groups.sync(
        request.group_id,
        _identity(call, request, instance_from=3),
        request.generation_id,
        protocol,
        {item.member_id: bytes(item.assignment) for item in request.assignments},
        answer,
    )


def _answer_sync(call: Call, result: Synced | GroupError) -> None:
    if isinstance(result, GroupError):
        call.reply(SyncGroupResponse(error_code=code_of(result), assignment=b""))
        return
    call.reply(
        SyncGroupResponse(
            protocol_type=result.protocol_type,
            protocol_name=result.protocol,
            assignment=result.assignment,
        )
    )


def _identity(call: Call, request: Message, *, instance_from: int) -> Identity:
    """Who asks; static members can say so from some version on."""
    instance_id = request.group_instance_id if call.version >= instance_from else None
    return Identity(request.member_id, instance_id)


# -- Heartbeat, LeaveGroup


def heartbeat(call: Call, request: Message) -> Message:
    """A member is alive, and learns whether it must join again."""
    groups = call.context.broker.groups
    who = _identity(call, request, instance_from=3)
    outcome = attempt(lambda: groups.heartbeat(request.group_id, who, request.generation_id))
    return HeartbeatResponse(error_code=outcome.code)


async def leave_group(call: Call, request: Message) -> Message:
    """Members go; from version 3 on several at once, also by their instance ids."""
    try:
        if call.version < 3:
            (code,) = _left(call, request, [Identity(request.member_id)])
            return LeaveGroupResponse(error_code=code)
        members: list[Message] = []
        async for first in call.each(range(0, len(request.members), _LEAVING_AT_ONCE)):
            some = request.members[first : first + _LEAVING_AT_ONCE]
            leaving = [Identity(m.member_id, m.group_instance_id) for m in some]
            members += [
                LeaveGroupResponse.MemberResponse(
                    member_id=who.member_id, group_instance_id=who.instance_id, error_code=code
                )
                for who, code in zip(leaving, _left(call, request, leaving), strict=True)
            ]
    except GroupError as error:
        return LeaveGroupResponse(error_code=code_of(error), members=[])
    return LeaveGroupResponse(members=members)


def _left(call: Call, request: Message, leaving: list[Identity]) -> list[Code]:
    errors: Sequence[GroupError | None]
    try:
        errors = call.context.broker.groups.leave(request.group_id, leaving)
    except UnknownMemberError as error:
        errors = [error] * len(leaving)
    return [Code.NONE if error is None else code_of(error) for error in errors]


# -- DescribeGroups, ListGroups, DeleteGroups


async def describe_groups(call: Call, request: Message) -> Message:
    """Groups and their members."""
    operations = call.version >= 3 and request.include_authorized_operations
    return DescribeGroupsResponse(
        # Each once, however often it is named: a description can be a thousand times its name.
        groups=[
            await _describe(call, name, operations=operations)
            async for name in call.each(dict.fromkeys(request.groups))
        ]
    )


async def _describe(call: Call, name: str, *, operations: bool) -> Message:
    message = DescribeGroupsResponse.DescribedGroup
    try:
        group = call.context.broker.groups.classic_group(name)
    except GroupError as error:
        # Before version 6 a group that does not exist is described as a dead one.
        code = code_of(error) if call.version >= 6 else Code.NONE
        return message(
            error_code=code,
            error_message=error.cause,
            group_id=name,
            group_state=State.DEAD.value,
            protocol_type="",
            protocol_data="",
            members=[],
            authorized_operations=GROUP_OPERATIONS if operations else None,
        )
    return message(
        group_id=name,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol if group.state is State.STABLE else "",
        members=[_describe_member(group, m) async for m in call.each(list(group.members.values()))],
        authorized_operations=GROUP_OPERATIONS if operations else None,
    )


def _describe_member(group: Group, member: Member) -> Message:
    settled = group.state is State.STABLE
    return DescribeGroupsResponse.DescribedGroup.DescribedGroupMember(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol) if settled else b"",
        # What it has had until now: tools show who reads what while a group rebalances, too.
        member_assignment=member.assignment,
    )


async def list_groups(call: Call, request: Message) -> Message:
    """All groups, or those in certain states or of certain types."""
    states = {state.lower() for state in request.states_filter} if call.version >= 4 else set()
    types = {kind.lower() for kind in request.types_filter} if call.version >= 5 else set()
    return ListGroupsResponse(
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group.name,
                protocol_type=group.protocol_type,
                group_state=group.state.value,
                group_type=_TYPES[type(group)],
            )
            async for group in call.each(call.context.broker.groups.all())
            if (not states or group.state.value.lower() in states)
            and (not types or _TYPES[type(group)] in types)
        ]
    )


async def delete_groups(call: Call, request: Message) -> None:
    """Remove groups without members; answered when they are gone for good."""
    groups = call.context.broker.groups
    outcomes: dict[str, Outcome] = {}

    def settle(name: str, error: StorageError | None) -> None:
        outcomes[name] = outcome_of(error)

    async for name in call.each(dict.fromkeys(request.groups_names)):
        outcome = attempt(partial(groups.delete, name, partial(settle, name)))
        if not outcome.ok:
            outcomes[name] = outcome

    # After the round that settles the last of them.
    call.context.broker.commit.after(lambda: call.context.pace.answer(call, _gone(call, outcomes)))


async def _gone(call: Call, outcomes: dict[str, Outcome]) -> Message:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=name, error_code=done.code)
            async for name, done in call.each(outcomes.items())
        ]
    )
