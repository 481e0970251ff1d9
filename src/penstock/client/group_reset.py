"""Moving a group: first a plan, which changes nothing, then its execution.

Only a group without members can be moved: a member would go on where it is, and commit that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from penstock.client.connection import admin, library
from penstock.client.group_lag import existing_places, partition_range
from penstock.client.groups import (
    Commit,
    Group,
    Place,
    raise_code_of,
    read_group,
    read_group_or_none,
    refuse_members,
    topic_partition,
)
from penstock.client.share_groups import SHARE
from penstock.client.topics import did_you_mean
from penstock.errors import ConflictError, NotFoundError, UsageError


class Aim(Enum):
    """What the value of a Target means."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    OFFSET = "offset"
    SHIFT = "shift"
    TIME = "time"
    LISTED = "listed"


# These mean something only where the group has committed.
_FROM_COMMITTED: Final = (Aim.CURRENT, Aim.SHIFT)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a group is to stand."""

    aim: Aim
    value: int = 0
    """OFFSET: the offset. SHIFT: records, backwards if negative. TIME: milliseconds since 1970."""
    listed: Mapping[Place, int | None] = field(default_factory=dict)
    """LISTED: an offset for each; None to forget what was committed."""


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of one partition."""

    topic: str
    partition: int
    before: int | None
    """Where the group stands; None if nothing was committed."""
    after: int | None
    """Where it will stand; None if its committed offset is to be forgotten."""
    asked: int | None
    """What was asked for, which is not `after` if the partition has no such offset."""
    metadata: str = ""

    @property
    def difference(self) -> int | None:
        """Records that are skipped, or read again if negative."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done to a group."""

    group: str
    moves: list[Move]
    """By topic and partition."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A topic, or some partitions of it."""

    topic: str
    partitions: frozenset[int] = frozenset()
    """All of them if empty."""

    def holds(self, place: Place) -> bool:
        """Whether a partition is meant."""
        return place[0] == self.topic and (not self.partitions or place[1] in self.partitions)


def plan_reset(bootstrap: str, name: str, target: Target, scopes: Collection[Scope]) -> Plan:
    """What has to change so that a group stands at the target.

    Args:
        bootstrap: Addresses of the cluster.
        name: The group; one that does not exist is made by the first offset that it gets.
        target: Where it is to stand.
        scopes: Which partitions; all partitions of the topics it has committed for, if empty.

    Raises:
        NotFoundError: there is no such group, and no topic was named; or a topic does not exist.
        ConflictError: the group has members.
        UsageError: there is nothing that could be moved.
        PenstockError: the cluster could not be asked.
    """
    operation = f"cannot reset group {name}"
    with admin(bootstrap, operation) as client:
        if scopes or target.aim is Aim.LISTED:
            group = read_group_or_none(client, name, operation)
        else:
            group = read_group(client, name, operation)
        _refuse_share_groups(operation, group)
        refuse_members(operation, group)
        committed = group.committed if group else {}
        topics = {scope.topic for scope in scopes} or {topic for topic, _ in committed}
        if target.aim is Aim.LISTED:
            topics = {topic for topic, _ in target.listed}
        places = existing_places(client, topics)
        _refuse_missing(client, operation, scopes, target, places)
        if scopes:
            places = {place for place in places if any(one.holds(place) for one in scopes)}
        if target.aim in _FROM_COMMITTED:
            places &= committed.keys()
        elif target.aim is Aim.LISTED:
            places &= target.listed.keys()
        if not places:
            remedy = "name topics that it is to start in with --topic"
            raise UsageError(operation, "there is no partition that could be moved", remedy)
        return Plan(name, _moves(client, committed, target, sorted(places)))


def _refuse_share_groups(operation: str, *groups: Group | None) -> None:
    """They have no committed offsets, and finish records in any order."""
    for group in groups:
        if group is not None and group.summary.type == SHARE:
            raise ConflictError(
                operation,
                f"{group.summary.name} is a share group",
                "use `kafka-share-groups.sh --reset-offsets`",
            )


