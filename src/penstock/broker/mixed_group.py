"""A consumer group in which some members still, or again, use the classic protocol.

The server shares out the work for all of them. A member of the classic protocol says with each join
what it has, and is told with the sync that follows what it may use; its generation is the epoch that
it has reached. Whenever there is something new for it, its heartbeat is answered with "join again".
So a group moves from one protocol to the other with its members, one by one and without a stop:

    classic members only          a Group; the first consumer that comes turns it into this one
    both kinds                    here
    the last consumer has gone    `deserted` is called, and it becomes a Group again
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from penstock.broker.assignors import Share
from penstock.broker.consumer_group import ConsumerGroup
from penstock.broker.consumer_member import Beat, ConsumerMember
from penstock.broker.dialect import Dialect, Place, Subscription
from penstock.broker.group_errors import (
    FencedInstanceError,
    GroupError,
    GroupFullError,
    IllegalGenerationError,
    InconsistentProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
)
from penstock.broker.group_member import Identity, Joined, JoinRequest, Member, Synced
from penstock.broker.reconciliation import Current, MemberState
from penstock.broker.timers import CallLater
from penstock.broker.topic_directory import TopicDirectory
from penstock.clock import Clock
from penstock.limits import GROUP_MEMBERS_MAX
from penstock.log.positions import PartitionId


class MixedGroup(ConsumerGroup):
    """See the module."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        call_later: CallLater,
        topics: TopicDirectory,
        session_seconds: Callable[[], float],
        occupied: Callable[[ConsumerGroup], None],
        dialect: Dialect,
        deserted: Callable[[MixedGroup], None],
    ) -> None:
        super().__init__(name, clock, call_later, topics, session_seconds, occupied)
        self._dialect = dialect
        self._deserted = deserted

    @property
    def classic(self) -> list[ConsumerMember]:
        """The members that use the classic protocol."""
        return [member for member in self.members.values() if member.seat is not None]

    # -- taking over a group whose members share out the work

    def adopt(self, generation: int, members: Iterable[Member]) -> None:
        """Go on with these members, each with the share that it has."""
        self.epoch = self.target_epoch = generation
        for old in members:
            request = old.request
            subscription = self._read(request)
            member = ConsumerMember(
                old.id, self._beat(old.id, request, subscription), self._call_later
            )
            self._add(member)
            self._sit_down(member, request)
            member.update(self._beat(old.id, request, subscription))
            # A leader may have given a partition to two; here it has one owner.
            share = self._ids(self._dialect.share(old.assignment)) - self._owners.keys()
            self._target[member.id] = share
            member.synced_epoch = generation
            self._move(member, Current(MemberState.STABLE, generation, share))
            self._watch(member)
        self._look_at_topics()

    # -- joining

    def join(self, request: JoinRequest) -> Joined:
        """Become or stay a member; raises a GroupError if it cannot."""
        subscription = self._read(request)
        self._check_protocols(request)
        member = self._seat(request, subscription)
        is_new = member.id not in self.members
        if is_new:
            self._add(member)
        self._sit_down(member, request)
        self._attend(member, self._beat(member.id, request, subscription), is_new=is_new)
        protocol = request.protocols[0].name
        joined = Joined(member.id, member.current.epoch, self.protocol_type, protocol, "", ())
        self.settle()  # a static member may have been the last that used the other protocol
        return joined

    def _read(self, request: JoinRequest) -> Subscription:
        operation = f"join group {self.name}"
        if request.protocol_type != self.protocol_type or not request.protocols:
            raise InconsistentProtocolError(operation, "its members are consumers")
        try:
            return self._dialect.subscription(request.protocols[0].metadata)
        except ValueError as error:
            cause = f"its subscription cannot be read: {error}"
            raise InconsistentProtocolError(operation, cause) from error

    def _check_protocols(self, request: JoinRequest) -> None:
        """One protocol must be known to all, for the day when only these members are left."""
        common = {protocol.name for protocol in request.protocols}
        for member in self.classic:
            if member.seat is not None and member.id != request.member_id:
                common &= {protocol.name for protocol in member.seat.protocols}
        if not common:
            raise InconsistentProtocolError(
                f"join group {self.name}",
                "the member knows none of the protocols that all others know",
                "let all members use the same assignment strategy",
            )

    def _seat(self, request: JoinRequest, subscription: Subscription) -> ConsumerMember:
        """The member that joins: a known one, a static one in a new process, or a new one."""
        if request.member_id:
            known = self.members.get(request.member_id)
            if known is not None:
                return self._classic(Identity(request.member_id, request.instance_id))
        member_id = request.member_id or request.new_id()
        if request.instance_id is not None:
            old_id = self._static.get(request.instance_id)
            if old_id is not None:
                return self._replace(self.members[old_id], member_id)
        if len(self.members) >= GROUP_MEMBERS_MAX:
            raise GroupFullError(f"join group {self.name}", f"it has {GROUP_MEMBERS_MAX} members")
        if not request.member_id and request.instance_id is None and request.must_know_id:
            raise MemberIdRequiredError(f"join group {self.name}", member_id)
        return ConsumerMember(
            member_id, self._beat(member_id, request, subscription), self._call_later
        )

    def _sit_down(self, member: ConsumerMember, request: JoinRequest) -> None:
        member.seat = request
        member.session_timeout = request.session_timeout_ms / 1000
        member.assignor = None
        member.pattern = ""
        member.session.cancel()  # so that the new timeout counts

    def _beat(self, member_id: str, request: JoinRequest, subscription: Subscription) -> Beat:
        return Beat(
            member_id=member_id,
            epoch=0,
            instance_id=request.instance_id,
            rack_id=subscription.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=subscription.topics,
            owned=self._ids(subscription.owned),
        )

    def _ids(self, places: Iterable[Place]) -> Share:
        found: set[PartitionId] = set()
        for name, number in places:
            shape = self._topics.get(name)
            if shape is not None:
                found.add(PartitionId(shape.id, number))
        return frozenset(found)

    # -- what else members of the classic protocol do

    def sync(self, who: Identity, generation: int) -> Synced:
        """What a member may use."""
        member = self._classic(who)
        self._check_generation(member, generation)
        self._watch(member)
        member.synced_epoch = member.current.epoch
        assert member.seat is not None
        names = {shape.id: name for name, shape in self._shapes.items()}
        held = [
            (names[p.topic_id], p.partition) for p in member.current.assigned if p.topic_id in names
        ]
        protocol = member.seat.protocols[0].name
        return Synced(self.protocol_type, protocol, self._dialect.assignment(held))

    def classic_heartbeat(self, who: Identity, generation: int) -> None:
        """A member is alive; raises what it must know."""
        member = self._classic(who)
        self._check_generation(member, generation)
        self._watch(member)
        self._refresh()
        if not self._has_news(member):
            return
        if not member.rebalance.is_set:
            late = partial(self._put_out, member, "did not join again in time")
            member.rebalance.set(member.rebalance_timeout, late)
        raise RebalanceInProgressError(
            f"use group {self.name}", "there is another share for it", "join again"
        )

    def _has_news(self, member: ConsumerMember) -> bool:
        current = member.current
        if current.state is MemberState.UNREVOKED or current.epoch < self.target_epoch:
            return True
        missing = self.target(member) - current.assigned
        return any(partition not in self._owners for partition in missing)

    def leave(self, leaving: Iterable[Identity]) -> list[GroupError | None]:
        """Members go, or are put out by their instance id; what was wrong with each."""
        results: list[GroupError | None] = []
        for who in leaving:
            try:
                super()._remove(self._to_leave(who))
            except GroupError as error:
                results.append(error)
            else:
                results.append(None)
        self.settle()  # when all have gone: those who stay go on in another group
        return results

    def _to_leave(self, who: Identity) -> ConsumerMember:
        if who.member_id:
            return self._classic(who)
        # A static member of either protocol, which somebody puts out.
        return self._found(who._replace(member_id=self._static.get(who.instance_id or "", "")))

    def _remove(self, member: ConsumerMember) -> None:
        super()._remove(member)
        self.settle()

    def settle(self) -> None:
        """Say so if only members of the classic protocol are left."""
        if self.members and len(self.classic) == len(self.members):
            self._deserted(self)

    def dissolve(self) -> tuple[int, dict[str, JoinRequest]]:
        """Let go of everybody, to go on as a Group: the generation they have, and who they are."""
        generation = max(member.current.epoch for member in self.members.values())
        seats = {member.id: member.seat for member in self.members.values() if member.seat}
        self.stop()
        self.members.clear()
        self.die()
        return max(generation, 0), seats

    # -- who may do what

    def _classic(self, who: Identity) -> ConsumerMember:
        member = self._found(who)
        if member.seat is None:
            raise self._unknown(who.member_id)  # it is one, but not of this protocol
        return member

    def _found(self, who: Identity) -> ConsumerMember:
        if who.instance_id is not None:
            known = self._static.get(who.instance_id)
            if known is not None and known != who.member_id:
                raise FencedInstanceError(
                    f"use group {self.name}",
                    f"another process has taken over group.instance.id {who.instance_id!r}",
                    "give every process an id of its own",
                )
        member = self.members.get(who.member_id)
        if member is None:
            raise self._unknown(who.member_id)
        return member

    def _check_generation(self, member: ConsumerMember, generation: int) -> None:
        if generation != member.current.epoch:
            raise IllegalGenerationError(
                f"use group {self.name}",
                f"generation {generation} where {member.id} is at {member.current.epoch}",
                "join again",
            )

    def check_commit(self, member_id: str, epoch: int, partitions: Collection[PartitionId]) -> None:
        """Pass if offsets may be committed; a classic member's epoch is its generation."""
        member = self.members.get(member_id)
        if member is None or member.seat is None:
            super().check_commit(member_id, epoch, partitions)
            return
        # One that reads on while it joins commits with the generation whose share it still has.
        if epoch != member.synced_epoch:
            self._check_generation(member, epoch)
        self._watch(member)

    def uses_classic(self, member_id: str) -> bool:
        """Whether this is a member, of the classic protocol."""
        member = self.members.get(member_id)
        return member is not None and member.seat is not None
