"""Groups to which the server shares out the work, with time moved by hand."""

from __future__ import annotations

from functools import partial

import pytest
from tests.unit.broker.fleet import REBALANCE, Consumer, Fleet

from penstock.broker.assignors import NOTHING
from penstock.broker.consumer_group import ConsumerGroupState
from penstock.broker.group_errors import (
    FencedInstanceError,
    FencedMemberEpochError,
    InvalidHeartbeatError,
    InvalidRegexError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
)
from penstock.limits import CONSUMER_SESSION_SECONDS, TOPIC_REGEX_CHARS_MAX


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.topic()
    return fleet


def state(fleet: Fleet) -> ConsumerGroupState:
    return fleet.group.state


def pair(fleet: Fleet) -> tuple[Consumer, Consumer]:
    """Two members with two partitions each."""
    first, second = fleet.consumer("a"), fleet.consumer("b")
    fleet.settle(first, second)
    assert (len(first.owned), len(second.owned)) == (2, 2)
    assert fleet.group.state is ConsumerGroupState.STABLE
    return first, second


class TestOneMember:
    def test_gets_everything_at_once(self, fleet: Fleet) -> None:
        consumer = fleet.consumer("a")
        told = consumer.beat()
        assert (told.member_id, told.epoch) == ("a", 1)
        assert told.assigned is not None
        assert sorted(p.partition for p in told.assigned) == [0, 1, 2, 3]
        assert fleet.occupied == [False]

    def test_is_told_again_only_when_asked(self, fleet: Fleet) -> None:
        consumer = fleet.consumer("a")
        consumer.step()
        assert consumer.beat().assigned is None
        full = {"topics": consumer.topics, "rebalance_timeout_ms": 1, "owned": consumer.owned}
        assert consumer.beat(**full).assigned == consumer.owned

    def test_the_server_makes_an_id(self, fleet: Fleet) -> None:
        assert fleet.consumer("").beat().member_id

    def test_leaves(self, fleet: Fleet) -> None:
        consumer = fleet.consumer("a")
        consumer.step()
        consumer.leave()
        assert fleet.group.state is ConsumerGroupState.EMPTY
        assert (fleet.occupied, fleet.timers.waiting) == ([False, True], [])
        with pytest.raises(UnknownMemberError):
            consumer.beat(epoch=1)

    def test_whom_only_the_broker_before_a_restart_knew_is_fenced(self, fleet: Fleet) -> None:
        """Some clients join again after this answer only."""
        consumers = pair(fleet)
        fleet.group = Fleet().group
        for consumer in consumers:
            with pytest.raises(FencedMemberEpochError):
                consumer.beat()

    def test_falls_silent(self, fleet: Fleet) -> None:
        consumer = fleet.consumer("a")
        consumer.step()
        fleet.wait(CONSUMER_SESSION_SECONDS - 1)
        consumer.step()
        fleet.wait(CONSUMER_SESSION_SECONDS - 1)
        assert not fleet.group.is_empty
        fleet.wait(1.5)
        assert fleet.group.is_empty
        consumer.step()
        assert (len(consumer.errors), consumer.epoch) == (1, 0)
        consumer.step()
        assert consumer.partitions == [0, 1, 2, 3]


class TestHandingOver:
    def test_the_old_owner_first_lets_go(self, fleet: Fleet) -> None:
        first, second = fleet.consumer("a"), fleet.consumer("b")
        first.step()
        second.step()
        assert second.owned == NOTHING
        assert second.epoch == 2
        first.hear()  # it learns that it has to let go, and works on it
        assert (first.epoch, len(first.told), len(first.owned)) == (1, 2, 4)
        second.step()
        first.hear(owned=first.owned)  # it still has them
        second.step()
        assert (first.epoch, second.owned) == (1, NOTHING)
        assert state(fleet) is ConsumerGroupState.RECONCILING
        first.apply()
        first.step()
        assert first.epoch == 2
        second.step()
        assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]
        assert fleet.group.state is ConsumerGroupState.STABLE

    def test_who_does_not_let_go_in_time_is_out(self, fleet: Fleet) -> None:
        first, second = fleet.consumer("a"), fleet.consumer("b")
        first.step()
        second.step()
        first.hear()
        for _ in range(round(REBALANCE) + 1):
            fleet.wait(1.0)
            if not first.errors:
                first.hear(owned=first.owned)
            second.step()
        assert isinstance(first.errors[0], UnknownMemberError)
        assert second.partitions == [0, 1, 2, 3]

    def test_letting_go_in_time_is_enough(self, fleet: Fleet) -> None:
        first, second = pair(fleet)
        for _ in range(round(REBALANCE) * 2):
            fleet.wait(1.0)
            fleet.settle(first, second)
        assert not first.errors

    def test_what_is_given_back_meanwhile(self, fleet: Fleet) -> None:
        """The new member goes before the old one has let go: it gets everything back."""
        first, second = fleet.consumer("a"), fleet.consumer("b")
        first.step()
        second.step()
        first.hear()
        second.leave()
        first.hear()
        assert len(first.told) == 2
        first.apply()
        first.step()
        assert first.partitions == [0, 1, 2, 3]
        assert fleet.group.state is ConsumerGroupState.STABLE

    def test_who_leaves_lets_go(self, fleet: Fleet) -> None:
        first, second = pair(fleet)
        first.leave()
        assert fleet.group.state is ConsumerGroupState.ASSIGNING
        second.step()
        assert second.partitions == [0, 1, 2, 3]

    def test_who_joins_anew_has_let_go(self, fleet: Fleet) -> None:
        first, second = fleet.consumer("a"), fleet.consumer("b")
        first.step()
        second.step()
        first.hear()
        first.epoch, first.owned = 0, NOTHING  # its process starts again, with the same id
        first.step()
        second.step()
        assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]


