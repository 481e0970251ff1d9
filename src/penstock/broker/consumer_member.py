"""A member of a consumer group (KIP-848), what it says and what it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.broker.assignors import Share
from penstock.broker.group_member import JoinRequest
from penstock.broker.reconciliation import Current
from penstock.broker.timers import Alarm, CallLater
from penstock.log.positions import PartitionId

JOINING: Final = 0
LEAVING: Final = -1
AWAY: Final = -2


@dataclass(frozen=True, slots=True)
class Beat:
    """What a member says in a heartbeat; None (or -1) where nothing has changed since the last one."""

    member_id: str
    """Empty if the server shall make one."""
    epoch: int
    """What the member has reached; JOINING, LEAVING, or AWAY for a static member that comes back."""
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Share | None = None

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as members do that do not know what the server knows."""
        return self.epoch == JOINING or (
            self.rebalance_timeout_ms != -1
            and (self.topics is not None or self.pattern is not None)
            and self.owned is not None
        )


class Told(NamedTuple):
    """The answer to a heartbeat."""

    member_id: str
    epoch: int
    assigned: Share | None = None
    """What the member may use; None if that has not changed."""
    is_waiting: bool = False
    """Whether others still hold some of its share."""


class ConsumerMember:
    """Someone a group counts on."""

    __slots__ = (
        "assignor",
        "client_host",
        "client_id",
        "current",
        "id",
        "instance_id",
        "last_seen",
        "pattern",
        "previous_epoch",
        "rack_id",
        "reads",
        "rebalance",
        "rebalance_timeout",
        "seat",
        "session",
        "session_timeout",
        "since",
        "synced_epoch",
        "topics",
    )

    def __init__(self, member_id: str, beat: Beat, call_later: CallLater) -> None:
        self.id = member_id
        self.instance_id = beat.instance_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout = 0.0
        self.topics: frozenset[str] = frozenset()
        self.pattern = ""
        self.assignor: str | None = None
        self.reads: frozenset[str] = frozenset()
        """The topics that exist, of those it names and those its pattern matches."""
        self.current = Current()
        self.previous_epoch = 0
        self.since: dict[PartitionId, int] = {}
        """The epochs at which it got what it holds."""
        self.session = Alarm(call_later)
        self.rebalance = Alarm(call_later)
        self.last_seen = 0.0
        self.seat: JoinRequest | None = None
        """How it joined, if it uses the classic protocol (mixed_group.py)."""
        self.session_timeout: float | None = None
        self.synced_epoch = 0
        """The generation whose share it has fetched, if it uses the classic protocol."""

    def update(self, beat: Beat) -> bool:
        """Take over what a heartbeat says; whether it makes a new assignment necessary."""
        before = (self.topics, self.pattern, self.assignor)
        if beat.topics is not None:
            self.topics = beat.topics
        if beat.pattern is not None:
            self.pattern = beat.pattern
        if beat.assignor is not None:
            self.assignor = beat.assignor
        if beat.rack_id is not None:
            self.rack_id = beat.rack_id
        if beat.rebalance_timeout_ms != -1:
            self.rebalance_timeout = max(0, beat.rebalance_timeout_ms) / 1000
        self.client_id = beat.client_id
        self.client_host = beat.client_host
        return before != (self.topics, self.pattern, self.assignor)

    def stand_up(self) -> None:
        """Use the classic protocol no longer."""
        self.seat = None
        self.session_timeout = None

    @property
    def held(self) -> Share:
        """What nobody else may have yet."""
        return self.current.assigned | self.current.revoking

    @property
    def is_away(self) -> bool:
        """Whether it is a static member whose process has stopped and may come back."""
        return self.current.epoch == AWAY
