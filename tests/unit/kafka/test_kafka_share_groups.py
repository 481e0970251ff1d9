"""Share groups through the dispatcher, over files in memory: who waits for what, and what is let go."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest
from tests.unit.kafka.exchange import NOW, PEER, Exchange, Slot, answer

from penstock.kafka.call import Waiting
from penstock.kafka.errors import Code
from penstock.kafka.share_session import SessionKey, SessionLimitError, ShareSessions
from penstock.limits import (
    CONSUMER_SESSION_SECONDS,
    FETCH_SESSION_PARTITIONS_MAX,
    SHARE_LOCK_SECONDS,
)
from penstock.log.positions import PartitionId
from penstock.wire.share_group_messages import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

VERSION = 2
ACCEPT, RELEASE = 1, 2
Ack = tuple[int, int, int]


class Member:
    """A member of the group "crew" that reads the topic "jobs"."""

    def __init__(self, exchange: Exchange, name: str = "ann") -> None:
        self.exchange = exchange
        self.name = name
        self.session = 0
        self.topic_id = exchange.broker.topic("jobs").entry.id
        self.joined = self.beat(member_epoch=0, subscribed_topic_names=["jobs"])
        assert self.joined.error_code == Code.NONE

    def beat(self, **fields: Any) -> Any:
        names = {"group_id": "crew", "member_id": self.name}
        return self.exchange.send(ShareGroupHeartbeatRequest(**names | fields), 1)

    def request(self, *acks: Ack, **fields: Any) -> Any:
        topic = ShareFetchRequest.FetchTopic
        batches = [
            topic.FetchPartition.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=[kind]
            )
            for first, last, kind in acks
        ]
        settings: dict[str, Any] = {
            "group_id": "crew",
            "member_id": self.name,
            "share_session_epoch": self.session,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": [
                topic(
                    topic_id=self.topic_id,
                    partitions=[
                        topic.FetchPartition(partition_index=0, acknowledgement_batches=batches)
                    ],
                )
            ],
            "forgotten_topics_data": [],
        }
        return ShareFetchRequest(**settings | fields)

    def begin(self, *acks: Ack, **fields: Any) -> Slot:
        slot = self.exchange.begin(self.request(*acks, **fields), VERSION)
        self.session += 1
        return slot

    def fetch(self, *acks: Ack, **fields: Any) -> Any:
        slot = self.begin(*acks, **fields)
        self.exchange.drain()
        if slot.data is None:
            waiting = cast(Waiting, slot.waiting)
            waiting.finish()
        return self.answered(slot)

    def answered(self, slot: Slot) -> Any:
        request = self.request()
        request.API_VERSION = VERSION
        request.with_header()
        return answer(request, VERSION, slot)


def given(response: Any) -> list[tuple[int, int, int]]:
    return [
        (run.first_offset, run.last_offset, run.delivery_count)
        for topic in response.responses
        for data in topic.partitions
        for run in data.acquired_records
    ]


def codes(response: Any) -> list[int]:
    assert response.error_code == Code.NONE, response
    return [
        data.acknowledge_error_code for topic in response.responses for data in topic.partitions
    ]


@pytest.fixture
def jobs(exchange: Exchange) -> Any:
    """The topic, and a group that begins with its first record."""
    exchange.broker.groups.configs.configure("crew", {"share.auto.offset.reset": "earliest"})
    return exchange.topic("jobs")


@pytest.fixture
def ann(exchange: Exchange, jobs: Any) -> Member:
    return Member(exchange)


class TestFetching:
    def test_nothing_is_given_out_before_the_queue_is_durable(
        self, exchange: Exchange, jobs: Any, ann: Member
    ) -> None:
        exchange.append(jobs, NOW, NOW)
        slot = ann.begin()
        assert slot.data is None
        exchange.drain()
        assert given(ann.answered(slot)) == [(0, 1, 1)]

    def test_waits_for_records(self, exchange: Exchange, jobs: Any, ann: Member) -> None:
        assert given(ann.fetch()) == []
        slot = ann.begin()
        exchange.drain()
        assert slot.data is None
        exchange.append(jobs, NOW)
        exchange.drain()
        assert given(ann.answered(slot)) == [(0, 0, 1)]
        assert not jobs.partition(0).watchers

    def test_waits_for_what_others_give_back(
        self, exchange: Exchange, jobs: Any, ann: Member
    ) -> None:
        exchange.append(jobs, NOW, NOW)
        assert given(ann.fetch()) == [(0, 1, 1)]
        bob = Member(exchange, "bob")
        assert given(bob.fetch()) == []
        slot = bob.begin()
        exchange.drain()
        assert slot.data is None
        assert given(ann.fetch((1, 1, RELEASE), max_records=0)) == []
        exchange.drain()
        assert given(bob.answered(slot)) == [(1, 1, 2)]

    def test_waits_for_what_is_late(self, exchange: Exchange, jobs: Any, ann: Member) -> None:
        exchange.append(jobs, NOW)
        ann.fetch()
        bob = Member(exchange, "bob")
        slot = bob.begin()
        exchange.drain()
        exchange.timers.advance(SHARE_LOCK_SECONDS)
        exchange.drain()
        assert given(bob.answered(slot)) == [(0, 0, 2)]

    def test_who_has_gone_is_given_nothing(
        self, exchange: Exchange, jobs: Any, ann: Member
    ) -> None:
        ann.fetch()
        slot = ann.begin()
        exchange.drain()
        assert slot.waiting is not None
        slot.waiting.abandon()
        exchange.append(jobs, NOW)
        exchange.drain()
        assert slot.data is None
        assert given(Member(exchange, "bob").fetch()) == [(0, 0, 1)]
        assert not exchange.context.waiting_fetches

    def test_acknowledgements_are_durable_before_the_answer(
        self, exchange: Exchange, jobs: Any, ann: Member
    ) -> None:
        exchange.append(jobs, NOW, NOW)
        ann.fetch()
        exchange.append(jobs, NOW)
        slot = ann.begin((0, 1, ACCEPT))
        assert slot.data is None
        exchange.drain()
        response = ann.answered(slot)
        assert (codes(response), given(response)) == ([Code.NONE], [(2, 2, 1)])
        exchange.open()
        assert given(Member(exchange).fetch()) == [(2, 2, 1)]

    def test_a_deleted_topic_ends_the_wait(
        self, exchange: Exchange, jobs: Any, ann: Member
    ) -> None:
        ann.fetch()
        slot = ann.begin()
        exchange.drain()
        exchange.broker.delete_topic(jobs)
        exchange.drain()
        (topic,) = ann.answered(slot).responses
        assert [data.error_code for data in topic.partitions] == [Code.UNKNOWN_TOPIC_ID]

    def test_a_lost_connection(self, exchange: Exchange, jobs: Any, ann: Member) -> None:
        exchange.append(jobs, NOW)
        ann.fetch()
        for closing in PEER.closing.values():
            closing()
        PEER.closing.clear()
        assert given(Member(exchange, "bob").fetch()) == [(0, 0, 2)]
        refused = exchange.send(ann.request((0, 0, ACCEPT)), VERSION)
        assert refused.error_code == Code.SHARE_SESSION_NOT_FOUND

    def test_not_a_share_group(self, exchange: Exchange, jobs: Any, ann: Member) -> None:
        refused = exchange.send(ann.request(group_id="other"), VERSION)
        assert refused.error_code == Code.GROUP_ID_NOT_FOUND
        refused = exchange.send(ann.request(member_id=None), VERSION)
        assert refused.error_code == Code.INVALID_REQUEST


class TestAcknowledging:
    def test_alone(self, exchange: Exchange, jobs: Any, ann: Member) -> None:
        exchange.append(jobs, NOW)
        ann.fetch()
        topic = ShareAcknowledgeRequest.AcknowledgeTopic
        batch = topic.AcknowledgePartition.AcknowledgementBatch(
            first_offset=0, last_offset=0, acknowledge_types=[ACCEPT]
        )
        partition = topic.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id="crew",
            member_id="ann",
            share_session_epoch=1,
            is_renew_ack=False,
            topics=[topic(topic_id=jobs.entry.id, partitions=[partition])],
        )
        slot = exchange.begin(request, VERSION)
        assert slot.data is None
        exchange.drain()
        (found,) = answer(request, VERSION, slot).responses
        assert [data.error_code for data in found.partitions] == [Code.NONE]

    def test_more_time_only_where_it_is_allowed(
        self, exchange: Exchange, jobs: Any, ann: Member
    ) -> None:
        exchange.append(jobs, NOW)
        ann.fetch()
        renew = {"is_renew_ack": True, "max_records": 0, "max_bytes": 0}
        assert codes(ann.fetch((0, 0, 4), **renew)) == [Code.NONE]
        exchange.broker.groups.configs.configure(
            "crew", {"share.renew.acknowledge.enable": "false"}
        )
        assert codes(ann.fetch((0, 0, 4), **renew)) == [Code.INVALID_REQUEST]


class TestMembership:
    def test_the_groups_settings_count(self, exchange: Exchange, jobs: Any, ann: Member) -> None:
        config = {"share.heartbeat.interval.ms": "2000", "share.session.timeout.ms": "10000"}
        exchange.broker.groups.configs.configure("crew", config)
        assert Member(exchange, "bob").joined.heartbeat_interval_ms == 2000
        exchange.timers.advance(10.0)
        assert "bob" not in exchange.broker.groups.share_group("crew").members
        assert ann.name in exchange.broker.groups.share_group("crew").members, "it has 45 s"

    def test_a_silent_member_is_out_and_holds_nothing(
        self, exchange: Exchange, jobs: Any, ann: Member
    ) -> None:
        exchange.append(jobs, NOW)
        exchange.timers.advance(CONSUMER_SESSION_SECONDS - 1)
        ann.fetch()
        exchange.timers.advance(1)
        assert ann.beat(member_epoch=1).error_code == Code.UNKNOWN_MEMBER_ID
        assert given(Member(exchange, "bob").fetch()) == [(0, 0, 2)]

    def test_a_topic_grows(self, exchange: Exchange, jobs: Any, ann: Member) -> None:
        exchange.broker.add_partitions(jobs, 3)
        exchange.drain()
        told = ann.beat(member_epoch=1)
        assert told.member_epoch == 2
        (topic,) = told.assignment.topic_partitions
        assert topic.partitions == [0, 1, 2]
        # An answer that was missed is no reason to begin anew.
        assert ann.beat(member_epoch=1).error_code == Code.NONE
        request = ShareGroupDescribeRequest(group_ids=["crew"], include_authorized_operations=True)
        (found,) = exchange.send(request, 1).groups
        assert (found.group_state, found.group_epoch, len(found.members)) == ("Stable", 2, 1)


def test_sessions_are_bounded() -> None:
    sessions = ShareSessions(limit=2)
    first = sessions.open(SessionKey("crew", "1"))
    sessions.open(SessionKey("crew", "2"))
    sessions.open(SessionKey("crew", "2"))
    with pytest.raises(SessionLimitError):
        sessions.open(SessionKey("crew", "3"))
    assert sessions.close(first)
    assert not sessions.close(first)
    sessions.open(SessionKey("crew", "3"))
    assert len(sessions) == 2


def test_the_partitions_of_a_session_are_bounded() -> None:
    session = ShareSessions().open(SessionKey("crew", "1"))
    made_up = [PartitionId(UUID(int=1), number) for number in range(FETCH_SESSION_PARTITIONS_MAX)]
    session.update(made_up, [])
    session.update([PartitionId(UUID(int=2), 0)], made_up[:1])
    assert len(session.partitions) == FETCH_SESSION_PARTITIONS_MAX
    with pytest.raises(SessionLimitError):
        session.update([PartitionId(UUID(int=3), 0)], [])
    assert not session.partitions


def test_nothing_is_kept_of_a_client_that_goes_while_its_acknowledgements_are_written(
    exchange: Exchange, jobs: Any
) -> None:
    ann = Member(exchange)
    exchange.append(jobs, NOW, NOW)
    ann.fetch()
    slot = ann.begin((0, 1, ACCEPT))
    assert slot.waiting is not None
    slot.waiting.abandon()
    exchange.drain()
    assert not exchange.context.waiting_fetches


def test_a_fetch_that_waits_does_not_bring_a_deleted_group_back(
    exchange: Exchange, jobs: Any
) -> None:
    ann = Member(exchange)
    ann.fetch()
    ann.begin()
    exchange.drain()
    ann.beat(member_epoch=-1)
    exchange.broker.groups.delete("crew", lambda _: None)
    exchange.drain()
    exchange.append(jobs, NOW)
    exchange.drain()
    assert not exchange.broker.groups.queues.of("crew")
    exchange.open()
    assert not exchange.broker.groups.is_share_group("crew")


def test_a_great_many_verdicts_are_refused_before_they_are_gone_over(
    exchange: Exchange, jobs: Any
) -> None:
    ann = Member(exchange)
    exchange.append(jobs, NOW, NOW)
    ann.fetch()
    topic = ShareFetchRequest.FetchTopic
    batch = topic.FetchPartition.AcknowledgementBatch(
        first_offset=0, last_offset=99_999, acknowledge_types=[ACCEPT, RELEASE] * 50_000
    )
    partition = topic.FetchPartition(partition_index=0, acknowledgement_batches=[batch])
    answered = exchange.send(
        ann.request(max_bytes=0, topics=[topic(topic_id=ann.topic_id, partitions=[partition])]),
        VERSION,
    )
    (told,) = [one for found in answered.responses for one in found.partitions]
    assert told.acknowledge_error_code == Code.INVALID_REQUEST
