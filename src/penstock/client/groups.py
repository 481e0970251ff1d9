"""Consumer groups of a cluster: list, read, delete."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.client import share_groups
from penstock.client.connection import admin, error_of_code, library
from penstock.client.share_groups import SHARE
from penstock.client.topics import did_you_mean
from penstock.errors import ConflictError, NotFoundError

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""

CLASSIC: Final = "classic"
EMPTY: Final = "Empty"
_LIST_THEM: Final = "`penstock groups list` shows those that exist"
# As many as an error can name without hiding what it says.
_MEMBERS_NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """What the cluster says about a group in one line."""

    name: str
    type: str
    """`classic`, or one of the newer kinds: `consumer`, `share`, `streams`."""
    state: str
    """In Kafka's words, `Stable` or `Empty` most of the time."""
    members: int | None
    """None for a group of a newer kind that has some: our client library cannot ask for those."""


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of a group."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: frozenset[Place]

    def __str__(self) -> str:
        return f"{self.instance_id or self.client_id or self.id} at {self.host.lstrip('/')}"


@dataclass(frozen=True, slots=True)
class Commit:
    """What a group has committed for a partition."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Everything about a group."""

    summary: GroupSummary
    protocol: str
    """How partitions are given to members, for example `range`; empty while there are none."""
    members: list[Member]
    committed: dict[Place, Commit]
    """For a share group: where what is not finished begins."""
    lags: dict[Place, int] = field(default_factory=dict)
    """What the broker counts, for a share group, which finishes records in any order."""

    def owner(self, place: Place) -> Member | None:
        """The member that reads a partition."""
        return next((one for one in self.members if place in one.partitions), None)


def list_groups(bootstrap: str) -> list[GroupSummary]:
    """All groups, by name.

    Raises:
        PenstockError: the cluster could not be asked.
    """
    with admin(bootstrap, "cannot list groups") as client:
        listed = _listed(client)
        described = _described(client, listed)
    return [_summary(one, described) for _, one in sorted(listed.items())]


def delete_groups(bootstrap: str, names: Sequence[str]) -> None:
    """Delete groups with the offsets that they committed; none of them if one cannot go.

    Raises:
        NotFoundError: there is no group of one of the names.
        ConflictError: one of them has members.
        PenstockError: the cluster refused or could not be asked.
    """
    operation = f"cannot delete {', '.join(names)}"
    with admin(bootstrap, operation) as client:
        for name in names:
            refuse_members(operation, read_group(client, name, operation))
        results: Mapping[str, Any] = client.delete_groups(list(names))
        _raise_first(operation, results.values())


def read_group(client: Any, name: str, operation: str) -> Group:
    """One group, with its members and what it has committed.

    Args:
        client: A connected KafkaAdminClient.
        name: The group.
        operation: What it is needed for, for the error.

    Raises:
        NotFoundError: there is no such group.
    """
    listed = _listed(client)
    if name not in listed:
        remedy = did_you_mean([name], listed) or _LIST_THEM
        raise NotFoundError(operation, f"there is no group {name}", remedy)
    return _read(client, name, listed[name], operation)


def read_group_or_none(client: Any, name: str, operation: str) -> Group | None:
    """The same for a group that may not exist yet."""
    listed = _listed(client)
    return _read(client, name, listed[name], operation) if name in listed else None


def refuse_members(operation: str, group: Group | None) -> None:
    """Only a group that nobody reads in can be changed from outside: its members would undo it.

    Raises:
        ConflictError: the group has members.
    """
    if group is None or group.summary.state == EMPTY:
        return
    if group.summary.members == 0 and group.summary.type == CLASSIC:
        return
    named = [str(one) for one in group.members[:_MEMBERS_NAMED_MAX]]
    if len(group.members) > len(named):
        named.append("...")
    count = len(group.members)
    have = f"{count} member{'' if count == 1 else 's'} ({', '.join(named)})" if count else "members"
    raise ConflictError(operation, f"group {group.summary.name} has {have}", "stop them first")


def raise_code_of(operation: str, error: Any) -> None:
    """Raise our error for a class of kafka-python's errors, unless it stands for success."""
    if error.errno:
        raise error_of_code(operation, error.errno, None)


def _raise_first(operation: str, results: Iterable[Any]) -> None:
    for result in results:
        # kafka-python gives the word OK, or the name of its error.
        if result != "OK":
            raise_code_of(operation, getattr(library("kafka.errors"), str(result)))


def _listed(client: Any) -> dict[str, Any]:
    return {str(one["group_id"]): one for one in client.list_groups()}


def _described(client: Any, listed: Mapping[str, Any]) -> dict[str, Any]:
    """Descriptions of the classic groups: what our client library can ask for."""
    names = [name for name, one in listed.items() if _type(one) == CLASSIC]
    found: dict[str, Any] = client.describe_groups(names) if names else {}
    return found


def _type(listed: Any) -> str:
    # Brokers before Kafka 3.8 do not say; they have no other kind.
    return str(listed.get("group_type") or CLASSIC).lower()


def _summary(listed: Any, described: Mapping[str, Any]) -> GroupSummary:
    name, state = str(listed["group_id"]), str(listed.get("group_state") or "")
    if name in described:
        description = described[name]
        return GroupSummary(
            name, CLASSIC, state or description["group_state"], len(description["members"])
        )
    return GroupSummary(name, _type(listed), state, 0 if state == EMPTY else None)


def _read(client: Any, name: str, listed: Any, operation: str) -> Group:
    if _type(listed) == SHARE:
        return _read_share(client, name, listed, operation)
    described = _described(client, {name: listed})
    description = described.get(name, {})
    answer = client.list_group_offsets({name: None})[name]
    committed = {
        (key.topic, key.partition): Commit(found.offset, found.metadata or "")
        for key, found in answer.items()
        # Kafka answers with -1 where it knows the partition but no offset.
        if found.offset >= 0
    }
    return Group(
        summary=_summary(listed, described),
        protocol=str(description.get("protocol_data") or ""),
        members=[_member(one) for one in description.get("members", ())],
        committed=committed,
    )


def _read_share(client: Any, name: str, listed: Any, operation: str) -> Group:
    members = share_groups.members(client, name, operation)
    known = share_groups.standings(client, name, operation)
    return Group(
        summary=GroupSummary(name, SHARE, str(listed.get("group_state") or ""), len(members)),
        protocol="",
        members=[Member(m.id, None, m.client_id, m.host, m.partitions) for m in members],
        committed={place: Commit(one.start) for place, one in known.items()},
        lags={place: one.lag for place, one in known.items() if one.lag is not None},
    )


def _member(member: Any) -> Member:
    return Member(
        id=str(member["member_id"]),
        instance_id=member.get("group_instance_id"),
        client_id=str(member["client_id"]),
        host=str(member["client_host"]),
        partitions=_assigned(member["member_assignment"]),
    )


def _assigned(assignment: Any) -> frozenset[Place]:
    # Bytes where kafka-python could not read them: a group of another kind, such as Connect's.
    places: set[Place] = set()
    with contextlib.suppress(TypeError, KeyError):
        for topic in assignment["assigned_partitions"]:
            places.update((str(topic["topic"]), int(one)) for one in topic["partitions"])
    return frozenset(places)


def topic_partition(place: Place) -> Any:
    """The same in kafka-python's words."""
    return library().TopicPartition(*place)
