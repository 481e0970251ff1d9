"""Static members (KIP-345): a process that comes back in time takes its old place."""

from __future__ import annotations

from tests.unit.broker.crowd import REBALANCE, SESSION, Client, Crowd

from penstock.broker.group import State
from penstock.broker.group_errors import (
    FencedInstanceError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from penstock.broker.group_member import Identity, Protocol, Synced


def two(crowd: Crowd) -> tuple[Client, Client]:
    """A stable group of two static members, of which the first leads."""
    first, second = crowd.client("a", instance_id="one"), crowd.client("b", instance_id="two")
    crowd.settle(first, second)
    assert first.leads
    return first, second


def restarted(client: Client) -> Client:
    """The same instance in a new process."""
    return client.crowd.client(client.name, instance_id=client.instance_id)


def test_no_round_trip_for_an_id(crowd: Crowd) -> None:
    client = crowd.client("a", instance_id="one")
    client.ask()
    crowd.wait()
    assert client.joined.member_id.startswith("one-")
    assert client.joined.members[0].instance_id == "one"


def test_a_follower_comes_back_to_its_share(crowd: Crowd) -> None:
    first, second = two(crowd)
    again = restarted(second)
    again.join()
    assert crowd.group.state is State.STABLE
    assert (again.joined.generation, again.joined.members) == (1, ())
    assert again.id != second.id
    again.sync()
    assert again.syncs == [Synced("consumer", "range", b"b")]
    assert first.beat() is None


def test_the_old_process_is_fenced(crowd: Crowd) -> None:
    _, second = two(crowd)
    restarted(second).join()
    assert isinstance(second.beat(), FencedInstanceError)
    second.sync()
    assert isinstance(second.syncs[-1], FencedInstanceError)
    second.ask()
    assert isinstance(second.joins[-1], FencedInstanceError)
    assert isinstance(second.leave(), FencedInstanceError)


def test_a_leader_comes_back_and_skips_the_assignment(crowd: Crowd) -> None:
    first, _ = two(crowd)
    again = restarted(first)
    again.join()
    assert again.leads
    assert again.joined.skip_assignment
    assert len(again.joined.members) == 2
    again.sync()
    assert again.syncs == [Synced("consumer", "range", b"a")]


def test_an_old_leader_is_told_that_another_leads(crowd: Crowd) -> None:
    first, _ = two(crowd)
    again = restarted(first)
    again.may_skip_assignment = False
    again.join()
    assert again.joined.leader_id == first.id != again.id
    assert again.joined.members == ()


def test_a_comeback_that_changes_the_protocol_rebalances(crowd: Crowd) -> None:
    range_, sticky = Protocol("range", b""), Protocol("sticky", b"")
    both = (range_, sticky)
    first = crowd.client("a", instance_id="one", protocols=both)
    second = crowd.client("b", instance_id="two", protocols=both)
    crowd.settle(first, second)
    assert first.joined.protocol == "range"
    again = restarted(second)
    again.protocols = (sticky,)
    again.join()
    assert crowd.group.state is State.PREPARING
    first.ask()
    assert again.joined.protocol == "sticky"


def test_a_comeback_while_the_work_is_shared_out(crowd: Crowd) -> None:
    first, second = crowd.client("a", instance_id="one"), crowd.client("b", instance_id="two")
    first.join()
    second.join()
    crowd.wait()
    second.sync()
    again = restarted(second)
    again.join()
    assert isinstance(second.syncs[-1], FencedInstanceError)
    assert crowd.group.state is State.PREPARING
    first.ask()
    crowd.share(first, again)


def test_a_comeback_while_members_are_gathered(crowd: Crowd) -> None:
    first, second = two(crowd)
    third = crowd.client("c")
    third.join()
    second.ask()
    again = restarted(second)
    again.join()
    assert isinstance(second.joins[-1], FencedInstanceError)
    assert not again.joins
    first.ask()
    assert again.joined.generation == third.joined.generation == 2


def test_a_comeback_by_a_member_that_is_missed(crowd: Crowd) -> None:
    first, second = two(crowd)
    crowd.client("c").join()
    first.ask()
    assert len(first.joins) == 1
    restarted(second).join()
    assert first.joined.generation == 2


def test_absent_members_keep_their_place_until_their_session_ends(crowd: Crowd) -> None:
    first, second = two(crowd)
    for member in crowd.group.members.values():
        member.session_timeout = 2 * REBALANCE
    third = crowd.client("c")
    third.join()
    first.ask()
    crowd.wait(REBALANCE)
    assert first.joined.generation == 2
    assert len(first.joined.members) == 3
    crowd.share(first, third)
    assert isinstance(second.beat(), IllegalGenerationError)
    second.ask()
    assert second.joined.generation == 2


def test_without_anybody_the_next_generation_waits(crowd: Crowd) -> None:
    """Only absent static members: nobody could lead."""
    first, second = two(crowd)
    for member in crowd.group.members.values():
        member.session_timeout = 10 * REBALANCE
    crowd.group.leave([first.who])
    crowd.wait(REBALANCE * 2)
    assert (crowd.group.state, crowd.group.generation) == (State.PREPARING, 1)
    second.ask()
    assert second.joined.generation == 2


def test_sessions_end_for_static_members_too(crowd: Crowd) -> None:
    first, second = two(crowd)
    crowd.pass_time(SESSION, [first])
    assert isinstance(second.beat(), UnknownMemberError)
    assert isinstance(first.beat(), RebalanceInProgressError)


def test_an_administrator_puts_one_out_by_name(crowd: Crowd) -> None:
    first, second = two(crowd)
    assert crowd.group.leave([Identity("", "two")]) == [None]
    assert isinstance(second.beat(), UnknownMemberError)
    assert isinstance(first.beat(), RebalanceInProgressError)


def test_an_unknown_instance(crowd: Crowd) -> None:
    first, _ = two(crowd)
    try:
        crowd.group.heartbeat(Identity(first.id, "three"), 1)
    except UnknownMemberError:
        return
    raise AssertionError("not refused")
