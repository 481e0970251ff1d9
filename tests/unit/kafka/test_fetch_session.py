"""Fetch sessions stay within their limits; one that is no longer used gives way."""

from __future__ import annotations

from random import Random

import pytest

from penstock.kafka.fetch_session import FetchSession, FetchSessions
from penstock.limits import (
    FETCH_SESSION_KEPT_SECONDS,
    FETCH_SESSION_PARTITIONS_MAX,
    TOPIC_NAME_CHARS_MAX,
)
from penstock.testing.clock import ManualClock
from penstock.wire.requests import FetchPartition, PartitionKey, TopicKey

MOST = FETCH_SESSION_PARTITIONS_MAX


def keys(*numbers: int, topic: str = "a") -> list[PartitionKey]:
    return [PartitionKey(TopicKey(topic, None), number) for number in numbers]


def wanted(*numbers: int, topic: str = "a") -> dict[PartitionKey, FetchPartition]:
    return {key: FetchPartition(0, 1, -1) for key in keys(*numbers, topic=topic)}


def opened(sessions: FetchSessions, *numbers: int) -> FetchSession:
    session = sessions.open(wanted(*numbers))
    assert session is not None
    return session


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(clock: ManualClock) -> FetchSessions:
    return FetchSessions(Random(0), clock, limit=3, partitions_limit=MOST + 10)


def test_one_that_is_no_longer_used_gives_way(sessions: FetchSessions, clock: ManualClock) -> None:
    first, second, third = (opened(sessions, 0, 1) for _ in range(3))
    clock.advance(FETCH_SESSION_KEPT_SECONDS)
    assert sessions.get(first.id) is first
    fourth = opened(sessions, 0)
    assert sessions.get(second.id) is None
    assert [sessions.get(one.id) for one in (first, third, fourth)] == [first, third, fourth]
    assert (len(sessions), sessions.partitions) == (3, 5)


def test_one_too_many_takes_none_from_those_who_use_theirs(
    sessions: FetchSessions, clock: ManualClock
) -> None:
    used = [opened(sessions, 0, 1) for _ in range(3)]
    for _ in range(5):
        clock.advance(FETCH_SESSION_KEPT_SECONDS / 2)
        assert sessions.open(wanted(0)) is None
        assert [sessions.get(one.id) for one in used] == used
    sessions.close(used[0].id)
    assert sessions.open(wanted(0)) is not None


def test_a_topic_of_the_largest_kind_has_a_session(sessions: FetchSessions) -> None:
    assert len(opened(sessions, *range(MOST)).partitions) == MOST
    assert sessions.open(wanted(*range(MOST + 1))) is None


def test_one_that_would_grow_too_large_ends(sessions: FetchSessions) -> None:
    other = opened(sessions, 0)
    session = opened(sessions, *range(MOST - 1))
    assert sessions.update(session, wanted(0, MOST), [])
    assert not sessions.update(session, wanted(0, MOST + 1), [])
    assert len(session.partitions) == MOST, "a fetch that still waits for them has no more to do"
    assert sessions.get(session.id) is None
    assert sessions.get(other.id) is other
    assert sessions.partitions == 1


def test_a_full_one_may_exchange_its_partitions(sessions: FetchSessions) -> None:
    session = opened(sessions, *range(MOST))
    assert sessions.update(session, wanted(MOST, MOST + 1), keys(0, 1))
    assert len(session.partitions) == sessions.partitions == MOST
    assert not sessions.update(session, wanted(0, 1), keys(2)), "one goes, and two come"


def test_many_partitions_push_out_what_is_no_longer_used(
    sessions: FetchSessions, clock: ManualClock
) -> None:
    first, second = opened(sessions, *range(8)), opened(sessions, *range(8))
    assert sessions.open(wanted(*range(MOST - 5))) is None
    clock.advance(FETCH_SESSION_KEPT_SECONDS)
    assert sessions.get(second.id) is second
    third = opened(sessions, *range(MOST - 5))
    assert sessions.get(first.id) is None
    assert sessions.partitions == MOST + 3
    assert sessions.update(third, wanted(0, 1, 2, *range(MOST - 5, MOST)), [])
    assert sessions.get(second.id) is second, "three of them it had already"
    assert sessions.partitions == MOST + 8
    assert not sessions.update(second, wanted(8, 9, 10), [])
    assert sessions.get(second.id) is None, "the one that grows ends, not one in use"
    assert sessions.get(third.id) is third
    assert sessions.partitions == MOST


def test_what_is_closed_or_forgotten_is_not_counted(sessions: FetchSessions) -> None:
    session = opened(sessions, 0, 1, 2)
    assert sessions.update(session, {}, keys(1, 7))
    assert sessions.partitions == 2
    for _ in range(2):
        sessions.close(session.id)
        assert (len(sessions), sessions.partitions) == (0, 0)


def test_names_that_no_topic_has_are_not_kept(sessions: FetchSessions) -> None:
    longest = "x" * TOPIC_NAME_CHARS_MAX
    session = sessions.open(wanted(0, topic=longest))
    assert session is not None
    assert sessions.open(wanted(0, topic=longest + "x")) is None
    assert not sessions.update(session, wanted(0, topic=longest + "x"), [])
    assert len(sessions) == 0
