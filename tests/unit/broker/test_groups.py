"""A group's state machine: every transition, and who is told what."""

from __future__ import annotations

import pytest
from tests.unit.broker.crowd import RANGE, REBALANCE, SESSION, Client, Crowd

from penstock.broker.group import _NEXT, State
from penstock.broker.group_errors import (
    GroupError,
    GroupFullError,
    GroupsStoppingError,
    IllegalGenerationError,
    InconsistentProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from penstock.broker.group_member import Identity, Joined, Protocol, Synced

STICKY = Protocol("sticky", b"sticky subscription")
NOBODY = Identity("nobody")


def two(crowd: Crowd) -> tuple[Client, Client]:
    """A stable group of a leader and a follower."""
    first, second = crowd.client("a"), crowd.client("b")
    crowd.settle(first, second)
    assert first.leads
    return first, second


class TestFirstMembers:
    def test_a_new_member_gets_an_id_first(self, crowd: Crowd) -> None:
        client = crowd.client("app")
        client.ask()
        (told,) = client.joins
        assert isinstance(told, MemberIdRequiredError)
        assert told.member_id.startswith("app-")
        assert (crowd.group.state, crowd.group.pending) == (State.EMPTY, 1)

    def test_old_clients_need_no_id(self, crowd: Crowd) -> None:
        client = crowd.client("app", must_know_id=False)
        client.ask()
        crowd.wait()
        assert client.joined.member_id.startswith("app-")

    def test_one_member_starts_at_once(self, crowd: Crowd) -> None:
        client = crowd.client("app")
        client.join()
        assert (client.joins, crowd.group.state) == ([], State.PREPARING)
        crowd.wait(0.0)
        assert crowd.group.state is State.COMPLETING
        joined = client.joined
        assert (joined.generation, joined.protocol) == (1, "range")
        assert joined.protocol_type == "consumer"
        assert joined.leader_id == joined.member_id == client.id
        (member,) = joined.members
        assert member == (client.id, None, b"subscription")

    def test_members_that_come_together_start_together(self, crowd: Crowd) -> None:
        clients = [crowd.client(name) for name in "abc"]
        for client in clients:
            client.join()
        crowd.wait(0.0)
        assert [client.joined.generation for client in clients] == [1, 1, 1]
        assert [len(client.joined.members) for client in clients] == [3, 0, 0]

    def test_those_that_have_asked_for_an_id_are_waited_for(self, crowd: Crowd) -> None:
        first, second = crowd.client("a"), crowd.client("b")
        second.ask()
        first.join()
        crowd.wait(0.05)
        assert not first.joins
        second.ask()
        crowd.wait(0.0)
        assert first.joined.generation == second.joined.generation == 1

    def test_but_not_for_long(self, crowd: Crowd) -> None:
        first, second = crowd.client("a"), crowd.client("b")
        second.ask()
        first.join()
        crowd.wait(0.1)
        assert first.joined.generation == 1
        assert crowd.group.pending == 1
        crowd.pass_time(SESSION, [first])
        assert crowd.group.pending == 0

    def test_all_that_may_be_needed_is_told(self, crowd: Crowd) -> None:
        client = crowd.client("app")
        crowd.settle(client)
        assert crowd.occupied == [State.PREPARING]
        client.leave()
        assert crowd.occupied == [State.PREPARING, State.EMPTY]


class TestProtocols:
    def test_the_vote(self, crowd: Crowd) -> None:
        range_ = RANGE[0]
        wishes = [(STICKY, range_), (range_, STICKY), (STICKY, range_)]
        clients = [crowd.client(str(n), protocols=p) for n, p in enumerate(wishes)]
        for client in clients:
            client.join()
        crowd.wait()
        assert {client.joined.protocol for client in clients} == {"sticky"}
        assert clients[0].joined.members[1].metadata == STICKY.metadata

    def test_only_what_all_know_is_a_candidate(self, crowd: Crowd) -> None:
        range_ = RANGE[0]
        wishes = [(STICKY, range_), (STICKY, range_), (range_,)]
        clients = [crowd.client(str(n), protocols=p) for n, p in enumerate(wishes)]
        for client in clients:
            client.join()
        crowd.wait()
        assert {client.joined.protocol for client in clients} == {"range"}

    def test_the_type_is_opaque(self, crowd: Crowd) -> None:
        worker = crowd.client(
            "w", protocol_type="connect", protocols=(Protocol("compatible", b""),)
        )
        crowd.settle(worker)
        assert worker.joined.protocol_type == "connect"

    @pytest.mark.parametrize(
        ("protocol_type", "protocols"),
        [("connect", RANGE), ("consumer", (STICKY,)), ("", RANGE), ("consumer", ())],
    )
    def test_strangers_are_refused(
        self, crowd: Crowd, protocol_type: str, protocols: tuple[Protocol, ...]
    ) -> None:
        crowd.settle(crowd.client("a"))
        stranger = crowd.client("x", protocol_type=protocol_type, protocols=protocols)
        stranger.ask()
        assert isinstance(stranger.joins[0], InconsistentProtocolError)
        assert crowd.group.state is State.STABLE

    def test_an_empty_group_takes_any_type(self, crowd: Crowd) -> None:
        client = crowd.client("a")
        crowd.settle(client)
        client.leave()
        crowd.settle(crowd.client("w", protocol_type="connect"))
        assert crowd.group.protocol_type == "connect"


class TestSync:
    def test_followers_wait_for_the_leader(self, crowd: Crowd) -> None:
        first, second = crowd.client("a"), crowd.client("b")
        for client in (first, second):
            client.join()
        crowd.wait()
        second.sync()
        assert (second.syncs, crowd.group.state) == ([], State.COMPLETING)
        first.sync({first.id: b"1", second.id: b"2"})
        assert crowd.group.state is State.STABLE
        assert first.syncs == [Synced("consumer", "range", b"1")]
        assert second.syncs == [Synced("consumer", "range", b"2")]

    def test_late_followers_are_answered_at_once(self, crowd: Crowd) -> None:
        first, second = crowd.client("a"), crowd.client("b")
        for client in (first, second):
            client.join()
        crowd.wait()
        first.sync({second.id: b"2"})
        second.sync()
        assert first.syncs == [Synced("consumer", "range", b"")]
        assert second.syncs == [Synced("consumer", "range", b"2")]

    def test_a_wrong_protocol(self, crowd: Crowd) -> None:
        first, _ = two(crowd)
        for protocol in [("connect", "range"), ("consumer", "sticky")]:
            first.sync(protocol=protocol)
            assert isinstance(first.syncs[-1], InconsistentProtocolError)
        first.sync(protocol=("consumer", "range"))
        assert isinstance(first.syncs[-1], Synced)

    def test_another_generation(self, crowd: Crowd) -> None:
        first, _ = two(crowd)
        first.sync(generation=99)
        assert isinstance(first.syncs[-1], IllegalGenerationError)

    def test_while_members_are_gathered(self, crowd: Crowd) -> None:
        first, _ = two(crowd)
        crowd.client("c").join()
        first.sync()
        assert isinstance(first.syncs[-1], RebalanceInProgressError)

    def test_a_stranger(self, crowd: Crowd) -> None:
        two(crowd)
        stranger = crowd.client("x", id="x-1")
        stranger.sync()
        assert isinstance(stranger.syncs[-1], UnknownMemberError)

    def test_those_that_never_sync_are_put_out(self, crowd: Crowd) -> None:
        first, second = crowd.client("a"), crowd.client("b")
        for client in (first, second):
            client.join()
        crowd.wait()
        first.sync({})
        crowd.pass_time(REBALANCE, [first, second])
        assert isinstance(second.beat(), UnknownMemberError)
        assert isinstance(first.beat(), RebalanceInProgressError)

    def test_waiting_syncs_end_with_a_rebalance(self, crowd: Crowd) -> None:
        first, second = crowd.client("a"), crowd.client("b")
        for client in (first, second):
            client.join()
        crowd.wait()
        second.sync()
        crowd.client("c").join()
        assert isinstance(second.syncs[-1], RebalanceInProgressError)
        assert crowd.group.state is State.PREPARING

    def test_a_second_try_replaces_the_first(self, crowd: Crowd) -> None:
        first, second = crowd.client("a"), crowd.client("b")
        for client in (first, second):
            client.join()
        crowd.wait()
        second.sync()
        second.sync()
        first.sync({second.id: b"2"})
        assert isinstance(second.syncs[0], RebalanceInProgressError)
        assert second.syncs[1:] == [Synced("consumer", "range", b"2")]


class TestRebalance:
    def test_a_new_member_gathers_the_others(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        third = crowd.client("c")
        third.join()
        assert crowd.group.state is State.PREPARING
        for client in (first, second):
            assert isinstance(client.beat(), RebalanceInProgressError)
            assert not third.joins
            client.ask()
        assert third.joined.generation == 2
        assert first.leads
        assert len(first.joined.members) == 3
        crowd.share(first, second, third)

    def test_members_that_do_not_come_are_left_behind(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        third = crowd.client("c")
        third.join()
        second.ask()
        crowd.pass_time(REBALANCE, [first])  # alive, but it never joins again
        assert third.joined.generation == 2
        assert {second.leads, third.leads} == {True, False}
        assert isinstance(first.beat(), UnknownMemberError)

    def test_pending_members_are_waited_for(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        third, fourth = crowd.client("c"), crowd.client("d")
        fourth.ask()
        third.join()
        first.ask()
        second.ask()
        assert not third.joins
        fourth.ask()
        assert third.joined.generation == fourth.joined.generation == 2

    def test_pending_members_that_leave_or_stay_away_are_not(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        third, fourth, fifth = (crowd.client(name) for name in "cde")
        fourth.ask()
        fifth.ask()
        third.join()
        first.ask()
        second.ask()
        assert fourth.leave() is None
        assert not third.joins
        crowd.wait(SESSION)
        assert third.joined.generation == 2

    def test_a_follower_without_changes_keeps_its_share(self, crowd: Crowd) -> None:
        _, second = two(crowd)
        second.ask()
        assert crowd.group.state is State.STABLE
        assert second.joined.generation == 1
        second.sync()
        assert second.syncs[-1] == Synced("consumer", "range", b"b")

    def test_a_follower_with_changes_rebalances(self, crowd: Crowd) -> None:
        _, second = two(crowd)
        second.protocols = (Protocol("range", b"other topics"),)
        second.ask()
        assert crowd.group.state is State.PREPARING

    def test_a_leader_that_joins_again_rebalances(self, crowd: Crowd) -> None:
        first, _ = two(crowd)
        first.ask()
        assert crowd.group.state is State.PREPARING

    def test_a_lost_answer_is_repeated(self, crowd: Crowd) -> None:
        client = crowd.client("a")
        client.join()
        crowd.wait()
        client.ask()
        assert client.joins[0] == client.joins[1]
        assert crowd.group.state is State.COMPLETING
        client.protocols = (Protocol("range", b"other topics"),)
        client.ask()
        assert client.joined.generation == 2

    def test_a_second_join_replaces_the_first(self, crowd: Crowd) -> None:
        _, second = two(crowd)
        third = crowd.client("c")
        third.join()
        second.ask()
        second.ask()
        assert isinstance(second.joins[-1], RebalanceInProgressError)

    def test_the_leader_goes(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        assert first.leave() is None
        assert isinstance(second.beat(), RebalanceInProgressError)
        second.ask()
        assert second.leads
        crowd.share(second)

    def test_the_last_one_goes_and_another_comes(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        crowd.group.leave([first.who, second.who])
        assert (crowd.group.state, crowd.group.generation) == (State.EMPTY, 2)
        again = crowd.client("c")
        crowd.settle(again)
        assert again.joined.generation == 3

    def test_one_that_waits_is_put_out(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        third = crowd.client("c")
        third.join()
        crowd.group.leave([third.who, first.who])
        assert isinstance(third.joins[-1], UnknownMemberError)
        second.ask()
        assert second.joined.generation == 2

    def test_everybody_goes_while_being_gathered(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        first.ask()
        crowd.group.leave([first.who, second.who])
        assert crowd.group.state is State.EMPTY

    def test_the_group_is_full(self, crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.broker.group.GROUP_MEMBERS_MAX", 2)
        first, _ = two(crowd)
        third = crowd.client("c")
        third.ask()
        assert isinstance(third.joins[-1], GroupFullError)
        first.leave()
        third.ask()
        assert isinstance(third.joins[-1], MemberIdRequiredError)


class TestSessions:
    def test_a_silent_member_is_put_out(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        crowd.pass_time(SESSION, [first])
        assert isinstance(second.beat(), UnknownMemberError)
        first.ask()
        assert (first.joined.generation, len(first.joined.members)) == (2, 1)

    def test_heartbeats_keep_a_session(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        crowd.pass_time(100, [first, second])
        assert crowd.group.generation == 1
        assert first.beat() is second.beat() is None

    def test_commits_keep_a_session(self, crowd: Crowd) -> None:
        client = crowd.client("a")
        crowd.settle(client)
        for _ in range(20):
            crowd.wait(SESSION / 2)
            crowd.group.check_commit(client.who, 1)
        assert client.beat() is None

    def test_nobody_is_put_out_while_waiting_for_us(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        third = crowd.client("c")
        third.join()
        second.ask()
        crowd.pass_time(SESSION + 1, [first])
        first.ask()
        assert second.joined.generation == 2
        second.sync()
        crowd.pass_time(SESSION + 1, [first, third])
        assert len(second.syncs) == 1  # of the generation before
        first.sync({second.id: b"2"})
        assert second.syncs[-1] == Synced("consumer", "range", b"2")

    def test_a_new_member_that_waits_too_long_is_told_to_come_again(self, crowd: Crowd) -> None:
        first = crowd.client("a")
        crowd.settle(first)
        first_member = crowd.group.members[first.id]
        first_member.rebalance_timeout = 1000.0
        second = crowd.client("b")
        second.join()
        crowd.pass_time(300, [first])
        assert isinstance(second.joins[-1], UnknownMemberError)

    def test_the_leader_dies_before_it_has_shared(self, crowd: Crowd) -> None:
        first, second = crowd.client("a"), crowd.client("b")
        for client in (first, second):
            client.join()
        crowd.wait()
        second.sync()
        crowd.wait(SESSION)
        assert isinstance(second.syncs[-1], RebalanceInProgressError)
        second.ask()
        assert second.leads

    def test_no_timer_is_left_behind(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        crowd.group.leave([first.who, second.who])
        assert crowd.timers.waiting == []
        crowd.client("c").ask()
        crowd.group.die()
        assert crowd.timers.waiting == []


class TestHeartbeat:
    def test_answers(self, crowd: Crowd) -> None:
        first, second = crowd.client("a"), crowd.client("b")
        for client in (first, second):
            client.join()
        crowd.wait()
        assert second.beat() is None  # already while the leader shares out the work
        crowd.share(first, second)
        assert second.beat() is None
        assert isinstance(second.beat(generation=7), IllegalGenerationError)
        with pytest.raises(UnknownMemberError):
            crowd.group.heartbeat(NOBODY, 1)

    def test_of_nobody(self, crowd: Crowd) -> None:
        with pytest.raises(UnknownMemberError):
            crowd.group.heartbeat(NOBODY, 0)


class TestLeave:
    def test_strangers(self, crowd: Crowd) -> None:
        two(crowd)
        results = crowd.group.leave([NOBODY, Identity("", "nobody"), Identity("")])
        assert [type(result) for result in results] == [UnknownMemberError] * 3
        assert crowd.group.state is State.STABLE

    def test_a_batch_rebalances_once(self, crowd: Crowd) -> None:
        clients = [crowd.client(name) for name in "abcd"]
        crowd.settle(*clients)
        left = crowd.group.leave([clients[1].who, NOBODY, clients[2].who])
        assert [type(result) for result in left] == [type(None), UnknownMemberError, type(None)]
        clients[0].ask()
        clients[3].ask()
        assert clients[0].joined.generation == 2
        assert len(clients[0].joined.members) == 2


class TestCommits:
    """Who may commit when; Kafka's rules."""

    def refusal(self, crowd: Crowd, who: Identity, generation: int) -> type[GroupError] | None:
        try:
            crowd.group.check_commit(who, generation)
        except GroupError as error:
            return type(error)
        return None

    def test_empty(self, crowd: Crowd) -> None:
        assert self.refusal(crowd, Identity(""), -1) is None
        assert self.refusal(crowd, NOBODY, 1) is UnknownMemberError

    def test_stable(self, crowd: Crowd) -> None:
        first, _ = two(crowd)
        assert self.refusal(crowd, first.who, 1) is None
        assert self.refusal(crowd, first.who, 2) is IllegalGenerationError
        assert self.refusal(crowd, first.who, -1) is IllegalGenerationError
        assert self.refusal(crowd, NOBODY, 1) is UnknownMemberError
        assert self.refusal(crowd, Identity(""), -1) is UnknownMemberError

    def test_while_gathered_and_while_shared_out(self, crowd: Crowd) -> None:
        first, second = two(crowd)
        third = crowd.client("c")
        third.join()
        assert self.refusal(crowd, first.who, 1) is None  # the last chance before its share goes
        first.ask()
        second.ask()
        assert self.refusal(crowd, first.who, 2) is RebalanceInProgressError
        assert self.refusal(crowd, first.who, 1) is IllegalGenerationError


class TestEnd:
    def test_stop_lets_everybody_go(self, crowd: Crowd) -> None:
        first, _ = two(crowd)
        third, fourth = crowd.client("c"), crowd.client("d")
        third.join()
        first.ask()
        fourth.ask()
        crowd.group.stop()
        for client in (first, third):
            assert isinstance(client.joins[-1], GroupsStoppingError)
        assert crowd.timers.waiting == []

    def test_stop_answers_syncs(self, crowd: Crowd) -> None:
        first, second = crowd.client("a"), crowd.client("b")
        for client in (first, second):
            client.join()
        crowd.wait()
        second.sync()
        crowd.group.stop()
        assert isinstance(second.syncs[-1], GroupsStoppingError)

    def test_only_an_empty_group_dies(self, crowd: Crowd) -> None:
        crowd.settle(crowd.client("a"))
        with pytest.raises(AssertionError):
            crowd.group.die()

    def test_the_table(self) -> None:
        """Every state can be left but the last."""
        assert set(_NEXT) == set(State)
        assert [state for state, after in _NEXT.items() if not after] == [State.DEAD]


def test_joined_is_not_shared_with_followers(crowd: Crowd) -> None:
    first, second = two(crowd)
    assert isinstance(second.joins[-1], Joined)
    assert second.joined.members == ()
    assert second.joined.leader_id == first.id
