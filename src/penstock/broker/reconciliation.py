"""How a member gets from what it has to what it shall have, one heartbeat at a time.

    STABLE       it has its share of the target it has reached; there may be a newer one
    UNREVOKED    it has been told to let go of partitions, and has not said yet that it did
    UNRELEASED   it has reached the target, but others still hold some of its share

A member first lets go, then moves on to the target's epoch, and then gets what is free.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from penstock.broker.assignors import NOTHING, Share
from penstock.log.positions import PartitionId


class MemberState(Enum):
    """See the module."""

    STABLE = "stable"
    UNREVOKED = "unrevoked partitions"
    UNRELEASED = "unreleased partitions"


class Current(NamedTuple):
    """Where a member stands."""

    state: MemberState = MemberState.STABLE
    epoch: int = 0
    assigned: Share = NOTHING
    """What it may use."""
    revoking: Share = NOTHING
    """What it may still use until it says that it does not."""


class Goal(NamedTuple):
    """Where a member shall get to, and what is known on the way."""

    epoch: int
    share: Share
    owned: Share | None
    """What the member says it has; None if it did not say."""
    is_free: Callable[[PartitionId], bool]
    """Whether nobody else has a partition."""


def step(current: Current, goal: Goal) -> Current:
    """Where a member stands after this heartbeat."""
    return _STEPS[current.state](current, goal)


def _from_stable(current: Current, goal: Goal) -> Current:
    return current if current.epoch == goal.epoch else _advance(current, goal)


def _from_unrevoked(current: Current, goal: Goal) -> Current:
    if _still_has(current.revoking, goal):
        return current
    # The next epoch even if there is more to let go of: its commits with the old one are refused.
    return _advance(current._replace(epoch=current.epoch + 1, revoking=NOTHING), goal)


def _advance(current: Current, goal: Goal) -> Current:
    kept = current.assigned & goal.share
    given_up = current.assigned - kept
    if given_up and _still_has(given_up, goal):
        return Current(MemberState.UNREVOKED, current.epoch, kept, given_up)
    missing = goal.share - kept
    free = frozenset(partition for partition in missing if goal.is_free(partition))
    state = MemberState.STABLE if free == missing else MemberState.UNRELEASED
    return Current(state, goal.epoch, kept | free)


def _still_has(partitions: Share, goal: Goal) -> bool:
    return goal.owned is None or not partitions.isdisjoint(goal.owned)


_STEPS: Final = {
    MemberState.STABLE: _from_stable,
    MemberState.UNREVOKED: _from_unrevoked,
    MemberState.UNRELEASED: _advance,
}
