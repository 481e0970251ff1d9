"""A group of consumers to which the server shares out the work (Kafka's KIP-848).

    EMPTY         nobody; offsets may be kept
    ASSIGNING     members or topics have changed; the next heartbeat makes a new target
    RECONCILING   some members are on their way to the target
    STABLE        everybody has what the target gives
    DEAD          removed; nobody can reach it any more

The group's epoch counts the changes. The target is who shall have what, made for one epoch; each
member gets there by itself, with its heartbeats (reconciliation.py). A partition goes to its new
owner when the old one has said that it let go of it, has left, or has been put out.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from typing import Final
from uuid import uuid4

from penstock.broker.assignors import ASSIGNORS, NOTHING, Reader, Shape, Share
from penstock.broker.consumer_member import AWAY, JOINING, LEAVING, Beat, ConsumerMember, Told
from penstock.broker.group_errors import (
    FencedInstanceError,
    FencedMemberEpochError,
    GroupError,
    GroupFullError,
    InvalidHeartbeatError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
)
from penstock.broker.reconciliation import Current, Goal, MemberState, step
from penstock.broker.timers import CallLater
from penstock.broker.topic_directory import TopicDirectory, compile_pattern
from penstock.clock import Clock
from penstock.limits import GROUP_MEMBERS_MAX
from penstock.log.positions import PartitionId

_log = logging.getLogger(__name__)


class ConsumerGroupState(Enum):
    """See the module; the values are the names that people know."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """See the module. `occupied` is called when the first member comes and the last one goes.

    `session_seconds` says how long a silent member is waited for.
    """

    protocol_type: Final = "consumer"

    def __init__(
        self,
        name: str,
        clock: Clock,
        call_later: CallLater,
        topics: TopicDirectory,
        session_seconds: Callable[[], float],
        occupied: Callable[[ConsumerGroup], None],
    ) -> None:
        self.name = name
        self.epoch = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self._clock = clock
        self._call_later = call_later
        self._topics = topics
        self._session_seconds = session_seconds
        self._occupied = occupied
        self._static: dict[str, str] = {}  # member ids by instance id
        self._target: dict[str, Share] = {}
        self._owners: dict[PartitionId, str] = {}  # who holds what, or must still let go of it
        self._shapes: dict[str, Shape] = {}  # the topics that members read, as the group knows them
        self._revision = -1  # of the topics, when the group last looked
        self._dead = False

    # -- looking

    @property
    def state(self) -> ConsumerGroupState:
        """See the module."""
        if self._dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self._is_settled(member.current) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def _is_settled(self, current: Current) -> bool:
        return current.state is MemberState.STABLE and current.epoch == self.target_epoch

    @property
    def is_empty(self) -> bool:
        """Whether there are no members."""
        return not self.members

    @property
    def assignor(self) -> str:
        """What shares out the work: what most members want, of those that say."""
        votes = Counter(m.assignor for m in self.members.values() if m.assignor is not None)
        return min(votes, key=lambda name: (-votes[name], name)) if votes else next(iter(ASSIGNORS))

    def target(self, member: ConsumerMember) -> Share:
        """What a member shall have."""
        return self._target.get(member.id, NOTHING)

    def subscribed(self) -> set[str]:
        """The topics that members read."""
        return {topic for m in self.members.values() for topic in m.topics | m.reads}

    # -- heartbeats

    def heartbeat(self, beat: Beat) -> Told:
        """Join, stay or leave, after check; raises a GroupError if the member cannot."""
        if beat.epoch in (LEAVING, AWAY):
            return self._leave(beat)
        member = self._join(beat) if beat.epoch == JOINING else self._known(beat)
        is_new = member.id not in self.members
        if is_new:
            self._add(member)
        before = member.current
        self._attend(member, beat, is_new=is_new)
        now = member.current
        tell = beat.is_full or before.assigned != now.assigned
        is_waiting = now.state is MemberState.UNRELEASED
        return Told(member.id, now.epoch, now.assigned if tell else None, is_waiting)

    def _attend(self, member: ConsumerMember, beat: Beat, *, is_new: bool) -> None:
        """Take note of what a member says, and move it on if there is somewhere to go."""
        self._watch(member)
        self._refresh(changed=member.update(beat) or is_new)
        self._reconcile(member, beat.owned)

    def _refresh(self, *, changed: bool = False) -> None:
        """Make a new target if members or topics have changed."""
        if changed or self._revision != self._topics.revision:
            changed = self._look_at_topics() or changed
        if changed:
            self.epoch += 1
        if self.epoch > self.target_epoch:
            self._assign()

    def _join(self, beat: Beat) -> ConsumerMember:
        """The member that joins: a new one, the same again, or a static one that has come back."""
        if beat.instance_id is not None:
            old_id = self._static.get(beat.instance_id)
            if old_id is not None:
                return self._take_place(self.members[old_id], beat)
        elif beat.member_id in self.members:
            return self.members[beat.member_id]  # it has given up all it had, or got no answer
        if len(self.members) >= GROUP_MEMBERS_MAX:
            raise GroupFullError(f"join group {self.name}", f"it has {GROUP_MEMBERS_MAX} members")
        return ConsumerMember(beat.member_id or str(uuid4()), beat, self._call_later)

    def _take_place(self, member: ConsumerMember, beat: Beat) -> ConsumerMember:
        """Another process becomes a static member, and gets its share."""
        # A member of the classic protocol does not say that it goes away and comes back.
        if not member.is_away and member.seat is None and member.id != beat.member_id:
            raise UnreleasedInstanceError(
                f"join group {self.name}",
                f"group.instance.id {beat.instance_id!r} is in use by {member.id}",
                "stop the other process, or give every process an id of its own",
            )
        return self._replace(member, beat.member_id or str(uuid4()))

    def _replace(self, member: ConsumerMember, new_id: str) -> ConsumerMember:
        share = self._target.pop(member.id, NOTHING)
        del self.members[member.id]
        member.id = new_id
        self.members[member.id] = member
        assert member.instance_id is not None
        self._static[member.instance_id] = member.id
        self._target[member.id] = share
        self._owners.update(dict.fromkeys(member.held, member.id))
        if member.is_away or member.seat is not None:
            self._move(member, Current(MemberState.STABLE, 0, member.current.assigned))
        member.stand_up()
        return member

    def _known(self, beat: Beat) -> ConsumerMember:
        member = self._member(beat)
        current = member.current
        # A member may have missed the answer that moved it on, if it has nothing it should not have.
        missed = (
            beat.epoch == member.previous_epoch
            and beat.owned is not None
            and beat.owned <= current.assigned
        )
        if beat.epoch > current.epoch or (beat.epoch < current.epoch and not missed):
            raise FencedMemberEpochError(
                f"use group {self.name}",
                f"{member.id} comes with epoch {beat.epoch} where it is at {current.epoch}",
                "give up all partitions and join again",
            )
        return member

    def _member(self, beat: Beat) -> ConsumerMember:
        if beat.instance_id is not None:
            known = self._static.get(beat.instance_id)
            if known is None:
                raise self._no_member(beat)
            if known != beat.member_id:
                raise FencedInstanceError(
                    f"use group {self.name}",
                    f"another process has taken over group.instance.id {beat.instance_id!r}",
                    "give every process an id of its own",
                )
        member = self.members.get(beat.member_id)
        if member is None:
            raise self._no_member(beat)
        return member

    def _no_member(self, beat: Beat) -> GroupError:
        if beat.epoch > self.epoch:
            return before_restart(self.name)
        return self._unknown(beat.member_id)

    def _add(self, member: ConsumerMember) -> None:
        self.members[member.id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id
        if len(self.members) == 1:
            self._occupied(self)

    # -- the target

    def _look_at_topics(self) -> bool:
        """See which topics are there for whom; whether that has changed."""
        self._revision = self._topics.revision
        shapes: dict[str, Shape] = {}
        changed = False
        for member in self.members.values():
            names = member.topics
            if member.pattern:
                names |= self._topics.matching(member.pattern)
            for name in names - shapes.keys():
                shape = self._topics.get(name)
                if shape is not None:
                    shapes[name] = shape
            reads = frozenset(name for name in names if name in shapes)
            changed = changed or reads != member.reads
            member.reads = reads
        changed = changed or shapes != self._shapes
        self._shapes = shapes
        return changed

    def _assign(self) -> None:
        readers = [Reader(m.id, m.instance_id, m.reads) for m in self.members.values()]
        self._target = ASSIGNORS[self.assignor](readers, self._shapes, self._target)
        self.target_epoch = self.epoch
        _log.debug("group %s: a new target at epoch %d", self.name, self.epoch)

    def _reconcile(self, member: ConsumerMember, owned: Share | None) -> None:
        def is_free(partition: PartitionId) -> bool:
            return self._owners.get(partition, member.id) == member.id

        goal = Goal(self.target_epoch, self.target(member), owned, is_free)
        self._move(member, step(member.current, goal))

    def _move(self, member: ConsumerMember, now: Current) -> None:
        """Note where a member stands, and who holds what because of it."""
        before, held = member.current, member.held
        if now == before:
            return
        member.current = now
        for partition in held - member.held:
            del self._owners[partition]
            del member.since[partition]
        self._owners.update(dict.fromkeys(member.held, member.id))
        member.since.update(dict.fromkeys(member.held - held, now.epoch))
        if now.epoch != before.epoch:
            member.previous_epoch = before.epoch
        if now.state is not MemberState.UNREVOKED:
            member.rebalance.cancel()
        elif before.state is not MemberState.UNREVOKED or now.epoch != before.epoch:
            late = partial(self._put_out, member, "did not let go of its partitions in time")
            member.rebalance.set(member.rebalance_timeout, late)

    # -- going

    def _leave(self, beat: Beat) -> Told:
        member = self._member(beat)
        if beat.epoch == AWAY:
            # Its share waits for it until its session ends; what it had to give up, it has given up.
            away = Current(MemberState.STABLE, AWAY, member.current.assigned)
            self._move(member, away)
        else:
            self._remove(member)
        return Told(beat.member_id, beat.epoch)

    def _put_out(self, member: ConsumerMember, why: str) -> None:
        _log.info("group %s: %s %s", self.name, member.id, why)
        self._remove(member)

    def _remove(self, member: ConsumerMember) -> None:
        member.session.cancel()
        member.rebalance.cancel()
        for partition in member.held:
            del self._owners[partition]
        del self.members[member.id]
        self._target.pop(member.id, None)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self.epoch += 1
        self._revision = -1  # topics that only it read no longer count
        if not self.members:
            self._occupied(self)

    def _watch(self, member: ConsumerMember) -> None:
        member.last_seen = self._clock.monotonic()
        if not member.session.is_set:
            member.session.set(self._session(member), partial(self._check_session, member))

    def _session(self, member: ConsumerMember) -> float:
        """How long it may be silent: as it says itself, or the group's setting."""
        own = member.session_timeout
        return self._session_seconds() if own is None else own

    def _check_session(self, member: ConsumerMember) -> None:
        # One timer that is put off when it goes off, instead of a new one for every heartbeat.
        left = member.last_seen + self._session(member) - self._clock.monotonic()
        if left > 0:
            member.session.set(left, partial(self._check_session, member))
        else:
            self._put_out(member, "has not been heard of: its session has ended")

    def stop(self) -> None:
        """Watch nobody any more: the broker is on its way out."""
        for member in self.members.values():
            member.session.cancel()
            member.rebalance.cancel()

    def die(self) -> None:
        """Remove an empty group."""
        assert not self.members, f"{self.name} has members"
        self._dead = True

    # -- committed offsets

    def check_commit(self, member_id: str, epoch: int, partitions: Collection[PartitionId]) -> None:
        """Pass if offsets may be committed: by a member, or by anybody while there is none."""
        if epoch < 0 and not self.members:
            return
        # A member may not know yet that it has moved on. What it has held all the while was its own
        # at the epoch it knows, too, so nobody else's commit can be undone by this one (KIP-1251).
        member = self.members.get(member_id)
        if member is not None and member.current.epoch > epoch >= JOINING:
            since = member.since
            if all(since.get(partition, epoch + 1) <= epoch for partition in partitions):
                return
        self._check_epoch(member_id, epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Pass if offsets may be fetched: by a member, or by somebody who does not claim to be one."""
        if epoch < 0 and (member_id is None or not self.members):
            return
        self._check_epoch(member_id or "", epoch)

    def _check_epoch(self, member_id: str, epoch: int) -> None:
        member = self.members.get(member_id)
        if member is None:
            raise self._unknown(member_id)
        if epoch != member.current.epoch:
            raise StaleMemberEpochError(
                f"use offsets of group {self.name}",
                f"epoch {epoch} where the member is at {member.current.epoch}",
                "try again with the epoch of the last heartbeat",
            )

    def _unknown(self, member_id: str) -> UnknownMemberError:
        return UnknownMemberError(
            f"use group {self.name}", f"{member_id[:100]!r} is not a member", "join again"
        )


def before_restart(name: str) -> FencedMemberEpochError:
    """For a member with an epoch that the group has not reached since the server was started.

    Most clients join again after any answer that they are no member; some only after this one.
    """
    return FencedMemberEpochError(
        f"use group {name[:100]}",
        "its members are not known any more since the server was restarted",
        "give up all partitions and join again",
    )


def check(beat: Beat) -> None:
    """Refuse what no well-made client sends, whatever its group."""
    operation = "take a heartbeat"
    if "" in (beat.instance_id, beat.rack_id):
        raise InvalidHeartbeatError(operation, "an empty group.instance.id or client.rack")
    if beat.epoch < AWAY:
        raise InvalidHeartbeatError(operation, f"{beat.epoch} is no epoch")
    if beat.epoch == AWAY and beat.instance_id is None:
        raise InvalidHeartbeatError(operation, "only a member with group.instance.id can come back")
    if beat.epoch == JOINING:
        if beat.rebalance_timeout_ms == -1:
            raise InvalidHeartbeatError(operation, "a member that joins has no rebalance timeout")
        if beat.owned is None or beat.owned:
            raise InvalidHeartbeatError(operation, "a member that joins must own nothing")
        if beat.topics is None and not beat.pattern:
            raise InvalidHeartbeatError(operation, "a member that joins subscribes to nothing")
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        raise UnsupportedAssignorError(
            operation,
            f"there is no assignor {beat.assignor[:100]!r}",
            f"use one of {', '.join(ASSIGNORS)}",
        )
    if beat.pattern:
        compile_pattern(beat.pattern)
