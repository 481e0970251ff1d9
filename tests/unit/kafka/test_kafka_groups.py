"""The group APIs in every version, through the table."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.unit.kafka.exchange import CLIENT, Exchange, Slot, answer, versions

from penstock.kafka.errors import Code

JOIN, BEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE = 11, 12, 13, 14, 15, 16, 42
SUBSCRIPTION = struct.pack(">hih6si", 0, 1, 6, b"orders", -1)
SKIPPABLE = 9


def join_request(
    member_id: str = "", *, instance_id: str | None = None, group: str = "crew", **fields: Any
) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    settings: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [protocol(name="range", metadata=SUBSCRIPTION)],
    }
    return JoinGroupRequest(
        group_id=group, member_id=member_id, group_instance_id=instance_id, **settings | fields
    )


def sync_request(member_id: str, generation: int = 1, **fields: Any) -> Any:
    assignment = SyncGroupRequest.SyncGroupRequestAssignment
    settings: dict[str, Any] = {
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [assignment(member_id=member_id, assignment=b"share")],
    }
    return SyncGroupRequest(
        group_id="crew", generation_id=generation, member_id=member_id, **settings | fields
    )


def beat_request(member_id: str, generation: int = 1, instance_id: str | None = None) -> Any:
    return HeartbeatRequest(
        group_id="crew",
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
    )


def begin_join(exchange: Exchange, version: int = 9, **fields: Any) -> tuple[Any, Slot]:
    """Send a join, and if need be a second one with the id that comes back."""
    request = join_request(**fields)
    slot = exchange.begin(request, version)
    if version >= 4 and not fields.keys() & {"member_id", "instance_id"}:
        refused = answer(request, version, slot)
        assert refused.error_code == Code.MEMBER_ID_REQUIRED
        request = join_request(**fields | {"member_id": refused.member_id})
        slot = exchange.begin(request, version)
    return request, slot


def join(exchange: Exchange, version: int = 9, **fields: Any) -> Any:
    """The answer to a join of the only member."""
    request, slot = begin_join(exchange, version, **fields)
    exchange.timers.advance(0.0)
    return answer(request, version, slot)


def member(exchange: Exchange, **fields: Any) -> str:
    """The id of the only member of a stable group."""
    joined = join(exchange, **fields)
    assert (
        exchange.send_highest(sync_request(joined.member_id, joined.generation_id)).error_code == 0
    )
    member_id: str = joined.member_id
    return member_id


class TestJoin:
    @pytest.mark.parametrize("version", versions(JOIN))
    def test_one_member(self, exchange: Exchange, version: int) -> None:
        joined = join(exchange, version)
        assert (joined.error_code, joined.generation_id) == (Code.NONE, 1)
        assert joined.member_id.startswith(f"{CLIENT}-")
        assert joined.leader == joined.member_id
        assert joined.protocol_name == "range"
        (found,) = joined.members
        assert (found.member_id, found.metadata) == (joined.member_id, SUBSCRIPTION)
        if version >= 7:
            assert joined.protocol_type == "consumer"

    @pytest.mark.parametrize("version", versions(JOIN))
    def test_nothing_else_waits_for_a_join(self, exchange: Exchange, version: int) -> None:
        member(exchange)
        _, slot = begin_join(exchange, version)
        assert slot.data is None
        assert exchange.send_highest(ListGroupsRequest(states_filter=[], types_filter=[])).groups

    @pytest.mark.parametrize("version", [v for v in versions(JOIN) if v >= 4])
    def test_an_id_comes_first(self, exchange: Exchange, version: int) -> None:
        refused = exchange.send(join_request(), version)
        assert refused.error_code == Code.MEMBER_ID_REQUIRED
        assert refused.member_id.startswith(f"{CLIENT}-")
        assert refused.generation_id == -1
        assert refused.protocol_name == (None if version >= 7 else "")

    @pytest.mark.parametrize("version", [v for v in versions(JOIN) if v >= 5])
    def test_static_members(self, exchange: Exchange, version: int) -> None:
        first = join(exchange, version, instance_id="one")
        assert first.members[0].group_instance_id == "one"
        exchange.send_highest(sync_request(first.member_id, group_instance_id="one"))
        again = join(exchange, version, instance_id="one")
        assert (again.error_code, again.generation_id) == (Code.NONE, 1)
        assert again.member_id != first.member_id
        if version >= SKIPPABLE:
            assert again.skip_assignment
            assert again.leader == again.member_id
        else:
            assert again.leader == first.member_id
        fenced = exchange.send_highest(beat_request(first.member_id, instance_id="one"))
        assert fenced.error_code == Code.FENCED_INSTANCE_ID

    @pytest.mark.parametrize("version", versions(JOIN))
    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"group": ""}, Code.INVALID_GROUP_ID),
            ({"session_timeout_ms": 5999}, Code.INVALID_SESSION_TIMEOUT),
            ({"session_timeout_ms": 1_800_001}, Code.INVALID_SESSION_TIMEOUT),
            ({"protocols": []}, Code.INCONSISTENT_GROUP_PROTOCOL),
            ({"member_id": "stranger"}, Code.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_refused(
        self, exchange: Exchange, version: int, fields: dict[str, Any], code: Code
    ) -> None:
        refused = exchange.send(join_request(**fields), version)
        assert (refused.error_code, refused.generation_id) == (code, -1)
        assert refused.member_id == fields.get("member_id", "")

    def test_version_0_has_one_timeout(self, exchange: Exchange) -> None:
        joined = join(exchange, 0)
        group = exchange.broker.groups.classic_group("crew")
        assert group.members[joined.member_id].rebalance_timeout == 10.0

    def test_equal_protocol_names_count_once(self, exchange: Exchange) -> None:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        twice = [protocol(name="range", metadata=b"1"), protocol(name="range", metadata=b"2")]
        assert join(exchange, protocols=twice).members[0].metadata == b"1"

    def test_stopping(self, exchange: Exchange) -> None:
        member(exchange)
        request, slot = begin_join(exchange)
        exchange.broker.groups.stop()
        assert answer(request, 9, slot).error_code == Code.COORDINATOR_NOT_AVAILABLE
        refused = exchange.send_highest(join_request())
        assert refused.error_code == Code.COORDINATOR_NOT_AVAILABLE


class TestSync:
    @pytest.mark.parametrize("version", versions(SYNC))
    def test_leader_and_follower(self, exchange: Exchange, version: int) -> None:
        joins = [begin_join(exchange, 5) for _ in range(2)]
        exchange.timers.advance(0.0)
        leader, follower = (answer(request, 5, slot).member_id for request, slot in joins)
        waiting = sync_request(follower, assignments=[])
        slot = exchange.begin(waiting, version)
        assert slot.data is None
        assignment = SyncGroupRequest.SyncGroupRequestAssignment
        shares = [assignment(member_id=m, assignment=m.encode()) for m in (leader, follower)]
        led = exchange.send(sync_request(leader, assignments=shares), version)
        followed = answer(waiting, version, slot)
        assert (led.assignment, followed.assignment) == (leader.encode(), follower.encode())
        for response in (led, followed):
            assert response.error_code == Code.NONE
            if version >= 5:
                assert (response.protocol_type, response.protocol_name) == ("consumer", "range")

    @pytest.mark.parametrize("version", versions(SYNC))
    def test_refused(self, exchange: Exchange, version: int) -> None:
        assert exchange.send(sync_request("x"), version).error_code == Code.UNKNOWN_MEMBER_ID
        known = member(exchange)
        assert exchange.send(sync_request("x"), version).error_code == Code.UNKNOWN_MEMBER_ID
        old = exchange.send(sync_request(known, 7), version)
        assert (old.error_code, old.assignment) == (Code.ILLEGAL_GENERATION, b"")
        begin_join(exchange)
        assert exchange.send(sync_request(known), version).error_code == Code.REBALANCE_IN_PROGRESS

    @pytest.mark.parametrize(
        "fields", [{"protocol_type": None}, {"protocol_name": None}, {"protocol_name": "sticky"}]
    )
    def test_the_protocol_must_be_named(self, exchange: Exchange, fields: dict[str, Any]) -> None:
        request = sync_request(member(exchange), **fields)
        assert exchange.send(request, 5).error_code == Code.INCONSISTENT_GROUP_PROTOCOL


class TestHeartbeat:
    @pytest.mark.parametrize("version", versions(BEAT))
    def test_answers(self, exchange: Exchange, version: int) -> None:
        def code(member_id: str, generation: int = 1) -> int:
            return int(exchange.send(beat_request(member_id, generation), version).error_code)

        assert code("x") == Code.UNKNOWN_MEMBER_ID
        known = member(exchange)
        assert code(known) == Code.NONE
        assert code("x") == Code.UNKNOWN_MEMBER_ID
        assert code(known, 2) == Code.ILLEGAL_GENERATION
        begin_join(exchange)
        assert code(known) == Code.REBALANCE_IN_PROGRESS

    def test_a_session_ends(self, exchange: Exchange) -> None:
        known = member(exchange)
        exchange.timers.advance(10.0)
        assert exchange.send_highest(beat_request(known)).error_code == Code.UNKNOWN_MEMBER_ID

    def test_after_a_restart_members_are_unknown(self, exchange: Exchange) -> None:
        known = member(exchange)
        exchange.open()
        assert exchange.send_highest(beat_request(known)).error_code == Code.UNKNOWN_MEMBER_ID


class TestLeave:
    @pytest.mark.parametrize("version", versions(LEAVE))
    def test_one(self, exchange: Exchange, version: int) -> None:
        for member_id, code in [
            ("stranger", Code.UNKNOWN_MEMBER_ID),
            (member(exchange), Code.NONE),
        ]:
            identity = LeaveGroupRequest.MemberIdentity(member_id=member_id)
            request = LeaveGroupRequest(group_id="crew", member_id=member_id, members=[identity])
            response = exchange.send(request, version)
            if version < 3:
                assert response.error_code == code
            else:
                (left,) = response.members
                assert (response.error_code, left.error_code) == (Code.NONE, code)
        assert exchange.broker.groups.get("crew").members == {}

    @pytest.mark.parametrize("version", [v for v in versions(LEAVE) if v >= 3])
    def test_several(self, exchange: Exchange, version: int) -> None:
        known = member(exchange, instance_id="one")
        identity = LeaveGroupRequest.MemberIdentity
        request = LeaveGroupRequest(
            group_id="crew",
            members=[
                identity(member_id="x"),
                identity(member_id="", group_instance_id="two"),
                identity(member_id=f"{known}!", group_instance_id="one"),
                identity(member_id="", group_instance_id="one"),
            ],
        )
        codes = [left.error_code for left in exchange.send(request, version).members]
        unknown = Code.UNKNOWN_MEMBER_ID
        assert codes == [unknown, unknown, Code.FENCED_INSTANCE_ID, Code.NONE]

    @pytest.mark.parametrize("version", versions(LEAVE))
    def test_no_such_group(self, exchange: Exchange, version: int) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id="x")
        request = LeaveGroupRequest(group_id="none", member_id="x", members=[identity])
        response = exchange.send(request, version)
        code = response.error_code if version < 3 else response.members[0].error_code
        assert code == Code.UNKNOWN_MEMBER_ID
        nameless = LeaveGroupRequest(group_id="", member_id="x", members=[identity])
        assert exchange.send(nameless, version).error_code == Code.INVALID_GROUP_ID


class TestDescribe:
    @pytest.mark.parametrize("version", versions(DESCRIBE))
    def test_stable(self, exchange: Exchange, version: int) -> None:
        known = member(exchange, instance_id="one")
        request = DescribeGroupsRequest(groups=["crew"], include_authorized_operations=True)
        (group,) = exchange.send(request, version).groups
        assert (group.error_code, group.group_id, group.group_state) == (0, "crew", "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (found,) = group.members
        assert (found.member_id, found.client_id, found.client_host) == (
            known,
            CLIENT,
            "/127.0.0.1",
        )
        assert (found.member_metadata, found.member_assignment) == (SUBSCRIPTION, b"share")
        if version >= 3:
            assert group.authorized_operations == {3, 6, 8, 10, 11}
        if version >= 4:
            assert found.group_instance_id == "one"

    @pytest.mark.parametrize("version", versions(DESCRIBE))
    def test_while_rebalancing(self, exchange: Exchange, version: int) -> None:
        member(exchange)
        begin_join(exchange)
        (group,) = exchange.send(DescribeGroupsRequest(groups=["crew"]), version).groups
        assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
        members = [(m.member_metadata, m.member_assignment) for m in group.members]
        assert members == [(b"", b"share"), (b"", b"")]

    @pytest.mark.parametrize("version", versions(DESCRIBE))
    def test_unknown(self, exchange: Exchange, version: int) -> None:
        (group,) = exchange.send(DescribeGroupsRequest(groups=["none"]), version).groups
        assert (group.group_state, group.members) == ("Dead", [])
        assert group.error_code == (Code.GROUP_ID_NOT_FOUND if version >= 6 else Code.NONE)
        if version >= 6:
            assert group.error_message == "Group none not found."


class TestList:
    @pytest.mark.parametrize("version", versions(LIST))
    def test_all(self, exchange: Exchange, version: int) -> None:
        member(exchange)
        join(exchange, group="other", protocol_type="connect")
        response = exchange.send(ListGroupsRequest(states_filter=[], types_filter=[]), version)
        assert response.error_code == Code.NONE
        found = {group.group_id: group for group in response.groups}
        assert {name: g.protocol_type for name, g in found.items()} == {
            "crew": "consumer",
            "other": "connect",
        }
        if version >= 4:
            assert found["crew"].group_state == "Stable"
            assert found["other"].group_state == "CompletingRebalance"
        if version >= 5:
            assert found["crew"].group_type == "classic"

    @pytest.mark.parametrize(
        ("states", "types", "found"),
        [
            (["Stable"], [], ["crew"]),
            (["stable", "Empty"], ["Classic"], ["crew"]),
            (["Empty"], [], []),
            ([], ["consumer"], []),
            ([], ["classic"], ["crew", "other"]),
        ],
    )
    def test_filters(
        self, exchange: Exchange, states: list[str], types: list[str], found: list[str]
    ) -> None:
        member(exchange)
        join(exchange, group="other")
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        assert [group.group_id for group in exchange.send_highest(request).groups] == found


class TestDelete:
    @pytest.mark.parametrize("version", versions(DELETE))
    def test_delete(self, exchange: Exchange, version: int) -> None:
        member(exchange)
        exchange.send(join_request(group="spare"), 9)
        request = DeleteGroupsRequest(groups_names=["crew", "spare", "none", "none"])
        slot = exchange.begin(request, version)
        assert slot.data is None, "answered before it was durable"
        exchange.drain()
        results = answer(request, version, slot).results
        assert {result.group_id: result.error_code for result in results} == {
            "crew": Code.NON_EMPTY_GROUP,
            "spare": Code.NONE,
            "none": Code.GROUP_ID_NOT_FOUND,
        }
        assert [group.name for group in exchange.broker.groups.all()] == ["crew"]
