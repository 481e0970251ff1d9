"""The consumer group protocol (KIP-848) without a client: what exactly each heartbeat is told."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import (
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from tests.clients.contract import MakeTopic, NewName, eventually
from tests.clients.wire import Wire

from penstock.wire.consumer_group_messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)

pytestmark = pytest.mark.compat

NONE, UNKNOWN_MEMBER_ID, INCONSISTENT_GROUP_PROTOCOL, UNSUPPORTED_VERSION = 0, 25, 23, 35
INVALID_REQUEST, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, FENCED_INSTANCE_ID = 42, 68, 69, 82
SUBSCRIBED = 86
FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, STALE = 110, 111, 112, 113
INVALID_REGULAR_EXPRESSION = 128
VERSIONS = (0, 1)


@dataclass
class Member:
    """Sends heartbeats as a client would, and remembers what it was told."""

    wire: Wire
    group: str
    topics: list[str] | None = None
    version: int = 1
    instance_id: str | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    owned: dict[uuid.UUID, list[int]] = field(default_factory=dict)

    def beat(self, **fields: Any) -> Any:
        """One heartbeat; the answer as it is."""
        settings = {"member_id": self.id, "member_epoch": self.epoch}
        settings |= {"instance_id": self.instance_id}
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, **settings | fields)
        return self.wire.call(request, self.version)

    def told(self, **fields: Any) -> Any:
        """One heartbeat that must be taken."""
        answer = self.beat(**fields)
        assert answer.error_code == NONE, answer
        self.id, self.epoch = answer.member_id, answer.member_epoch
        if answer.assignment is not None:
            self.owned = {t.topic_id: t.partitions for t in answer.assignment.topic_partitions}
        return answer

    def join(self, **fields: Any) -> Any:
        self.epoch = 0
        first = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
        return self.told(**first | {"subscribed_topic_names": self.topics} | fields)

    def acknowledge(self) -> Any:
        """Say what it has."""
        message = ConsumerGroupHeartbeatRequest.TopicPartitions
        owned = [message(topic_id=id_, partitions=list(n)) for id_, n in self.owned.items()]
        return self.told(topic_partitions=owned)

    def shrinks_to(self, count: int) -> None:
        """Heartbeats until it is told to let go of partitions; Kafka makes new targets on the side."""
        eventually(
            lambda: (self.told() and None) or len(self.partitions) == count or None,
            f"a share of {count}",
        )

    @property
    def partitions(self) -> list[int]:
        return sorted(number for numbers in self.owned.values() for number in numbers)


def settle(*members: Member, partitions: int) -> None:
    """Heartbeats until everything is shared out."""

    def settled() -> bool | None:
        for member in members:
            member.acknowledge()
        return sorted(n for m in members for n in m.partitions) == list(range(partitions)) or None

    eventually(settled, "a settled group")


def describe(wire: Wire, group: str, version: int = 1) -> Any:
    (found,) = wire.call(ConsumerGroupDescribeRequest(group_ids=[group]), version).groups
    return found


class TestMembership:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_one_member(self, wire: Wire, group: str, make_topic: MakeTopic, version: int) -> None:
        topic = make_topic(partitions=3)
        member = Member(wire, group, [topic], version)
        joined = member.join()
        assert joined.member_id
        assert joined.member_epoch > 0
        assert joined.heartbeat_interval_ms in (5000, 1000)  # ours: few are heard of more often
        assert member.owned == {wire.metadata(topic).topic_id: [0, 1, 2]}
        assert member.told().assignment is None
        left = member.beat(member_epoch=-1)
        assert (left.error_code, left.member_epoch, left.member_id) == (NONE, -1, member.id)
        assert left.heartbeat_interval_ms == 0
        assert member.beat().error_code == UNKNOWN_MEMBER_ID
        assert describe(wire, group, version).group_state == "Empty"

    def test_ids_are_made_by_the_server_in_version_0_only(
        self, wire: Wire, group: str, topic: str
    ) -> None:
        old = Member(wire, group, [topic], version=0, id="")
        old.join()
        assert old.id
        new = Member(wire, group, [topic], version=1, id="")
        first = {"rebalance_timeout_ms": 1000, "topic_partitions": []}
        assert new.beat(subscribed_topic_names=[topic], **first).error_code == INVALID_REQUEST

    def test_partitions_change_hands_when_the_old_owner_says_so(
        self, wire: Wire, group: str, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(partitions=4)
        first, second = (Member(wire, group, [topic]) for _ in range(2))
        first.join()
        settle(first, partitions=4)
        before = first.epoch
        second.join()
        assert second.partitions == []
        first.shrinks_to(2)
        assert first.epoch == before
        # It has been told, and has not said that it did.
        second.told()
        assert second.partitions == []
        assert describe(wire, group).group_state == "Reconciling"
        assert first.told().member_epoch == before
        assert first.acknowledge().member_epoch > before
        settle(first, second, partitions=4)
        assert second.epoch == first.epoch
        assert describe(wire, group).group_state == "Stable"

    def test_who_leaves_makes_room(self, wire: Wire, group: str, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=4)
        first, second = (Member(wire, group, [topic]) for _ in range(2))
        first.join()
        second.join()
        settle(first, second, partitions=4)
        first.beat(member_epoch=-1)
        settle(second, partitions=4)

    def test_epochs_that_are_wrong(self, wire: Wire, group: str, topic: str) -> None:
        member = Member(wire, group, [topic])
        member.join()
        assert member.beat(member_epoch=member.epoch + 1).error_code == FENCED_MEMBER_EPOCH
        other = Member(wire, group, [topic])
        other.join()
        settle(member, other, partitions=1)
        assert member.beat(member_epoch=1_000).error_code == FENCED_MEMBER_EPOCH
        assert member.beat(member_id="nobody").error_code == UNKNOWN_MEMBER_ID
        assert member.beat(member_epoch=-3).error_code == INVALID_REQUEST

    def test_a_lost_answer_does_no_harm(
        self, wire: Wire, group: str, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(partitions=2)
        member = Member(wire, group, [topic])
        member.join()
        settle(member, partitions=2)
        epoch, owned = member.epoch, member.owned
        assert member.join().member_epoch == epoch
        assert member.owned == owned
        Member(wire, group, [topic]).join()
        member.shrinks_to(1)
        before = member.epoch
        member.acknowledge()
        assert member.epoch > before
        # The same once more, with the epoch before.
        member.epoch = before
        member.acknowledge()
        assert member.epoch > before

    @pytest.mark.parametrize(
        "fields",
        [
            {"rebalance_timeout_ms": -1},
            {"topic_partitions": None},
            {"subscribed_topic_names": None},
            {"instance_id": ""},
            {"rack_id": ""},
            {"group_id": ""},
            {"member_epoch": -2},
        ],
    )
    def test_malformed(self, wire: Wire, group: str, topic: str, fields: dict[str, Any]) -> None:
        request = {
            "group_id": group,
            "member_id": "me",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1000,
            "topic_partitions": [],
            "subscribed_topic_names": [topic],
        }
        answer = wire.call(ConsumerGroupHeartbeatRequest(**request | fields), 1)
        assert answer.error_code == INVALID_REQUEST
        assert answer.error_message

    def test_assignors(self, wire: Wire, group: str, make_topic: MakeTopic) -> None:
        topics = [make_topic(partitions=3), make_topic(partitions=3)]
        first = Member(wire, group, topics, id="aaa")
        bad: dict[str, Any] = {"server_assignor": "none", "subscribed_topic_names": topics}
        bad |= {"rebalance_timeout_ms": 1000, "topic_partitions": []}
        assert first.beat(**bad).error_code == UNSUPPORTED_ASSIGNOR
        first.join(server_assignor="range")
        eventually(
            lambda: (first.acknowledge() and None) or len(first.partitions) == 6 or None,
            "everything",
        )
        second = Member(wire, group, topics, id="zzz")  # the last by name gets less
        second.join(server_assignor="range")
        first.shrinks_to(4)
        first.acknowledge()
        eventually(lambda: (second.acknowledge() and second.owned) or None, "the other's share")
        assert describe(wire, group).assignor_name == "range"
        shares = [list(member.owned.values()) for member in (first, second)]
        assert shares == [[[0, 1], [0, 1]], [[2], [2]]]


class TestStatic:
    def test_comes_back_to_its_share(self, wire: Wire, group: str, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=4)
        stay = Member(wire, group, [topic], instance_id="stay")
        go = Member(wire, group, [topic], instance_id="go")
        stay.join()
        go.join()
        settle(stay, go, partitions=4)
        epoch, share = stay.epoch, go.owned
        left = go.beat(member_epoch=-2)
        assert (left.error_code, left.member_epoch) == (NONE, -2)
        again = Member(wire, group, [topic], instance_id="go")
        again.join()
        assert again.owned == share
        assert (stay.told().assignment, stay.epoch) == (None, epoch)
        assert go.beat().error_code == FENCED_INSTANCE_ID
        assert go.beat(instance_id=None).error_code == UNKNOWN_MEMBER_ID

    def test_an_instance_in_use(self, wire: Wire, group: str, topic: str) -> None:
        first = Member(wire, group, [topic], instance_id="same")
        first.join()
        second = Member(wire, group, [topic], instance_id="same")
        fields = {"rebalance_timeout_ms": 1000, "topic_partitions": []}
        refused = second.beat(subscribed_topic_names=[topic], **fields)
        assert refused.error_code == UNRELEASED_INSTANCE_ID
        first.beat(member_epoch=-1)
        second.join()
        settle(second, partitions=1)


class TestTopics:
    def test_a_pattern(self, wire: Wire, group: str, new_name: NewName) -> None:
        prefix = new_name()
        wire.create_topic(f"{prefix}.one", 1)
        member = Member(wire, group)
        bad = {"rebalance_timeout_ms": 1000, "topic_partitions": []}
        refused = member.beat(subscribed_topic_regex="[", **bad)
        assert refused.error_code == INVALID_REGULAR_EXPRESSION
        member.join(subscribed_topic_regex=f"{prefix}[.](one|two)")

        def reads(count: int) -> bool | None:
            member.acknowledge()
            return len(member.owned) == count or None

        eventually(lambda: reads(1), "the topic that matches")
        wire.create_topic(f"{prefix}.two", 2)
        wire.create_topic(f"{prefix}.two-more", 2)
        eventually(lambda: reads(2), "the new topic that matches")
        (found,) = describe(wire, group).members
        assert found.subscribed_topic_regex == f"{prefix}[.](one|two)"
        assert list(found.subscribed_topic_names) == []

    def test_a_topic_that_comes_later(self, wire: Wire, group: str, new_name: NewName) -> None:
        name = new_name()
        member = Member(wire, group, [name])
        member.join()
        assert member.partitions == []
        wire.create_topic(name, 2)
        settle(member, partitions=2)

    def test_another_subscription(self, wire: Wire, group: str, make_topic: MakeTopic) -> None:
        one, two = make_topic(), make_topic()
        member = Member(wire, group, [one])
        member.join()
        member.told(subscribed_topic_names=[two])

        def moved() -> bool | None:
            member.acknowledge()
            return list(member.owned) == [wire.metadata(two).topic_id] or None

        eventually(moved, "the other topic")


class TestOffsets:
    def commit(self, member: Member, topic: str, version: int = 10, **fields: Any) -> int:
        message = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = message.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata=""
        )
        topic_id = member.wire.metadata(topic).topic_id
        topics = [message(name=topic, topic_id=topic_id, partitions=[partition])]
        who = {"member_id": member.id, "generation_id_or_member_epoch": member.epoch} | fields
        request = OffsetCommitRequest(group_id=member.group, topics=topics, **who)
        answer = member.wire.call(request, version)
        return int(answer.topics[0].partitions[0].error_code)

    def fetch(self, member: Member, topic: str, version: int = 10, **fields: Any) -> int:
        message = OffsetFetchRequest.OffsetFetchRequestGroup
        topic_id = member.wire.metadata(topic).topic_id
        wanted = message.OffsetFetchRequestTopics(
            name=topic, topic_id=topic_id, partition_indexes=[0]
        )
        who = {"member_id": member.id, "member_epoch": member.epoch} | fields
        request = OffsetFetchRequest(
            groups=[message(group_id=member.group, topics=[wanted], **who)]
        )
        (found,) = member.wire.call(request, version).groups
        if found.error_code:
            return -int(found.error_code)
        return int(found.topics[0].partitions[0].committed_offset)

    @pytest.mark.parametrize("version", [9, 10])
    def test_epochs(self, wire: Wire, group: str, topic: str, version: int) -> None:
        member = Member(wire, group, [topic])
        member.join()
        assert self.commit(member, topic, version) == NONE
        stale = {"generation_id_or_member_epoch": member.epoch + 1}
        assert self.commit(member, topic, version, **stale) == STALE
        assert self.commit(member, topic, version, member_id="nobody") == UNKNOWN_MEMBER_ID
        admin = {"member_id": "", "generation_id_or_member_epoch": -1}
        assert self.commit(member, topic, version, **admin) == UNKNOWN_MEMBER_ID
        assert self.commit(member, topic, 8) == UNSUPPORTED_VERSION
        assert self.fetch(member, topic, version) == 7
        assert self.fetch(member, topic, version, member_epoch=member.epoch + 1) == -STALE
        assert self.fetch(member, topic, version, member_id="nobody") == -UNKNOWN_MEMBER_ID
        assert self.fetch(member, topic, version, member_id=None, member_epoch=-1) == 7
        member.beat(member_epoch=-1)
        assert self.commit(member, topic, version, **admin) == NONE

    def test_delete(self, wire: Wire, group: str, topic: str) -> None:
        member = Member(wire, group, [topic])
        member.join()
        assert self.commit(member, topic) == NONE
        message = OffsetDeleteRequest.OffsetDeleteRequestTopic
        partition = message.OffsetDeleteRequestPartition(partition_index=0)
        request = OffsetDeleteRequest(
            group_id=group, topics=[message(name=topic, partitions=[partition])]
        )
        assert wire.call(request, 0).topics[0].partitions[0].error_code == SUBSCRIBED
        delete = DeleteGroupsRequest(groups_names=[group])
        assert wire.call(delete).results[0].error_code == NON_EMPTY_GROUP
        member.beat(member_epoch=-1)
        assert wire.call(request, 0).topics[0].partitions[0].error_code == NONE
        assert wire.call(delete).results[0].error_code == NONE
        assert describe(wire, group).error_code == GROUP_ID_NOT_FOUND


class TestAdministration:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_describe(self, wire: Wire, group: str, make_topic: MakeTopic, version: int) -> None:
        topic = make_topic(partitions=2)
        member = Member(wire, group, [topic], instance_id="it")
        member.join(rack_id="here")
        settle(member, partitions=2)  # a Kafka may not know of its partitions yet
        found = describe(wire, group, version)
        assert (found.error_code, found.group_state, found.assignor_name) == (
            0,
            "Stable",
            "uniform",
        )
        assert found.group_epoch == found.assignment_epoch == member.epoch
        (one,) = found.members
        assert (one.member_id, one.instance_id, one.rack_id) == (member.id, "it", "here")
        assert (one.member_epoch, one.client_id, one.client_host) == (
            member.epoch,
            "wire",
            "/127.0.0.1",
        )
        assert list(one.subscribed_topic_names) == [topic]
        assert not one.subscribed_topic_regex
        if version >= 1:
            assert one.member_type == 1
        for share in (one.assignment, one.target_assignment):
            (part,) = share.topic_partitions
            assert (part.topic_name, sorted(part.partitions)) == (topic, [0, 1])
            assert part.topic_id == wire.metadata(topic).topic_id

    def test_list(self, wire: Wire, group: str, topic: str) -> None:
        Member(wire, group, [topic]).join()

        def listed(**filters: Any) -> list[Any]:
            request = ListGroupsRequest(**{"states_filter": [], "types_filter": []} | filters)
            return [g for g in wire.call(request, 5).groups if g.group_id == group]

        (found,) = listed()
        shown = (found.protocol_type, found.group_state, found.group_type.lower())
        assert shown == ("consumer", "Stable", "consumer")
        assert listed(types_filter=["Consumer"], states_filter=["stable"])
        assert not listed(types_filter=["classic"])
        assert not listed(states_filter=["Empty"])

    def test_the_other_description(self, wire: Wire, group: str, topic: str) -> None:
        member = Member(wire, group, [topic])
        member.join()
        (found,) = wire.call(DescribeGroupsRequest(groups=[group]), 6).groups
        assert (found.error_code, found.group_state) == (GROUP_ID_NOT_FOUND, "Dead")
        assert found.error_message == f"Group {group} is not a classic group."
        (found,) = wire.call(DescribeGroupsRequest(groups=[group]), 5).groups
        assert (found.error_code, found.group_state) == (NONE, "Dead")

    def test_a_group_that_is_not_there(self, wire: Wire, group: str) -> None:
        found = describe(wire, group)
        assert found.error_code == GROUP_ID_NOT_FOUND
        assert found.error_message == f"Group {group} not found."


class TestClassic:
    """A group changes its protocol when it is empty."""

    def join_request(self, group: str, member_id: str = "", **fields: Any) -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="own", metadata=b"\xff")
        settings = {"protocol_type": "connect", "protocols": [protocol]}
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=None,
            **settings | fields,
        )

    def test_there_and_back(self, wire: Wire, group: str, topic: str) -> None:
        request = self.join_request(group)
        assert wire.call(request, 3).error_code == NONE
        member = Member(wire, group, [topic])
        first = {"rebalance_timeout_ms": 1000, "topic_partitions": []}
        refused = member.beat(subscribed_topic_names=[topic], **first)
        assert refused.error_code == GROUP_ID_NOT_FOUND
        assert describe(wire, group).error_code == GROUP_ID_NOT_FOUND

    def test_not_while_it_has_members(self, wire: Wire, group: str, topic: str) -> None:
        member = Member(wire, group, [topic])
        member.join()
        refused = wire.call(self.join_request(group), 3)
        assert refused.error_code == INCONSISTENT_GROUP_PROTOCOL
        member.beat(member_epoch=-1)
        assert wire.call(self.join_request(group), 3).error_code == NONE