class TestEpochs:
    def test_ahead(self, fleet: Fleet) -> None:
        first, _ = pair(fleet)
        with pytest.raises(FencedMemberEpochError):
            first.beat(epoch=first.epoch + 1)

    def test_behind(self, fleet: Fleet) -> None:
        first, second = pair(fleet)
        for owned in (None, first.owned | second.owned):
            with pytest.raises(FencedMemberEpochError):
                first.beat(epoch=first.epoch - 1, owned=owned)

    def test_a_lost_answer(self, fleet: Fleet) -> None:
        first, _ = pair(fleet)
        assert first.beat(epoch=first.epoch - 1, owned=first.owned).epoch == first.epoch

    def test_commits(self, fleet: Fleet) -> None:
        group = fleet.group
        group.check_commit("", -1, ())
        first, second = pair(fleet)
        group.check_commit("a", first.epoch, first.owned | second.owned)
        group.check_fetch("a", first.epoch)
        group.check_fetch(None, -1)
        for check in (partial(group.check_commit, partitions=second.owned), group.check_fetch):
            for epoch in (first.epoch - 1, first.epoch + 1, -1):
                with pytest.raises(StaleMemberEpochError):
                    check("a", epoch)
            with pytest.raises(UnknownMemberError):
                check("x", first.epoch)
        with pytest.raises(UnknownMemberError):
            group.check_commit("", -1, ())

    def test_a_commit_before_the_news_has_come(self, fleet: Fleet) -> None:
        """What a member has kept through a rebalance it may commit with the epoch it knows."""
        first, second = pair(fleet)
        kept, known = first.owned, first.epoch
        third = fleet.consumer("c")
        fleet.settle(first, second, third)
        assert known < first.epoch
        still = kept & first.owned
        assert still
        fleet.group.check_commit("a", known, still)
        for partitions in (kept | second.owned, second.owned, third.owned):
            with pytest.raises(StaleMemberEpochError):
                fleet.group.check_commit("a", known, partitions)
        with pytest.raises(StaleMemberEpochError):
            fleet.group.check_commit("c", first.epoch - 1, third.owned)


class TestStatic:
    def test_comes_back(self, fleet: Fleet) -> None:
        first, second = fleet.consumer("a", instance_id="one"), fleet.consumer("b")
        fleet.settle(first, second)
        share, epoch = first.owned, fleet.group.epoch
        first.pause()
        fleet.wait(CONSUMER_SESSION_SECONDS - 5)
        second.step()
        again = fleet.consumer("c", instance_id="one")
        again.step()
        assert (again.owned, again.epoch, fleet.group.epoch) == (share, epoch, epoch)
        with pytest.raises(FencedInstanceError):
            first.beat(epoch=epoch)
        assert fleet.group.state is ConsumerGroupState.STABLE

    def test_does_not_come_back(self, fleet: Fleet) -> None:
        first, second = fleet.consumer("a", instance_id="one"), fleet.consumer("b")
        fleet.settle(first, second)
        first.pause()
        assert fleet.group.state is ConsumerGroupState.RECONCILING
        for _ in range(round(CONSUMER_SESSION_SECONDS) + 1):
            fleet.wait(1.0)
            second.step()
        assert second.partitions == [0, 1, 2, 3]

    def test_what_it_had_to_give_up_is_free_when_it_pauses(self, fleet: Fleet) -> None:
        first, second = fleet.consumer("a", instance_id="one"), fleet.consumer("b")
        first.step()
        second.step()
        first.hear()
        first.pause()
        second.step()
        assert len(second.owned) == 2
        assert fleet.timers.waiting == [t for t in fleet.timers.waiting if t.due <= 45.0]

    def test_in_use(self, fleet: Fleet) -> None:
        first = fleet.consumer("a", instance_id="one")
        first.step()
        with pytest.raises(UnreleasedInstanceError):
            fleet.consumer("b", instance_id="one").beat()
        assert first.beat(epoch=first.epoch).epoch == first.epoch

    def test_the_same_process_joins_again(self, fleet: Fleet) -> None:
        """Its first answer was lost, or it was fenced: nobody else has the name."""
        first = fleet.consumer("a", instance_id="one")
        first.step()
        share, first.epoch, first.owned = first.owned, 0, NOTHING
        first.step()
        assert first.owned == share

    def test_leaves_for_good(self, fleet: Fleet) -> None:
        first = fleet.consumer("a", instance_id="one")
        first.step()
        first.leave()
        second = fleet.consumer("b", instance_id="one")
        second.step()
        assert second.partitions == [0, 1, 2, 3]


