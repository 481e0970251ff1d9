"""A group whose members work off the same partitions together (Kafka's KIP-932).

    EMPTY     nobody; what was finished is kept
    STABLE    members, each of which knows what to fetch from after its next heartbeat
    DEAD      removed; nobody can reach it any more

A partition may have many readers, so that nobody waits for anybody: a member gets its share with the
heartbeat that follows a change. Who has which record is not known here, but in the queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final

from penstock.broker.assignors import NOTHING, Shape, Share
from penstock.broker.consumer_member import JOINING, LEAVING, Beat, Told
from penstock.broker.group_config import GroupConfig
from penstock.broker.group_errors import (
    FencedMemberEpochError,
    GroupFullError,
    InvalidHeartbeatError,
    UnknownMemberError,
)
from penstock.broker.timers import Alarm, CallLater
from penstock.broker.topic_directory import TopicDirectory
from penstock.clock import Clock
from penstock.limits import GROUP_MEMBERS_MAX
from penstock.log.positions import PartitionId

ASSIGNOR: Final = "simple"
_log = logging.getLogger(__name__)


class ShareGroupState(Enum):
    """See the module; the values are the names that people know."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareMember:
    """Someone who works for a group."""

    def __init__(self, member_id: str, call_later: CallLater) -> None:
        self.id = member_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.topics: frozenset[str] = frozenset()
        self.epoch = 0
        self.previous_epoch = 0
        self.assigned: Share = NOTHING
        self.session = Alarm(call_later)
        self.last_seen = 0.0

    def update(self, beat: Beat) -> bool:
        """Take over what a heartbeat says; whether it reads other topics now."""
        self.client_id = beat.client_id
        self.client_host = beat.client_host
        if beat.rack_id is not None:
            self.rack_id = beat.rack_id
        if beat.topics is None or beat.topics == self.topics:
            return False
        self.topics = beat.topics
        return True


class ShareGroup:
    """See the module.

    Args:
        name: of the group.
        clock, call_later: time.
        topics: what can be read.
        config: the settings in force.
        gone: told the id of a member that has left or was put out.
    """

    protocol_type: Final = "share"

    def __init__(
        self,
        name: str,
        clock: Clock,
        call_later: CallLater,
        topics: TopicDirectory,
        config: Callable[[], GroupConfig],
        gone: Callable[[str], None],
    ) -> None:
        self.name = name
        self.epoch = 0
        self.members: dict[str, ShareMember] = {}
        self._clock = clock
        self._call_later = call_later
        self._topics = topics
        self._config = config
        self._gone = gone
        self._shapes: dict[str, Shape] = {}
        self._revision = -1
        self._target: dict[str, Share] = {}
        self._dead = False

    @property
    def state(self) -> ShareGroupState:
        """See the module."""
        if self._dead:
            return ShareGroupState.DEAD
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def is_empty(self) -> bool:
        """Whether there are no members."""
        return not self.members

    def subscribed(self) -> set[str]:
        """The topics that members read."""
        return {topic for member in self.members.values() for topic in member.topics}

    # -- heartbeats

    def heartbeat(self, beat: Beat) -> Told:
        """Join, stay or leave; raises a GroupError if the member cannot."""
        if beat.epoch == LEAVING:
            # What it holds goes back when its fetches end, not now: what it says last of its records
            # comes over another connection, and may come after this.
            self._remove(self._member(beat.member_id))
            return Told(beat.member_id, LEAVING)
        member = self._join(beat) if beat.epoch == JOINING else self._known(beat)
        is_new = member.id not in self.members
        self.members[member.id] = member
        self._watch(member)
        changed = member.update(beat) or is_new
        if changed or self._revision != self._topics.revision:
            changed = self._look_at_topics() or changed
        if changed:
            self._assign()
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch
        assigned = self._target[member.id]
        tell = beat.epoch == JOINING or beat.topics is not None or assigned != member.assigned
        member.assigned = assigned
        return Told(member.id, member.epoch, assigned if tell else None)

    def _join(self, beat: Beat) -> ShareMember:
        member = self.members.get(beat.member_id)
        if member is not None:
            return member  # the same again, which got no answer
        if beat.topics is None:
            raise InvalidHeartbeatError(f"join group {self.name}", "no topics are named")
        if len(self.members) >= GROUP_MEMBERS_MAX:
            raise GroupFullError(f"join group {self.name}", f"it has {GROUP_MEMBERS_MAX} members")
        return ShareMember(beat.member_id, self._call_later)

    def _known(self, beat: Beat) -> ShareMember:
        member = self._member(beat.member_id)
        # It may have missed the answer that moved it on.
        if beat.epoch not in (member.epoch, member.previous_epoch):
            raise FencedMemberEpochError(
                f"use group {self.name}",
                f"{member.id} comes with epoch {beat.epoch} where it is at {member.epoch}",
                "join again",
            )
        return member

    def _member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberError(
                f"use group {self.name}", f"{member_id[:100]!r} is not a member", "join again"
            )
        return member

    # -- who reads what

    def _look_at_topics(self) -> bool:
        """See which of the topics are there; whether that has changed."""
        self._revision = self._topics.revision
        shapes = {
            name: shape
            for name in self.subscribed()
            if (shape := self._topics.get(name)) is not None
        }
        changed = shapes != self._shapes
        self._shapes = shapes
        return changed

    def _assign(self) -> None:
        """Give every partition a reader, and every member a partition of each of its topics."""
        self.epoch += 1
        shares: dict[str, set[PartitionId]] = {member_id: set() for member_id in self.members}
        for name, shape in self._shapes.items():
            members = sorted(m.id for m in self.members.values() if name in m.topics)
            for turn in range(max(len(members), shape.partitions)):
                partition = PartitionId(shape.id, turn % shape.partitions)
                shares[members[turn % len(members)]].add(partition)
        self._target = {member_id: frozenset(share) for member_id, share in shares.items()}

    # -- going

    def _remove(self, member: ShareMember) -> None:
        member.session.cancel()
        del self.members[member.id]
        self._look_at_topics()
        self._assign()

    def _watch(self, member: ShareMember) -> None:
        member.last_seen = self._clock.monotonic()
        if not member.session.is_set:
            seconds = self._config().share_session_seconds
            member.session.set(seconds, partial(self._check_session, member))

    def _check_session(self, member: ShareMember) -> None:
        # One timer that is put off when it goes off, instead of a new one for every heartbeat.
        left = member.last_seen + self._config().share_session_seconds - self._clock.monotonic()
        if left > 0:
            member.session.set(left, partial(self._check_session, member))
        else:
            _log.info(
                "group %s: %s has not been heard of: its session has ended", self.name, member.id
            )
            self._gone(member.id)
            self._remove(member)

    def stop(self) -> None:
        """Watch nobody any more: the broker is on its way out."""
        for member in self.members.values():
            member.session.cancel()

    def die(self) -> None:
        """Remove an empty group."""
        assert not self.members, f"{self.name} has members"
        self._dead = True
