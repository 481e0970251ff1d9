"""The group APIs on the wire: every version, with the same answers from both brokers."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.clients.contract import eventually
from tests.clients.wire import Wire

SESSION_MS = 6_000
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS = 25, 22, 27
MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID = 79, 82


class Member:
    """A member that speaks the bare protocol, on a connection of its own."""

    def __init__(
        self, wire: Wire, group: str, version: int, instance_id: str | None = None
    ) -> None:
        self.wire = wire
        self.group = group
        self.version = version
        self.instance_id = instance_id
        self.id = ""
        self.generation = -1

    def request(self) -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[protocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
        )

    def join(self) -> Any:
        joined = self.wire.call(self.request(), self.version)
        if joined.error_code == MEMBER_ID_REQUIRED:
            self.id = joined.member_id
            joined = self.wire.call(self.request(), self.version)
        if joined.error_code == 0:
            self.id, self.generation = joined.member_id, joined.generation_id
        return joined

    def sync(self, version: int, share: bytes = b"share") -> Any:
        assignment = SyncGroupRequest.SyncGroupRequestAssignment
        return self.wire.call(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[assignment(member_id=self.id, assignment=share)],
            ),
            version,
        )

    def beat(self, version: int, **other: Any) -> int:
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance_id,
        }
        return int(self.wire.call(HeartbeatRequest(**fields | other), version).error_code)


@pytest.mark.compat
class TestWire:
    @pytest.mark.parametrize("version", range(10))
    def test_join_and_sync(self, wire: Wire, group: str, version: int) -> None:
        member = Member(wire, group, version)
        joined = member.join()
        assert (joined.error_code, joined.generation_id) == (0, 1)
        assert (joined.protocol_name, joined.leader) == ("range", member.id)
        assert [m.member_id for m in joined.members] == [member.id]
        again = wire.call(member.request(), version)
        assert (again.error_code, again.generation_id) == (0, 1)
        synced = member.sync(min(version, 5))
        assert (synced.error_code, synced.assignment) == (0, b"share")

    @pytest.mark.parametrize("version", range(5))
    def test_heartbeat(self, wire: Wire, group: str, version: int) -> None:
        member = Member(wire, group, 9)
        assert member.beat(version, member_id="x") == UNKNOWN_MEMBER_ID
        member.join()
        assert member.beat(version) == 0
        member.sync(5)
        assert member.beat(version) == 0
        assert member.beat(version, generation_id=7) == ILLEGAL_GENERATION
        assert member.beat(version, member_id="x") == UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize("version", range(5, 10))
    def test_static_member(self, wire: Wire, group: str, version: int) -> None:
        first = Member(wire, group, version, "one")
        first.join()
        first.sync(5, b"kept")
        second = Member(wire, group, version, "one")
        joined = second.join()
        assert (joined.error_code, joined.generation_id) == (0, 1)
        assert joined.leader == (second.id if version >= 9 else first.id)
        if version >= 9:
            assert joined.skip_assignment
        assert first.beat(4) == FENCED_INSTANCE_ID
        assert second.beat(4) == 0
        assert second.sync(5, b"ignored").assignment == b"kept"

    @pytest.mark.parametrize("version", range(6))
    def test_leave(self, wire: Wire, group: str, version: int) -> None:
        member = Member(wire, group, 9)
        member.join()
        for member_id, code in [("x", UNKNOWN_MEMBER_ID), (member.id, 0)]:
            identity = LeaveGroupRequest.MemberIdentity(member_id=member_id)
            request = LeaveGroupRequest(group_id=group, member_id=member_id, members=[identity])
            left = wire.call(request, version)
            found = left.error_code if version < 3 else left.members[0].error_code
            assert found == code
        assert member.beat(4) == UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize("version", range(7))
    def test_describe(self, wire: Wire, group: str, version: int) -> None:
        request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
        (described,) = wire.call(request, version).groups
        assert described.error_code == (69 if version >= 6 else 0)
        assert (described.group_state, described.protocol_type) == ("Dead", "")
        if version >= 6:
            assert described.error_message == f"Group {group} not found."
        member = Member(wire, group, 9, "one")
        member.join()
        (described,) = wire.call(request, version).groups
        assert described.group_state == "CompletingRebalance"
        assert [m.member_metadata for m in described.members] == [b""]
        member.sync(5)
        (described,) = wire.call(request, version).groups
        assert (described.error_code, described.group_state) == (0, "Stable")
        assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
        (found,) = described.members
        assert (found.member_id, found.client_host) == (member.id, "/127.0.0.1")
        assert (found.member_metadata[:2], found.member_assignment) == (b"\0\0", b"share")
        if version >= 3:
            assert described.authorized_operations == {3, 6, 8, 10, 11}
        # While the group rebalances everybody is shown with what it had.
        with Wire(wire.address) as other:
            # An instance needs no second round to be given an id.
            other.send(Member(other, group, 9, "two").request(), 9)
            members = eventually(
                lambda: self.rebalancing(wire, request, version), "the group rebalances"
            )
        found = members[member.id]
        assert (found.member_metadata, found.member_assignment) == (b"", b"share")

    def rebalancing(self, wire: Wire, request: Any, version: int) -> dict[str, Any] | None:
        (described,) = wire.call(request, version).groups
        if described.group_state != "PreparingRebalance":
            return None
        return {one.member_id: one for one in described.members}

    @pytest.mark.parametrize("version", range(6))
    def test_list(self, wire: Wire, group: str, version: int) -> None:
        Member(wire, group, 9).join()

        def listed(states: list[str], types: list[str]) -> Any:
            request = ListGroupsRequest(states_filter=states, types_filter=types)
            found = wire.call(request, version).groups
            return next((g for g in found if g.group_id == group), None)

        found = listed([], [])
        assert found.protocol_type == "consumer"
        if version >= 4:
            assert found.group_state == "CompletingRebalance"
            assert listed(["Stable"], []) is None
            assert listed(["completingrebalance"], []) is not None
        if version >= 5:
            assert found.group_type == "classic"
            assert listed([], ["consumer"]) is None
            assert listed([], ["Classic"]) is not None

    @pytest.mark.parametrize("version", range(2, 11))
    def test_commit_and_fetch(self, wire: Wire, group: str, topic: str, version: int) -> None:
        def code(**who: Any) -> int:
            request = self.commit_request(wire, group, topic, **who)
            (result,) = wire.call(request, version).topics
            (partition,) = result.partitions
            return int(partition.error_code)

        assert code() == 0
        member = Member(wire, group, 9)
        member.join()
        who = {"generation_id_or_member_epoch": member.generation, "member_id": member.id}
        assert code(**who) == REBALANCE_IN_PROGRESS
        member.sync(5)
        assert code(**who) == 0
        assert code(**who | {"generation_id_or_member_epoch": 9}) == ILLEGAL_GENERATION
        assert code(**who | {"member_id": "x"}) == UNKNOWN_MEMBER_ID
        assert code() == UNKNOWN_MEMBER_ID
        for fetch in range(1, 11):
            found = self.fetch(wire, group, topic, fetch)
            assert (found.committed_offset, found.metadata, found.error_code) == (7, "words", 0)
            if fetch >= 5:
                assert found.committed_leader_epoch == (0 if version >= 6 else -1)
        assert self.fetch(wire, f"{group}-not", topic, 7).committed_offset == -1

    def commit_request(self, wire: Wire, group: str, topic: str, **who: Any) -> Any:
        message = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = message.OffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=7,
            committed_leader_epoch=0,
            committed_metadata="words",
        )
        topic_id = wire.metadata(topic).topic_id
        topics = [message(name=topic, topic_id=topic_id, partitions=[partition])]
        return OffsetCommitRequest(group_id=group, topics=topics, **who)

    def fetch(self, wire: Wire, group: str, topic: str, version: int) -> Any:
        if version < 8:
            old = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
            answer = wire.call(OffsetFetchRequest(group_id=group, topics=[old]), version)
            return answer.topics[0].partitions[0]
        message = OffsetFetchRequest.OffsetFetchRequestGroup
        topic_id = wire.metadata(topic).topic_id
        wanted = message.OffsetFetchRequestTopics(
            name=topic, topic_id=topic_id, partition_indexes=[0]
        )
        request = OffsetFetchRequest(groups=[message(group_id=group, topics=[wanted])])
        return wire.call(request, version).groups[0].topics[0].partitions[0]

    @pytest.mark.parametrize("version", range(3))
    def test_delete(self, wire: Wire, group: str, topic: str, version: int) -> None:
        def code() -> int:
            (result,) = wire.call(DeleteGroupsRequest(groups_names=[group]), version).results
            return int(result.error_code)

        assert code() == 69
        member = Member(wire, group, 9)
        member.join()
        assert code() == 68
        identity = LeaveGroupRequest.MemberIdentity(member_id=member.id)
        wire.call(LeaveGroupRequest(group_id=group, members=[identity]), 5)
        wire.call(self.commit_request(wire, group, topic), 10)
        assert self.fetch(wire, group, topic, 10).committed_offset == 7
        assert code() == 0
        assert self.fetch(wire, group, topic, 10).committed_offset == -1

    def test_delete_offsets(self, wire: Wire, group: str, topic: str) -> None:
        message = OffsetDeleteRequest.OffsetDeleteRequestTopic
        partition = message.OffsetDeleteRequestPartition(partition_index=0)
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[message(name=name, partitions=[partition]) for name in (topic, "none")],
        )
        assert wire.call(request, 0).error_code == 69
        wire.call(self.commit_request(wire, group, topic), 10)
        answer = wire.call(request, 0)
        codes = {t.name: t.partitions[0].error_code for t in answer.topics}
        assert (answer.error_code, codes) == (0, {topic: 0, "none": 3})
        assert self.fetch(wire, group, topic, 10).committed_offset == -1