def plan_copy(bootstrap: str, source: str, name: str, scopes: Collection[Scope]) -> Plan:
    """What has to change so that a group stands where another one does.

    Raises:
        NotFoundError: there is no group of the name `source`.
        ConflictError: the group that is to move has members.
        UsageError: the other group has committed nothing.
        PenstockError: the cluster could not be asked.
    """
    operation = f"cannot copy group {source} to {name}"
    if source == name:
        raise UsageError(operation, "they are the same group", "name two")
    with admin(bootstrap, operation) as client:
        origin = read_group(client, source, operation)
        group = read_group_or_none(client, name, operation)
        _refuse_share_groups(operation, origin, group)
        refuse_members(operation, group)
        chosen = {
            place: commit
            for place, commit in origin.committed.items()
            if not scopes or any(one.holds(place) for one in scopes)
        }
        if not chosen:
            remedy = f"`penstock groups describe {source}` shows where it stands"
            raise UsageError(operation, f"{source} has committed nothing there", remedy)
        return Plan(name, [_copied(group, place, one) for place, one in sorted(chosen.items())])


def execute(bootstrap: str, plan: Plan) -> None:
    """Do what the plan says; returns when the broker has acknowledged all of it.

    Raises:
        ConflictError: the group has got members meanwhile; nothing was changed.
        PenstockError: the cluster refused, or could not be asked.
    """
    operation = f"cannot move group {plan.group}"
    metadata_of = library("kafka.structs").OffsetAndMetadata
    kept = {
        topic_partition((one.topic, one.partition)): metadata_of(one.after, one.metadata, None)
        for one in plan.moves
        if one.after is not None
    }
    forgotten = [
        topic_partition((one.topic, one.partition))
        for one in plan.moves
        if one.after is None and one.before is not None
    ]
    with admin(bootstrap, operation) as client:
        if kept:
            for error in client.alter_group_offsets(plan.group, kept).values():
                raise_code_of(operation, error)
        if forgotten:
            for error in client.delete_group_offsets(plan.group, forgotten).values():
                raise_code_of(operation, error)


def _copied(group: Group | None, place: Place, commit: Commit) -> Move:
    before = group.committed.get(place) if group else None
    offset = before.offset if before else None
    return Move(*place, offset, commit.offset, commit.offset, commit.metadata)


def _refuse_missing(
    client: Any,
    operation: str,
    scopes: Iterable[Scope],
    target: Target,
    places: Collection[Place],
) -> None:
    """Every topic and partition that was named must exist: a slip must not shrink the plan."""
    existing = {topic for topic, _ in places}
    wanted = {(scope.topic, one) for scope in scopes for one in scope.partitions}
    if target.aim is Aim.LISTED:
        wanted |= {place for place, offset in target.listed.items() if offset is not None}
    for topic in sorted({scope.topic for scope in scopes} | {topic for topic, _ in wanted}):
        if topic not in existing:
            remedy = did_you_mean([topic], client.list_topics())
            raise NotFoundError(operation, f"there is no topic {topic}", remedy)
    for topic, partition in sorted(wanted):
        if (topic, partition) not in places:
            count = sum(1 for one, _ in places if one == topic)
            cause = f"{topic} has no partition {partition}"
            raise NotFoundError(operation, cause, f"use one from 0 to {count - 1}")


def _moves(
    client: Any, committed: Mapping[Place, Commit], target: Target, places: list[Place]
) -> list[Move]:
    starts, ends = partition_range(client, places)
    at_time = _offsets_at(client, places, target.value) if target.aim is Aim.TIME else {}
    moves: list[Move] = []
    for place in places:
        if place not in starts or place not in ends:
            # Out of service: nobody knows where it starts and ends.
            continue
        start, end = starts[place], ends[place]
        before = committed[place].offset if place in committed else None
        match target.aim:
            case Aim.EARLIEST:
                asked: int | None = start
            case Aim.LATEST:
                asked = end
            case Aim.OFFSET:
                asked = target.value
            case Aim.CURRENT:
                asked = before
            case Aim.SHIFT:
                asked = committed[place].offset + target.value
            case Aim.TIME:
                asked = at_time.get(place, end)
            case Aim.LISTED:
                asked = target.listed[place]
        after = None if asked is None else min(max(asked, start), end)
        moves.append(Move(*place, before, after, asked))
    return moves


def _offsets_at(client: Any, places: Iterable[Place], moment: int) -> dict[Place, int]:
    """The first offset at or after a time; nothing for partitions whose records are all older."""
    stamp = library("kafka.protocol.consumer").OffsetTimestamp(moment)
    found = client.list_partition_offsets({topic_partition(place): stamp for place in places})
    return {(key.topic, key.partition): one.offset for key, one in found.items() if one.offset >= 0}
