"""Random members that come, go, fall silent and come back: a group always settles."""

from __future__ import annotations

import random

import pytest
from tests.unit.broker.crowd import REBALANCE, SESSION, Client, Crowd

from penstock.broker.group import State
from penstock.broker.group_errors import (
    FencedInstanceError,
    GroupError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from penstock.broker.group_member import Joined, Synced


def label(instance_id: str | None, member_id: str) -> bytes:
    """A share that stays the same when another process takes a static member's place."""
    return (instance_id or member_id).encode()


class Process:
    """A client that does what real ones do: join, sync, send heartbeats, and obey the answers."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.alive = True
        self.wants: str = "join"
        self.share: tuple[int, bytes] | None = None

    def step(self) -> None:
        """Look at the answers, and do the next thing."""
        self._look()
        match self.wants:
            case "join":
                self.wants = "joined"
                self.client.join()
            case "sync":
                self.wants = "synced"
                joined = self.client.joined
                shares = {m.member_id: label(m.instance_id, m.member_id) for m in joined.members}
                self.client.sync(shares, generation=joined.generation)
            case "beat":
                self._obey(self.client.beat())

    def _look(self) -> None:
        client = self.client
        if self.wants == "joined" and client.joins:
            joined = client.joins[-1]
            client.joins = [joined]
            if isinstance(joined, Joined):
                self.wants = "sync"
            else:
                client.joins = []
                self._obey(joined)
        elif self.wants == "synced" and client.syncs:
            synced = client.syncs.pop()
            client.syncs.clear()
            if isinstance(synced, Synced):
                self.wants = "beat"
                self.share = (client.joined.generation, synced.assignment)
            else:
                self._obey(synced)

    def _obey(self, error: GroupError | None) -> None:
        if error is None:
            return
        if isinstance(error, FencedInstanceError):
            self.alive = False
            return
        assert isinstance(
            error, UnknownMemberError | IllegalGenerationError | RebalanceInProgressError
        ), error
        if isinstance(error, UnknownMemberError):
            self.client.id = ""
        self.share = None
        self.client.joins = []
        self.wants = "join"


def check(crowd: Crowd) -> None:
    """What must hold at any time."""
    group = crowd.group
    ids = set(group.members)
    assert all(member.id == member_id for member_id, member in group.members.items())
    assert set(group._static.values()) <= ids
    assert group._absent <= ids
    assert group._unsynced <= ids
    assert (group.leader_id in ids) if ids else group.leader_id is None
    if group.state is State.EMPTY:
        assert not ids
    if group.state in (State.STABLE, State.COMPLETING):
        assert all(member.answer_join is None for member in group.members.values())
    if group.state is State.STABLE:
        assert all(member.answer_sync is None for member in group.members.values())
    for name, count in group._support.items():
        known = sum(any(p.name == name for p in m.protocols) for m in group.members.values())
        assert count == known


def live(crowd: Crowd, rng: random.Random) -> list[Process]:
    """A while of coming and going; those that are left."""
    processes: list[Process] = []
    for number in range(400):
        action = rng.random()
        living = [process for process in processes if process.alive]
        if action < 0.05 and len(living) < 12:
            instance = f"i{rng.randrange(4)}" if rng.random() < 0.4 else None
            processes.append(Process(crowd.client(f"c{number}", instance_id=instance)))
        elif action < 0.07 and living:
            rng.choice(living).alive = False  # it dies without a word
        elif action < 0.09 and living:
            process = rng.choice(living)
            process.client.leave()
            process.alive = False
        elif living:
            rng.choice(living).step()
        check(crowd)
        if rng.random() < 0.3:
            crowd.wait(rng.choice([0.0, 0.2, 1.0, 3.0]))
            check(crowd)
    return [process for process in processes if process.alive]


@pytest.mark.parametrize("seed", range(40))
def test_a_group_settles(crowd: Crowd, seed: int) -> None:
    left = live(crowd, random.Random(seed))
    for _ in range(round((SESSION + REBALANCE) * 3)):
        left = [process for process in left if process.alive]
        for process in left:
            process.step()
        crowd.wait(1.0)
        check(crowd)
    group = crowd.group
    left = [process for process in left if process.alive]
    assert {process.client.id for process in left} == set(group.members)
    if not left:
        assert (group.state, crowd.timers.waiting) == (State.EMPTY, [])
        return
    assert group.state is State.STABLE
    assert {process.share for process in left} == {
        (group.generation, label(process.client.instance_id, process.client.id)) for process in left
    }