class TestTopics:
    def test_one_grows(self, fleet: Fleet) -> None:
        first, second = pair(fleet)
        fleet.topic("orders", 6)
        fleet.settle(first, second)
        assert sorted(first.partitions + second.partitions) == list(range(6))

    def test_one_comes_and_goes(self, fleet: Fleet) -> None:
        consumer = fleet.consumer("a", "orders", "bills")
        consumer.step()
        assert len(consumer.owned) == 4
        fleet.topic("bills", 2)
        fleet.settle(consumer)
        assert len(consumer.owned) == 6
        fleet.topics.remove("orders")
        fleet.settle(consumer)
        assert len(consumer.owned) == 2

    def test_one_is_made_anew(self, fleet: Fleet) -> None:
        consumer = fleet.consumer("a")
        consumer.step()
        fleet.topics.remove("orders")
        topic_id = fleet.topic("orders", 2)
        fleet.settle(consumer)
        assert {p.topic_id for p in consumer.owned} == {topic_id}

    def test_others_do_not_matter(self, fleet: Fleet) -> None:
        consumer = fleet.consumer("a")
        consumer.step()
        fleet.topic("bills")
        consumer.step()
        assert (consumer.epoch, fleet.group.epoch) == (1, 1)

    def test_a_pattern(self, fleet: Fleet) -> None:
        consumer = fleet.consumer("a", pattern="ord.*|bills")
        consumer.topics = frozenset()
        consumer.step()
        assert len(consumer.owned) == 4
        fleet.topic("bills", 1)
        fleet.topic("bills-2", 1)
        fleet.settle(consumer)
        assert len(consumer.owned) == 5
        consumer.hear(pattern="", topics=frozenset({"bills-2"}))
        fleet.settle(consumer)
        assert len(consumer.owned) == 1
        assert fleet.group.subscribed() == {"bills-2"}

    @pytest.mark.parametrize(
        "pattern", ["[", "(?=a)", "a" * (TOPIC_REGEX_CHARS_MAX + 1), "(.{0,500}|.{0,400}){2}"]
    )
    def test_a_bad_pattern(self, fleet: Fleet, pattern: str) -> None:
        with pytest.raises(InvalidRegexError):
            fleet.consumer("a", pattern=pattern).beat()
        assert fleet.group.is_empty

    def test_a_pattern_that_would_be_costly_to_backtrack(self, fleet: Fleet) -> None:
        """RE2 goes through a name once; another matcher would not come to the end of this one."""
        fleet.topic("a" * 200)
        fleet.topic("a" * 199 + "b")
        consumer = fleet.consumer("a", pattern="(a*)*(a|aa)*b")
        consumer.topics = frozenset()
        consumer.step()
        assert fleet.group.subscribed() == {"a" * 199 + "b"}


class TestAssignors:
    def test_most_votes_win(self, fleet: Fleet) -> None:
        assert fleet.group.assignor == "uniform"
        first = fleet.consumer("a", assignor="range")
        first.step()
        assert fleet.group.assignor == "range"
        for name in "bc":
            fleet.consumer(name, assignor="uniform").step()
        assert fleet.group.assignor == "uniform"

    def test_unknown(self, fleet: Fleet) -> None:
        with pytest.raises(UnsupportedAssignorError):
            fleet.consumer("a", assignor="best").beat()


@pytest.mark.parametrize(
    "fields",
    [
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"topics": None},
        {"epoch": -2},
        {"epoch": -3},
        {"instance_id": ""},
        {"rack_id": ""},
    ],
)
def test_nonsense(fleet: Fleet, fields: dict[str, object]) -> None:
    with pytest.raises(InvalidHeartbeatError):
        fleet.consumer("a").beat(**fields)


def test_a_group_that_stops_watches_nobody(fleet: Fleet) -> None:
    first = fleet.consumer("a")
    first.step()
    fleet.consumer("b").step()
    first.hear()
    fleet.group.stop()
    assert fleet.timers.waiting == []
