"""Share groups (KIP-932) without a client: what exactly each request is told."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListConfigResourcesRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import JoinGroupRequest
from tests.clients.admin_requests import SET, change_configs, describe_configs
from tests.clients.brokers import Broker
from tests.clients.contract import MakeTopic, eventually, numbered
from tests.clients.wire import Wire, read_batches

from penstock.wire.consumer_group_messages import ConsumerGroupHeartbeatRequest
from penstock.wire.share_group_messages import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

pytestmark = pytest.mark.compat

NONE, UNKNOWN_TOPIC_OR_PARTITION, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID = 0, 3, 23, 25
INVALID_CONFIG, INVALID_REQUEST, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 40, 42, 68, 69
UNKNOWN_TOPIC_ID, FENCED_MEMBER_EPOCH, INVALID_RECORD_STATE = 100, 110, 121
SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH = 122, 123
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
RECORD_LIMIT = 1
VERSIONS = (1, 2)
GROUP = 32
Ack = tuple[int, int, list[int]]


@dataclass
class Member:
    """A member that does what it is told."""

    wire: Wire
    group: str
    topic: str
    version: int = 2
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    session: int = 0

    def beat(self, **fields: Any) -> Any:
        names = {"group_id": self.group, "member_id": self.id, "member_epoch": self.epoch}
        return self.wire.call(ShareGroupHeartbeatRequest(**names | fields), 1)

    def join(self) -> Any:
        """Heartbeats until it has something to fetch from."""
        self.epoch = 0

        def joined() -> Any:
            first = {"subscribed_topic_names": [self.topic]} if self.epoch == 0 else {}
            answer = self.beat(**first)
            assert answer.error_code == NONE, answer
            self.epoch = answer.member_epoch
            told = answer.assignment
            return answer if told is not None and told.topic_partitions else None

        return eventually(joined, "an assignment")

    @property
    def topic_id(self) -> Any:
        return self.wire.metadata(self.topic).topic_id

    def fetch(self, acks: Sequence[Ack] = (), **fields: Any) -> Any:
        """One fetch; the answer as it is."""
        answer = self.wire.call(self.fetch_request(acks, **fields), self.version)
        if answer.error_code == NONE:
            self.session += 1
        return answer

    def fetch_request(self, acks: Sequence[Ack] = (), **fields: Any) -> Any:
        message = ShareFetchRequest.FetchTopic
        settings: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.id,
            "share_session_epoch": self.session,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": [
                message(
                    topic_id=self.topic_id,
                    partitions=[
                        message.FetchPartition(
                            partition_index=0,
                            acknowledgement_batches=_batches(message.FetchPartition, acks),
                        )
                    ],
                )
            ],
            "forgotten_topics_data": [],
        }
        return ShareFetchRequest(**settings | fields)

    def got(self, acks: Sequence[Ack] = (), **fields: Any) -> list[tuple[int, int, int]]:
        """What it is given: first, last and for which time; waits until there is something."""
        waiting = [acks]

        def given() -> Any:
            answer = self.fetch(waiting[0], **fields)
            waiting[0] = ()
            assert answer.error_code == NONE, answer
            (data,) = _data(answer) or [None]
            if data is None:
                return None
            assert (data.error_code, data.acknowledge_error_code) == (NONE, NONE), data
            return _given(data) or None

        found: list[tuple[int, int, int]] = eventually(given, "records")
        return found

    def acknowledge(self, *acks: Ack, **fields: Any) -> Any:
        answer = self.wire.call(self.acknowledge_request(*acks, **fields), self.version)
        if answer.error_code == NONE:
            self.session += 1
        return answer

    def acknowledge_request(self, *acks: Ack, **fields: Any) -> Any:
        message = ShareAcknowledgeRequest.AcknowledgeTopic
        settings = {
            "group_id": self.group,
            "member_id": self.id,
            "share_session_epoch": self.session,
            "is_renew_ack": False,
            "topics": [
                message(
                    topic_id=self.topic_id,
                    partitions=[
                        message.AcknowledgePartition(
                            partition_index=0,
                            acknowledgement_batches=_batches(message.AcknowledgePartition, acks),
                        )
                    ],
                )
            ],
        }
        return ShareAcknowledgeRequest(**settings | fields)

    def settled(self, *acks: Ack, **fields: Any) -> int:
        """The error code of an acknowledgement."""
        answer = self.acknowledge(*acks, **fields)
        assert answer.error_code == NONE, answer
        (data,) = _data(answer)
        return int(data.error_code)


def _batches(message: Any, acks: Sequence[Ack]) -> list[Any]:
    return [
        message.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in acks
    ]


def _data(answer: Any) -> list[Any]:
    return [data for topic in answer.responses for data in topic.partitions]


def _given(data: Any) -> list[tuple[int, int, int]]:
    return [(a.first_offset, a.last_offset, a.delivery_count) for a in data.acquired_records]


def configure(wire: Wire, group: str, **settings: object) -> list[int]:
    changes = [(name.replace("_", "."), SET, str(value)) for name, value in settings.items()]
    answer = wire.call(change_configs(group, changes, kind=GROUP))
    return [one.error_code for one in answer.responses]


@pytest.fixture
def member(wire: Wire, group: str, topic: str) -> Member:
    """One that has joined, of a group that begins with the first of ten records."""
    assert configure(wire, group, share_auto_offset_reset="earliest") == [NONE]
    wire.write(topic, numbered(10))
    member = Member(wire, group, topic)
    member.join()
    return member


class TestMembership:
    def test_a_life(self, wire: Wire, group: str, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=3)
        member = Member(wire, group, topic)
        joined = member.join()
        assert (joined.member_id, joined.heartbeat_interval_ms) == (member.id, 5000)
        (told,) = joined.assignment.topic_partitions
        assert (told.topic_id, sorted(told.partitions)) == (member.topic_id, [0, 1, 2])
        assert member.beat().assignment is None
        assert member.beat(member_epoch=member.epoch + 10).error_code == FENCED_MEMBER_EPOCH
        described = describe(wire, group)
        assert (described.group_state, described.assignor_name) == ("Stable", "simple")
        (shown,) = described.members
        assert (shown.member_id, shown.subscribed_topic_names) == (member.id, [topic])
        (part,) = shown.assignment.topic_partitions
        assert (part.topic_name, sorted(part.partitions)) == (topic, [0, 1, 2])
        left = member.beat(member_epoch=-1)
        assert (left.error_code, left.member_epoch) == (NONE, -1)
        assert member.beat().error_code == UNKNOWN_MEMBER_ID
        assert describe(wire, group).group_state == "Empty"

    def test_every_partition_has_a_reader_and_every_member_a_partition(
        self, wire: Wire, group: str, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(partitions=2)
        members = [Member(wire, group, topic) for _ in range(3)]
        for member in members:
            member.join()
        shown = eventually(
            lambda: [
                sorted(n for part in one.assignment.topic_partitions for n in part.partitions)
                for one in describe(wire, group).members
                if [member.beat() for member in members]
            ],
            "members",
        )
        assert len(shown) == 3
        assert {n for numbers in shown for n in numbers} == {0, 1}

    @pytest.mark.parametrize(
        "fields",
        [
            {"member_id": ""},
            {"group_id": ""},
            {"rack_id": ""},
            {"subscribed_topic_names": None},
            {"member_epoch": -2},
        ],
    )
    def test_nonsense(self, wire: Wire, group: str, topic: str, fields: dict[str, Any]) -> None:
        member = Member(wire, group, topic)
        first = {"subscribed_topic_names": [topic]}
        assert member.beat(**first | fields).error_code == INVALID_REQUEST

    def test_other_protocols_are_refused(self, wire: Wire, member: Member) -> None:
        other = ConsumerGroupHeartbeatRequest(
            group_id=member.group,
            member_id=str(uuid.uuid4()),
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[member.topic],
            topic_partitions=[],
        )
        assert wire.call(other, 1).error_code == GROUP_ID_NOT_FOUND
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        classic = JoinGroupRequest(
            group_id=member.group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        assert wire.call(classic, 3).error_code == INCONSISTENT_GROUP_PROTOCOL
        (described,) = wire.call(DescribeGroupsRequest(groups=[member.group]), 6).groups
        assert described.error_code == GROUP_ID_NOT_FOUND

    def test_listed_as_what_it_is(self, wire: Wire, member: Member) -> None:
        request = ListGroupsRequest(states_filter=[], types_filter=["share"])
        (found,) = [g for g in wire.call(request, 5).groups if g.group_id == member.group]
        assert (found.group_type, found.protocol_type) == ("share", "share")
        answer = wire.call(DeleteGroupsRequest(groups_names=[member.group]))
        assert [one.error_code for one in answer.results] == [NON_EMPTY_GROUP]

    def test_not_a_share_group(self, wire: Wire, group: str) -> None:
        assert describe(wire, group).error_code == GROUP_ID_NOT_FOUND


def describe(wire: Wire, group: str) -> Any:
    request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    (found,) = wire.call(request, 1).groups
    return found


class TestFetching:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_records_and_what_is_ones_own(self, member: Member, version: int) -> None:
        member.version = version
        answer = eventually(lambda: (a := member.fetch()) and _data(a) and a, "an answer")
        while not _given(_data(answer)[0]):
            answer = member.fetch()
            if not _data(answer):
                continue
        (data,) = _data(answer)
        assert _given(data) == [(0, 9, 1)]
        assert answer.acquisition_lock_timeout_ms == 30_000
        (batch,) = read_batches(data.records)
        assert len(batch.records) == 10
        assert member.settled((0, 9, [ACCEPT])) == NONE

    def test_acknowledged_with_the_next_fetch(self, member: Member) -> None:
        assert member.got() == [(0, 9, 1)]
        member.wire.write(member.topic, numbered(2))
        types = [ACCEPT] * 5 + [RELEASE] * 2 + [REJECT] * 3
        given = member.got([(0, 9, types)])
        while len(given) < 2:  # a Kafka may look for records before it has taken the rest back
            given += member.got()
        assert sorted(given) == [(5, 6, 2), (10, 11, 1)]

    def test_a_limit_of_records(self, member: Member) -> None:
        few: dict[str, Any] = {"max_records": 4, "share_acquire_mode": RECORD_LIMIT}
        assert member.got(**few) == [(0, 3, 1)]
        assert member.got(**few) == [(4, 7, 1)]

    @pytest.mark.parametrize("version", VERSIONS)
    def test_sessions(self, member: Member, version: int) -> None:
        member.version = version
        assert member.acknowledge((0, 0, [ACCEPT])).error_code in (
            SHARE_SESSION_NOT_FOUND,
            INVALID_SHARE_SESSION_EPOCH,
        )
        assert member.fetch(share_session_epoch=5).error_code == SHARE_SESSION_NOT_FOUND
        assert member.got() == [(0, 9, 1)]
        answer = member.fetch(share_session_epoch=member.session + 3)
        assert answer.error_code == INVALID_SHARE_SESSION_EPOCH
        last = member.acknowledge((0, 3, [ACCEPT]), share_session_epoch=-1)
        assert [data.error_code for data in _data(last)] == [NONE]
        assert member.fetch(share_session_epoch=-1).error_code == SHARE_SESSION_NOT_FOUND
        member.session = 0
        assert member.got() == [(4, 9, 2)]

    def test_a_session_does_not_begin_with_acknowledgements(self, member: Member) -> None:
        assert member.fetch([(0, 0, [ACCEPT])]).error_code == INVALID_REQUEST

    def test_who_is_gone_holds_nothing(self, member: Member, broker: Broker) -> None:
        with broker.wire() as other:
            gone = Member(other, member.group, member.topic)
            gone.join()
            assert [run[:2] for run in gone.got()] == [(0, 9)]
        assert [run[:2] for run in member.got()] == [(0, 9)]

    def test_an_unknown_topic(self, member: Member, broker: Broker) -> None:
        if broker.name == "kafka":
            pytest.skip("Kafka 4.3.1 answers with an unknown server error")
        message = ShareFetchRequest.FetchTopic
        unknown = message(
            topic_id=uuid.uuid4(),
            partitions=[message.FetchPartition(partition_index=0, acknowledgement_batches=[])],
        )
        (data,) = _data(member.fetch(topics=[unknown]))
        assert data.error_code == UNKNOWN_TOPIC_ID


class TestAcknowledging:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_what_one_does_not_hold(self, member: Member, version: int) -> None:
        member.version = version
        assert member.got() == [(0, 9, 1)]
        assert member.settled((5, 12, [ACCEPT])) == INVALID_REQUEST
        assert member.settled((2, 4, [ACCEPT])) == NONE
        assert member.settled((2, 4, [ACCEPT])) == INVALID_RECORD_STATE
        assert member.settled((0, 9, [ACCEPT])) == INVALID_RECORD_STATE
        other = Member(member.wire, member.group, member.topic)
        other.join()
        other.fetch(max_wait_ms=0)
        assert other.settled((5, 9, [ACCEPT])) == INVALID_RECORD_STATE
        assert member.settled((5, 5, [REJECT]), (6, 9, [GAP] * 4)) == NONE

    @pytest.mark.parametrize(
        "acks",
        [
            [(3, 1, [ACCEPT])],
            [(0, 2, [ACCEPT, ACCEPT])],
            [(0, 2, [9])],
            [(0, 2, [])],
            [(4, 5, [ACCEPT]), (0, 1, [ACCEPT])],
            [(0, 2, [RENEW])],
        ],
    )
    def test_nonsense(self, member: Member, acks: list[Ack]) -> None:
        assert member.got() == [(0, 9, 1)]
        assert member.settled(*acks) == INVALID_REQUEST
        assert member.settled((0, 9, [ACCEPT])) == NONE

    def test_more_time(self, member: Member) -> None:
        assert member.got() == [(0, 9, 1)]
        answer = member.acknowledge((0, 4, [RENEW]), (5, 9, [ACCEPT]), is_renew_ack=True)
        assert [data.error_code for data in _data(answer)] == [NONE]
        assert answer.acquisition_lock_timeout_ms == 30_000
        nothing = {"max_records": 0, "max_bytes": 0, "min_bytes": 0, "max_wait_ms": 0}
        answer = member.fetch([(0, 4, [RENEW])], is_renew_ack=True, **nothing)
        assert [data.acknowledge_error_code for data in _data(answer)] == [NONE]
        assert member.settled((0, 4, [ACCEPT])) == NONE


class TestOffsets:
    def standing(self, member: Member, version: int = 1, **fields: Any) -> Any:
        message = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        wanted = message.DescribeShareGroupOffsetsRequestTopic
        topics = [wanted(topic_name=member.topic, partitions=[0])]
        group = message(**{"group_id": member.group, "topics": topics} | fields)
        answer = member.wire.call(DescribeShareGroupOffsetsRequest(groups=[group]), version)
        (found,) = answer.groups
        return found

    def partition(self, member: Member, version: int = 1, **fields: Any) -> Any:
        found = self.standing(member, version, **fields)
        assert found.error_code == NONE, found
        ((data,),) = [topic.partitions for topic in found.topics]
        assert data.error_code == NONE, data
        return data

    @pytest.mark.parametrize("version", [0, 1])
    def test_described(self, member: Member, version: int) -> None:
        assert member.got() == [(0, 9, 1)]
        member.settled((0, 5, [ACCEPT]), (8, 8, [ACCEPT]))
        if version == 1:
            eventually(lambda: self.partition(member).lag == 3 or None, "the lag")
        data = eventually(lambda: (d := self.partition(member, version)) and d, "an answer")
        assert (data.partition_index, data.leader_epoch) == (0, 0)
        assert self.partition(member, version, topics=None).start_offset == data.start_offset

    def read(self, member: Member, broker: Broker, given: list[tuple[int, int, int]]) -> None:
        """Join, take and accept everything, and leave; a Kafka forgets nothing before that."""
        with broker.wire() as wire:
            other = Member(wire, member.group, member.topic)
            other.join()
            assert other.got() == given
            assert other.settled(*((first, last, [ACCEPT]) for first, last, _ in given)) == NONE
            other.beat(member_epoch=-1)

    def test_moved_and_removed(self, member: Member, broker: Broker) -> None:
        wire = member.wire
        moved = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        place = moved.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=7)
        topics = [moved(topic_name=member.topic, partitions=[place])]
        alter = AlterShareGroupOffsetsRequest(group_id=member.group, topics=topics)
        assert wire.call(alter, 0).error_code == NON_EMPTY_GROUP
        gone = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
        delete = DeleteShareGroupOffsetsRequest(
            group_id=member.group,
            topics=[gone(topic_name=member.topic), gone(topic_name="no-such-topic")],
        )
        assert wire.call(delete, 0).error_code == NON_EMPTY_GROUP
        member.beat(member_epoch=-1)
        self.read(member, broker, [(0, 9, 1)])
        answer = wire.call(alter, 0)
        assert (answer.error_code, [d.error_code for d in _data(answer)]) == (NONE, [NONE])
        assert self.partition(member).start_offset == 7
        self.read(member, broker, [(7, 9, 1)])
        codes = {one.topic_name: one.error_code for one in wire.call(delete, 0).responses}
        assert codes == {member.topic: NONE, "no-such-topic": UNKNOWN_TOPIC_OR_PARTITION}

    def test_no_such_group(self, wire: Wire, group: str, topic: str) -> None:
        gone = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
        delete = DeleteShareGroupOffsetsRequest(group_id=group, topics=[gone(topic_name=topic)])
        assert wire.call(delete, 0).error_code == GROUP_ID_NOT_FOUND

    def test_where_a_group_will_begin(self, wire: Wire, group: str, topic: str) -> None:
        wire.write(topic, numbered(10))
        member = Member(wire, group, topic)
        assert self.partition(member).start_offset == -1
        assert self.standing(member, topics=None).topics == []
        moved = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        place = moved.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=7)
        topics = [moved(topic_name=topic, partitions=[place])]
        answer = wire.call(AlterShareGroupOffsetsRequest(group_id=group, topics=topics), 0)
        assert (answer.error_code, [d.error_code for d in _data(answer)]) == (NONE, [NONE])
        member.join()
        assert member.got() == [(7, 9, 1)]


class TestSettings:
    def test_shown_with_their_source(self, wire: Wire, group: str) -> None:
        assert configure(wire, group, share_record_lock_duration_ms=20_000) == [NONE]

        def shown() -> Any:
            (found,) = wire.call(describe_configs(group, kind=GROUP, everything=True)).results
            entries = {one.name: (one.value, one.config_source) for one in found.configs}
            return entries if entries["share.record.lock.duration.ms"][0] == "20000" else None

        entries = eventually(shown, "the setting")
        assert entries["share.record.lock.duration.ms"] == ("20000", 8)
        defaults = {
            "consumer.heartbeat.interval.ms": "5000",
            "consumer.session.timeout.ms": "45000",
            "share.auto.offset.reset": "latest",
            "share.delivery.count.limit": "5",
            "share.heartbeat.interval.ms": "5000",
            "share.isolation.level": "read_uncommitted",
            "share.partition.max.record.locks": "2000",
            "share.renew.acknowledge.enable": "true",
            "share.session.timeout.ms": "45000",
        }
        assert {name: entries[name] for name in defaults} == {
            name: (value, 5) for name, value in defaults.items()
        }
        request = ListConfigResourcesRequest(resource_types=[GROUP])
        names = [one.resource_name for one in wire.call(request, 1).config_resources]
        assert group in names

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("share_auto_offset_reset", "somewhere"),
            ("share_auto_offset_reset", "by_duration:soon"),
            ("share_isolation_level", "none"),
            ("share_record_lock_duration_ms", "10"),
            ("share_delivery_count_limit", "1"),
            ("share_renew_acknowledge_enable", "perhaps"),
            ("share_no_such_setting", "1"),
        ],
    )
    def test_refused(self, wire: Wire, group: str, name: str, value: str) -> None:
        assert configure(wire, group, **{name: value})[0] in (INVALID_CONFIG, INVALID_REQUEST)
