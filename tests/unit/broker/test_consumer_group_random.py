"""Random members that come, go, fall silent, are slow and lose answers: no partition has two owners."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tests.unit.broker.fleet import REBALANCE, Consumer, Fleet

from penstock.broker.consumer_group import ConsumerGroupState
from penstock.broker.group_errors import (
    FencedInstanceError,
    UnknownMemberError,
    UnreleasedInstanceError,
)
from penstock.broker.reconciliation import MemberState
from penstock.limits import CONSUMER_SESSION_SECONDS
from penstock.log.positions import PartitionId

NAMES = ("one", "two", "three", "four")


def check(fleet: Fleet, consumers: list[Consumer]) -> None:
    """What must hold at any time."""
    group = fleet.group
    assert all(member.id == member_id for member_id, member in group.members.items())
    assert set(group._static.values()) <= set(group.members)
    held = [(p, m.id) for m in group.members.values() for p in m.held]
    assert len({partition for partition, _ in held}) == len(held), "two owners"
    assert dict(held) == group._owners
    for member in group.members.values():
        assert not member.current.assigned & member.current.revoking
        assert bool(member.current.revoking) == (member.current.state is MemberState.UNREVOKED)
        assert member.current.epoch <= group.target_epoch <= group.epoch
    # What processes really use, of those that the group still counts on.
    used: dict[PartitionId, str] = {}
    for consumer in consumers:
        if consumer.id in group.members:
            for partition in consumer.owned:
                assert used.setdefault(partition, consumer.id) == consumer.id, "used twice"


def act(fleet: Fleet, consumer: Consumer, rng: random.Random) -> bool:
    """Something a process does; whether it is still there."""
    choice = rng.random()
    try:
        if choice < 0.03:
            return False  # it dies without a word
        if choice < 0.06 and consumer.epoch > 0:
            with suppress(UnknownMemberError):
                consumer.pause() if consumer.instance_id else consumer.leave()
            return False
        if choice < 0.10:
            consumer.topics = frozenset(rng.sample(NAMES, rng.randrange(1, 4)))
            consumer.hear(topics=consumer.topics)
        elif choice < 0.25 and consumer.epoch > 0:
            consumer.lose()
        elif choice < 0.45:
            consumer.hear()  # it learns of a change and takes its time
        elif choice < 0.60:
            # What it lets go of it has let go of; what is new it begins with after it has said so.
            consumer.owned &= consumer.told
        else:
            consumer.step()
    except (UnreleasedInstanceError, FencedInstanceError):
        return False
    return True


def change_topics(fleet: Fleet, rng: random.Random) -> None:
    name = rng.choice(NAMES)
    shape = fleet.topics.get(name)
    if shape is not None and rng.random() < 0.3:
        fleet.topics.remove(name)
    else:
        fleet.topic(name, (shape.partitions if shape else 0) + rng.randrange(1, 4))


def live(fleet: Fleet, rng: random.Random) -> list[Consumer]:
    """A while of coming and going; those that are left."""
    consumers: list[Consumer] = []
    for number in range(500):
        choice = rng.random()
        if choice < 0.06 and len(consumers) < 12:
            topics = rng.sample(NAMES, rng.randrange(1, 5))
            instance = f"i{rng.randrange(3)}" if rng.random() < 0.3 else None
            assignor = rng.choice(["uniform", "range", None])
            consumers.append(
                fleet.consumer(f"c{number}", *topics, instance_id=instance, assignor=assignor)
            )
        elif choice < 0.09:
            change_topics(fleet, rng)
        elif consumers:
            consumer = rng.choice(consumers)
            if not act(fleet, consumer, rng):
                consumers.remove(consumer)
        if rng.random() < 0.3:
            fleet.wait(rng.choice([0.0, 0.5, 3.0, 10.0]))
        check(fleet, consumers)
    return consumers


@pytest.mark.parametrize("seed", range(60))
def test_a_group_settles(seed: int) -> None:
    rng = random.Random(seed)
    fleet = Fleet()
    left = live(fleet, rng)
    for _ in range(round(REBALANCE + CONSUMER_SESSION_SECONDS) + 10):
        for consumer in list(left):
            try:
                consumer.step()
            except (UnreleasedInstanceError, FencedInstanceError):
                left.remove(consumer)
        fleet.wait(1.0)
        check(fleet, left)
    group = fleet.group
    assert {consumer.id for consumer in left} == set(group.members)
    if not left:
        assert (group.state, fleet.timers.waiting) == (ConsumerGroupState.EMPTY, [])
        return
    assert group.state is ConsumerGroupState.STABLE
    shapes = {
        name: shape
        for consumer in left
        for name in consumer.topics
        if (shape := fleet.topics.get(name)) is not None
    }
    owned = frozenset[PartitionId]().union(*(consumer.owned for consumer in left))
    assert owned == {
        PartitionId(shape.id, n) for shape in shapes.values() for n in range(shape.partitions)
    }
    assert sum(len(consumer.owned) for consumer in left) == len(owned)
