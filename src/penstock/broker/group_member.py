"""A member of a group, what it asks for and what it is told, and the vote for a protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import uuid4

from penstock.broker.group_errors import GroupError
from penstock.broker.timers import Alarm, CallLater
from penstock.limits import NEW_MEMBER_SECONDS_MAX

_SHOWN_CHARS_MAX = 200


class Protocol(NamedTuple):
    """A way to share the work that a member knows, with what it says to whoever shares it out."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a client says when it joins."""

    member_id: str
    """Empty for a new member."""
    instance_id: str | None
    """A static member's name, which outlives its process."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    must_know_id: bool = True
    """Whether a new member is sent back once, with an id (KIP-394)."""
    may_skip_assignment: bool = True
    """Whether a leader understands that it need not share out the work anew."""

    def new_id(self) -> str:
        """An id for a new member, which shows people whose it is."""
        # Cut, because an id must fit the answers to all members.
        return f"{(self.instance_id or self.client_id)[:_SHOWN_CHARS_MAX]}-{uuid4()}"


class JoinedMember(NamedTuple):
    """A member, as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to a member that is in."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader_id: str
    members: tuple[JoinedMember, ...]
    """Everybody, for the leader; nobody, for the others."""
    skip_assignment: bool = False


class Synced(NamedTuple):
    """A member's share of the work."""

    protocol_type: str
    protocol: str
    assignment: bytes


class Identity(NamedTuple):
    """Who a member says it is."""

    member_id: str
    instance_id: str | None = None


JoinAnswer = Callable[[Joined | GroupError], None]
SyncAnswer = Callable[[Synced | GroupError], None]
WaitingJoin = tuple[JoinRequest, JoinAnswer]


class Member:
    """Someone a group counts on. At most one join and one sync wait for their answers."""

    __slots__ = (
        "answer_join",
        "answer_sync",
        "assignment",
        "client_host",
        "client_id",
        "id",
        "instance_id",
        "is_new",
        "last_seen",
        "protocols",
        "rebalance_timeout",
        "request",
        "session",
        "session_timeout",
    )

    def __init__(self, member_id: str, request: JoinRequest, call_later: CallLater) -> None:
        self.id = member_id
        self.instance_id = request.instance_id
        self.is_new = True
        self.assignment = b""
        self.answer_join: JoinAnswer | None = None
        self.answer_sync: SyncAnswer | None = None
        self.session = Alarm(call_later)
        self.last_seen = 0.0
        self.update(request)

    def update(self, request: JoinRequest) -> None:
        """Take over what a (re)join says."""
        self.request = request
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.protocols = request.protocols
        self.session_timeout = request.session_timeout_ms / 1000
        self.rebalance_timeout = request.rebalance_timeout_ms / 1000

    @property
    def patience(self) -> float:
        """How many seconds it may be silent."""
        return NEW_MEMBER_SECONDS_MAX if self.is_new else self.session_timeout

    @property
    def is_waiting(self) -> bool:
        """Whether it is connected and owed an answer, so that it cannot send heartbeats."""
        return self.answer_join is not None or self.answer_sync is not None

    def metadata(self, protocol: str) -> bytes:
        """What it says under a protocol; empty if it does not know it."""
        return next((p.metadata for p in self.protocols if p.name == protocol), b"")

    def finish_join(self, answer: Joined | GroupError) -> None:
        """Answer a join that waits."""
        waiting, self.answer_join = self.answer_join, None
        if waiting is not None:
            waiting(answer)

    def take_join(self) -> WaitingJoin | None:
        """A join that waits, for another to answer."""
        waiting, self.answer_join = self.answer_join, None
        return None if waiting is None else (replace(self.request, member_id=self.id), waiting)

    def finish_sync(self, answer: Synced | GroupError) -> None:
        """Answer a sync that waits."""
        waiting, self.answer_sync = self.answer_sync, None
        if waiting is not None:
            waiting(answer)


def elected_protocol(members: Iterable[Member], candidates: Collection[str]) -> str:
    """Each member votes for the first of its protocols that all know; the most votes win."""
    assert candidates, "nobody is let in who shares no protocol with the others"
    votes = Counter(
        next(protocol.name for protocol in member.protocols if protocol.name in candidates)
        for member in members
    )
    # By name among equals, so that the same members always agree on the same.
    return min(votes, key=lambda name: (-votes[name], name))
