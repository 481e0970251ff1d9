"""The consumer group APIs (KIP-848) in every version, through the table."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.unit.kafka.exchange import CLIENT, Exchange, answer, versions

from penstock.kafka.errors import Code
from penstock.limits import CONSUMER_SESSION_SECONDS
from penstock.wire.consumer_group_messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)

BEAT, DESCRIBE = 68, 69


def beat(exchange: Exchange, version: int = 1, **fields: Any) -> Any:
    settings: dict[str, Any] = {
        "group_id": "crew",
        "member_id": "me",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }
    return exchange.send(ConsumerGroupHeartbeatRequest(**settings | fields), version)


def describe(exchange: Exchange, version: int = 1, **fields: Any) -> Any:
    request = ConsumerGroupDescribeRequest(**{"group_ids": ["crew"]} | fields)
    (found,) = exchange.send(request, version).groups
    return found


def shares(assignment: Any) -> dict[Any, list[int]]:
    return {topic.topic_id: topic.partitions for topic in assignment.topic_partitions}


class TestHeartbeat:
    @pytest.mark.parametrize("version", versions(BEAT))
    def test_join_and_leave(self, exchange: Exchange, version: int) -> None:
        topic = exchange.topic(partitions=2)
        joined = beat(exchange, version)
        assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "me", 1)
        assert joined.heartbeat_interval_ms == 1000
        assert shares(joined.assignment) == {topic.entry.id: [0, 1]}
        quiet = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None}
        again = beat(exchange, version, member_epoch=1, topic_partitions=None, **quiet)
        assert (again.error_code, again.assignment) == (0, None)
        left = beat(exchange, version, member_epoch=-1)
        assert (left.error_code, left.member_epoch) == (0, -1)
        assert beat(exchange, version, member_epoch=1).error_code == Code.UNKNOWN_MEMBER_ID

    def test_an_id_in_version_0(self, exchange: Exchange) -> None:
        assert beat(exchange, 0, member_id="").member_id
        refused = beat(exchange, 1, member_id="")
        assert (refused.error_code, refused.error_message) == (
            Code.INVALID_REQUEST,
            "MemberId can't be empty.",
        )

    def test_who_waits_for_others_asks_more_often(self, exchange: Exchange) -> None:
        exchange.topic(partitions=2)
        beat(exchange)
        assert beat(exchange, member_id="other").heartbeat_interval_ms == 500
        assert beat(exchange, member_epoch=-1).heartbeat_interval_ms == 0
        waited = beat(exchange, member_id="other", member_epoch=2)
        assert waited.heartbeat_interval_ms == 1000

    def test_many_are_heard_of_more_seldom(self, exchange: Exchange) -> None:
        exchange.topic(partitions=1)
        for number in range(299):
            beat(exchange, member_id=f"m{number}")
        exchange.clock.advance(2)
        assert beat(exchange, member_id="one more").heartbeat_interval_ms == 3000

    def test_a_topic_comes_grows_and_goes(self, exchange: Exchange) -> None:
        assert shares(beat(exchange).assignment) == {}
        topic = exchange.topic(partitions=1)
        topic_id = topic.entry.id
        assert shares(beat(exchange, member_epoch=1).assignment) == {topic_id: [0]}
        exchange.broker.add_partitions(topic, 3)
        assert shares(beat(exchange, member_epoch=2).assignment) == {topic_id: [0, 1, 2]}
        exchange.broker.delete_topic(topic)
        assert shares(beat(exchange, member_epoch=3).assignment) == {}

    def test_topics_are_known_after_a_restart(self, exchange: Exchange) -> None:
        exchange.topic(partitions=2)
        beat(exchange)
        exchange.open()
        assert beat(exchange, member_epoch=1).error_code == Code.FENCED_MEMBER_EPOCH
        (share,) = shares(beat(exchange).assignment).values()
        assert share == [0, 1]

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"group_id": ""}, Code.INVALID_REQUEST),
            ({"server_assignor": "best"}, Code.UNSUPPORTED_ASSIGNOR),
            ({"subscribed_topic_regex": "("}, Code.INVALID_REGULAR_EXPRESSION),
            ({"member_epoch": 5}, Code.FENCED_MEMBER_EPOCH),
            ({"member_id": "other", "member_epoch": 1}, Code.UNKNOWN_MEMBER_ID),
            ({"member_id": "other", "instance_id": "it"}, Code.UNRELEASED_INSTANCE_ID),
            (
                {"member_id": "other", "instance_id": "it", "member_epoch": 1},
                Code.FENCED_INSTANCE_ID,
            ),
        ],
    )
    def test_refused(self, exchange: Exchange, fields: dict[str, Any], code: Code) -> None:
        exchange.topic()
        beat(exchange, instance_id="it")
        refused = beat(exchange, **fields)
        assert refused.error_code == code
        assert refused.error_message

    def test_while_the_broker_stops(self, exchange: Exchange) -> None:
        beat(exchange)
        exchange.broker.groups.stop()
        assert exchange.timers.waiting == []
        assert beat(exchange).error_code == Code.COORDINATOR_NOT_AVAILABLE

    def test_the_session_ends(self, exchange: Exchange) -> None:
        beat(exchange)
        exchange.timers.advance(CONSUMER_SESSION_SECONDS)
        assert beat(exchange, member_epoch=1).error_code == Code.UNKNOWN_MEMBER_ID


class TestAdministration:
    @pytest.mark.parametrize("version", versions(DESCRIBE))
    def test_describe(self, exchange: Exchange, version: int) -> None:
        topic = exchange.topic(partitions=2)
        beat(exchange, rack_id="here", subscribed_topic_regex="bills.*")
        found = describe(exchange, version, include_authorized_operations=True)
        assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 1, 1)
        assert (found.assignor_name, found.authorized_operations) == (
            "uniform",
            frozenset({3, 6, 8, 10, 11}),
        )
        (member,) = found.members
        assert (member.member_id, member.rack_id, member.instance_id) == ("me", "here", None)
        assert (member.client_id, member.client_host) == (CLIENT, "/127.0.0.1")
        assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (
            ["orders"],
            "bills.*",
        )
        for assignment in (member.assignment, member.target_assignment):
            assert shares(assignment) == {topic.entry.id: [0, 1]}
            assert assignment.topic_partitions[0].topic_name == "orders"
        exchange.broker.delete_topic(topic)
        assert shares(describe(exchange, version).members[0].assignment) == {}

    @pytest.mark.parametrize("version", versions(DESCRIBE))
    def test_describe_what_is_not_there(self, exchange: Exchange, version: int) -> None:
        found = describe(exchange, version)
        assert (found.error_code, found.error_message) == (
            Code.GROUP_ID_NOT_FOUND,
            "Group crew not found.",
        )

    @pytest.mark.parametrize("version", versions(15))
    def test_the_classic_description(self, exchange: Exchange, version: int) -> None:
        beat(exchange)
        (found,) = exchange.send(DescribeGroupsRequest(groups=["crew"]), version).groups
        assert found.group_state == "Dead"
        assert found.error_code == (Code.GROUP_ID_NOT_FOUND if version >= 6 else Code.NONE)

    def test_list(self, exchange: Exchange) -> None:
        beat(exchange)
        for types, states, count in [
            ([], [], 1),
            (["consumer"], ["Stable"], 1),
            (["classic"], [], 0),
            ([], ["empty"], 0),
        ]:
            request = ListGroupsRequest(states_filter=states, types_filter=types)
            groups = exchange.send(request, 5).groups
            assert len(groups) == count
            for group in groups:
                shown = (group.group_type, group.protocol_type, group.group_state)
                assert shown == ("consumer", "consumer", "Stable")


class TestOffsets:
    def commit(self, exchange: Exchange, version: int, member_id: str, epoch: int) -> int:
        message = OffsetCommitRequest.OffsetCommitRequestTopic
        topic = exchange.broker.topic("orders")
        partition = message.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=7, committed_metadata=""
        )
        topics = [message(name="orders", topic_id=topic.entry.id, partitions=[partition])]
        request = OffsetCommitRequest(
            group_id="crew",
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=topics,
        )
        return int(exchange.send(request, version).topics[0].partitions[0].error_code)

    def fetch(self, exchange: Exchange, version: int, member_id: str | None, epoch: int) -> Any:
        message = OffsetFetchRequest.OffsetFetchRequestGroup
        group = message(group_id="crew", member_id=member_id, member_epoch=epoch, topics=None)
        (found,) = exchange.send(OffsetFetchRequest(groups=[group]), version).groups
        return found

    @pytest.mark.parametrize("version", [9, 10])
    def test_epochs(self, exchange: Exchange, version: int) -> None:
        exchange.topic()
        beat(exchange)
        assert self.commit(exchange, version, "me", 2) == Code.STALE_MEMBER_EPOCH
        assert self.commit(exchange, version, "other", 1) == Code.UNKNOWN_MEMBER_ID
        assert self.commit(exchange, version, "", -1) == Code.UNKNOWN_MEMBER_ID
        assert not exchange.broker.groups.offsets("crew")
        assert self.commit(exchange, version, "me", 1) == Code.NONE
        assert self.fetch(exchange, version, "me", 0).error_code == Code.STALE_MEMBER_EPOCH
        assert self.fetch(exchange, version, "other", 1).error_code == Code.UNKNOWN_MEMBER_ID
        for member_id, epoch in [("me", 1), (None, -1)]:
            found = self.fetch(exchange, version, member_id, epoch)
            assert found.topics[0].partitions[0].committed_offset == 7

    @pytest.mark.parametrize("version", range(2, 9))
    def test_older_versions_know_no_epochs(self, exchange: Exchange, version: int) -> None:
        exchange.topic()
        beat(exchange)
        assert self.commit(exchange, version, "me", 1) == Code.UNSUPPORTED_VERSION
        beat(exchange, member_epoch=-1)
        assert self.commit(exchange, version, "", -1) == Code.NONE

    def test_they_outlive_the_group(self, exchange: Exchange) -> None:
        exchange.grown_topic(7)
        beat(exchange)
        self.commit(exchange, 10, "me", 1)
        exchange.open()
        assert self.commit(exchange, 10, "me", 1) == Code.UNKNOWN_MEMBER_ID
        beat(exchange)
        assert self.fetch(exchange, 10, "me", 1).topics[0].partitions[0].committed_offset == 7


class TestClassic:
    def join(self, exchange: Exchange, member_id: str = "") -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id="crew",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        slot = exchange.begin(request, 3)
        exchange.timers.advance(0.0)
        return answer(request, 3, slot)

    def test_an_empty_group_changes_its_protocol(self, exchange: Exchange) -> None:
        beat(exchange)
        beat(exchange, member_epoch=-1)
        joined = self.join(exchange)
        assert joined.error_code == Code.NONE
        assert describe(exchange).error_message == "Group crew is not a consumer group."
        assert beat(exchange).error_code == Code.GROUP_ID_NOT_FOUND
        leave = LeaveGroupRequest(group_id="crew", member_id=joined.member_id)
        assert exchange.send(leave, 2).error_code == Code.NONE
        assert beat(exchange).error_code == Code.NONE

    def test_one_with_members_does_not(self, exchange: Exchange) -> None:
        beat(exchange)
        assert self.join(exchange).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
        who = {"group_id": "crew", "generation_id": 1, "member_id": "me"}
        assert exchange.send(HeartbeatRequest(**who), 3).error_code == Code.UNKNOWN_MEMBER_ID
        assert exchange.send(SyncGroupRequest(**who), 3).error_code == Code.UNKNOWN_MEMBER_ID
        leave = LeaveGroupRequest(group_id="crew", member_id="me")
        assert exchange.send(leave, 2).error_code == Code.UNKNOWN_MEMBER_ID
        assert beat(exchange, member_epoch=1).error_code == Code.NONE
