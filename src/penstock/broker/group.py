"""A group of clients that share work, as a state machine (Kafka's classic group protocol).

    EMPTY        nobody; offsets may be kept
    PREPARING    members are gathered: each must join, or join again
    COMPLETING   all have joined; the leader shares out the work and sends it with its sync
    STABLE       everybody has a share
    DEAD         removed, or taken over by a MixedGroup; nobody can reach it any more

What may follow what stands in `_NEXT`, and what a request means in a state in the tables at the end.
What the shares look like is the members' business: protocols and assignments are opaque here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Final

from penstock.broker.group_errors import (
    FencedInstanceError,
    GroupError,
    GroupFullError,
    GroupsStoppingError,
    IllegalGenerationError,
    InconsistentProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from penstock.broker.group_member import (
    Identity,
    JoinAnswer,
    Joined,
    JoinedMember,
    JoinRequest,
    Member,
    SyncAnswer,
    Synced,
    WaitingJoin,
    elected_protocol,
)
from penstock.broker.timers import Alarm, CallLater
from penstock.clock import Clock
from penstock.limits import FIRST_MEMBERS_SECONDS, GROUP_MEMBERS_MAX

_log = logging.getLogger(__name__)


class State(Enum):
    """See the module; the values are the names that people know."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_NEXT: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY, State.DEAD}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING, State.DEAD}),
    State.DEAD: frozenset(),
}


class Group:
    """See the module. `occupied` is called when the first member comes and the last one goes."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        call_later: CallLater,
        occupied: Callable[[Group], None],
        protocol_type: str = "",
    ) -> None:
        self.name = name
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = protocol_type
        self.protocol = ""
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self._clock = clock
        self._call_later = call_later
        self._occupied = occupied
        self._static: dict[str, str] = {}  # member ids by instance id
        self._pending: dict[str, Alarm] = {}  # ids given out to members that have not come back yet
        self._support: Counter[str] = Counter()  # how many members know each protocol
        self._absent: set[str] = set()  # while preparing: those that have not joined again
        self._unsynced: set[str] = set()  # after that: those that have not asked for their share
        self._first = False  # whether the group was empty before this rebalance
        self._phase = Alarm(call_later)  # the end of the phase, for those that do not come

    @property
    def is_empty(self) -> bool:
        """Whether there are no members."""
        return self.state is State.EMPTY

    @property
    def pending(self) -> int:
        """Members that have an id and are expected to join with it."""
        return len(self._pending)

    def _become(self, state: State) -> None:
        assert state in _NEXT[self.state], f"{self.name}: {self.state} to {state}"
        before, self.state = self.state, state
        if State.EMPTY in (before, state) and state is not State.DEAD:
            self._occupied(self)

    def die(self) -> None:
        """Remove an empty group."""
        assert self.is_empty, f"{self.name} has members"
        self._forget_pending()
        self._become(State.DEAD)

    def stop(self) -> None:
        """Let go of everybody who waits: the broker is on its way out."""
        use = f"use group {self.name}"
        self._let_go(GroupsStoppingError(use, "the broker stops", "look for it anew"))

    def _forget_pending(self) -> None:
        while self._pending:
            self._pending.popitem()[1].cancel()

    def _let_go(self, error: GroupError) -> None:
        self._phase.cancel()
        self._forget_pending()
        for member in self.members.values():
            member.session.cancel()
            member.finish_join(error)
            member.finish_sync(error)

    # -- changing hands (mixed_group.py)

    def hand_over(self) -> tuple[list[Member], list[WaitingJoin]]:
        """Those that have got a generation, and the joins to answer, to go on with elsewhere."""
        members = self.members.values()
        waiting = [join for member in members if (join := member.take_join()) is not None]
        self._let_go(self._rebalancing())
        self._become(State.DEAD)
        return [member for member in members if not member.is_new], waiting

    def take_over(self, generation: int, members: Mapping[str, JoinRequest]) -> None:
        """Go on with these members, who have this generation and must all join again."""
        self.generation = generation
        for member in [self._enrol(*item) for item in members.items()]:
            member.is_new = False
            self._watch(member)
        self._absent = set(self.members)
        self._become(State.PREPARING)
        self._phase.set(self._rebalance_timeout(), self._complete)

    # -- joining

    def join(self, request: JoinRequest, answer: JoinAnswer) -> None:
        """Become or stay a member; answered when all have joined, or with a GroupError."""
        try:
            self._check_protocols(request)
            if not request.member_id:
                self._join_new(request, answer)
            elif request.member_id in self._pending:
                self._pending.pop(request.member_id).cancel()
                self._add(request.member_id, request, answer)
            else:
                member = self._member(Identity(request.member_id, request.instance_id))
                self._seen(member)
                _JOIN_AGAIN[self.state](self, member, request, answer)
        except GroupError as error:
            answer(error)

    def _check_protocols(self, request: JoinRequest) -> None:
        operation = f"join group {self.name}"
        if not request.protocol_type or not request.protocols:
            raise InconsistentProtocolError(operation, "a protocol type and a protocol are needed")
        if not self.members:
            return
        if request.protocol_type != self.protocol_type:
            raise InconsistentProtocolError(
                operation, f"its members are of type {self.protocol_type!r}"
            )
        if not any(self._support[p.name] == len(self.members) for p in request.protocols):
            raise InconsistentProtocolError(
                operation,
                "the member knows none of the protocols that all others know",
                "let all members use the same assignment strategy",
            )

    def _join_new(self, request: JoinRequest, answer: JoinAnswer) -> None:
        old_id = self._static.get(request.instance_id or "")
        if old_id is not None:
            self._replace_static(old_id, request, answer)
            return
        if len(self.members) + len(self._pending) >= GROUP_MEMBERS_MAX:
            raise GroupFullError(f"join group {self.name}", f"it has {GROUP_MEMBERS_MAX} members")
        member_id = request.new_id()
        if request.instance_id is None and request.must_know_id:
            alarm = self._pending[member_id] = Alarm(self._call_later)
            alarm.set(request.session_timeout_ms / 1000, partial(self._give_up, member_id))
            raise MemberIdRequiredError(f"join group {self.name}", member_id)
        self._add(member_id, request, answer)

    def _give_up(self, member_id: str) -> None:
        """Expect a member no longer that has got an id."""
        self._pending.pop(member_id).cancel()
        if self.state is State.PREPARING:
            self._complete_if_gathered()

    def _add(self, member_id: str, request: JoinRequest, answer: JoinAnswer) -> None:
        member = self._enrol(member_id, request)
        member.answer_join = answer
        self._watch(member)
        self._rebalance(f"{member_id} joined")

    def _enrol(self, member_id: str, request: JoinRequest) -> Member:
        member = Member(member_id, request, self._call_later)
        self.members[member_id] = member
        if request.instance_id is not None:
            self._static[request.instance_id] = member_id
        if self.leader_id is None:
            self.leader_id = member_id
        self.protocol_type = request.protocol_type
        self._support.update(protocol.name for protocol in request.protocols)
        return member

    def _wait_in_preparing(
        self, member: Member, request: JoinRequest, answer: JoinAnswer, why: str = "joined again"
    ) -> None:
        """Take over what a known member says, and gather everybody."""
        self._update(member, request)
        # Nobody waits for an answer to the earlier try; it is given so that none stays open.
        member.finish_join(self._rebalancing())
        member.answer_join = answer
        self._absent.discard(member.id)
        self._watch(member)
        self._rebalance(f"{member.id} {why}")

    def _join_while_completing(
        self, member: Member, request: JoinRequest, answer: JoinAnswer
    ) -> None:
        if member.protocols == request.protocols:
            answer(self._joined(member))  # the client did not get the first answer
        else:
            self._wait_in_preparing(member, request, answer, "changed its protocols")

    def _join_while_stable(self, member: Member, request: JoinRequest, answer: JoinAnswer) -> None:
        if member.id == self.leader_id:
            # How a leader asks for a new assignment, for example when partitions were added.
            self._wait_in_preparing(member, request, answer, "leads and joined again")
        else:
            self._join_while_completing(member, request, answer)

    def _update(self, member: Member, request: JoinRequest) -> None:
        self._support.subtract(protocol.name for protocol in member.protocols)
        member.update(request)
        self._support.update(protocol.name for protocol in member.protocols)

    # -- static members

    def _replace_static(self, old_id: str, request: JoinRequest, answer: JoinAnswer) -> None:
        """Another process takes a static member's place, and its share; the old one is fenced."""
        member = self.members.pop(old_id)
        member.finish_join(self._fenced(member.instance_id))
        member.finish_sync(self._fenced(member.instance_id))
        member.id = request.new_id()
        self.members[member.id] = member
        assert member.instance_id is not None
        self._static[member.instance_id] = member.id
        old_leader = self.leader_id
        if old_leader == old_id:
            self.leader_id = member.id
        for waiting in (self._absent, self._unsynced):
            if old_id in waiting:
                waiting.remove(old_id)
                waiting.add(member.id)
        self._update(member, request)
        if self.state is State.STABLE and self.protocol == self._elected():
            self._watch(member)
            answer(self._joined_in_place(member, request, old_leader or ""))
            return
        # While completing, the leader is sharing out work to the old id: it has to begin anew.
        self._wait_in_preparing(member, request, answer, f"replaced {old_id}")

    def _joined_in_place(self, member: Member, request: JoinRequest, old_leader: str) -> Joined:
        joined = self._joined(member)
        if member.id != self.leader_id:
            return joined
        if request.may_skip_assignment:
            return joined._replace(skip_assignment=True)
        # A client that cannot be told to skip the assignment must not take itself for the leader.
        return joined._replace(leader_id=old_leader, members=())

    # -- rebalancing

    def _rebalance(self, why: str) -> None:
        if self.state is not State.PREPARING:
            _log.debug("group %s rebalances: %s", self.name, why)
            self._unsynced.clear()
            for member in self.members.values():
                self._answer_sync(member, self._rebalancing())
            self._first = self.state is State.EMPTY
            self._absent = {m.id for m in self.members.values() if m.answer_join is None}
            self._become(State.PREPARING)
            patience = FIRST_MEMBERS_SECONDS if self._first else self._rebalance_timeout()
            self._phase.set(patience, self._complete)
        self._complete_if_gathered()

    def _complete_if_gathered(self) -> None:
        if self._absent or self._pending:
            return
        if self._first and self.members:
            # After this turn of the loop, so that members that come together start together.
            self._phase.set(0.0, self._complete)
        else:
            self._complete()

    def _complete(self) -> None:
        """Go on with those that have joined; static members may be absent until their session ends."""
        self._phase.cancel()
        for member_id in list(self._absent):
            if self.members[member_id].instance_id is None:
                self._remove(self.members[member_id])
        if not self.members:
            self.generation += 1
            self.protocol = ""
            self._support.clear()
            self._become(State.EMPTY)
            return
        if not self._elect_leader():
            self._phase.set(self._rebalance_timeout(), self._complete)
            return
        self.generation += 1
        self.protocol = self._elected()
        self._become(State.COMPLETING)
        self._unsynced = set(self.members) - self._absent
        self._absent = set()
        self._phase.set(self._rebalance_timeout(), self._drop_unsynced)
        for member_id in self._unsynced:
            member = self.members[member_id]
            member.is_new = False
            self._watch(member)
            member.finish_join(self._joined(member))

    def _elect_leader(self) -> bool:
        """Keep the leader if it has joined, or take the first member that has."""
        if self.leader_id in self._absent or self.leader_id not in self.members:
            joined = (m for m in self.members if m not in self._absent)
            self.leader_id = next(joined, self.leader_id)
        return self.leader_id not in self._absent

    def _drop_unsynced(self) -> None:
        """Members that joined and never asked for their share are gone."""
        late = [self.members[member_id] for member_id in self._unsynced]
        for member in late:
            self._remove(member)
        if late:
            self._rebalance(f"{len(late)} members did not sync")

    def _elected(self) -> str:
        everyone = len(self.members)
        candidates = {name for name, count in self._support.items() if count == everyone}
        return elected_protocol(self.members.values(), candidates)

    def _rebalance_timeout(self) -> float:
        return max((m.rebalance_timeout for m in self.members.values()), default=0.0)

    def _joined(self, member: Member) -> Joined:
        assert self.leader_id is not None
        everybody: tuple[JoinedMember, ...] = ()
        if member.id == self.leader_id:
            everybody = tuple(
                JoinedMember(m.id, m.instance_id, m.metadata(self.protocol))
                for m in self.members.values()
            )
        return Joined(
            member.id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader_id,
            everybody,
        )

    # -- syncing

    def sync(
        self,
        who: Identity,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        answer: SyncAnswer,
    ) -> None:
        """Ask for a share, or as the leader give everybody one; answered when there is one."""
        try:
            member = self._member(who)
            self._check_generation(generation)
            for given, known in zip(protocol, (self.protocol_type, self.protocol), strict=True):
                if given is not None and given != known:
                    raise InconsistentProtocolError(
                        f"sync with group {self.name}", f"{given!r} where it uses {known!r}"
                    )
            _SYNC[self.state](self, member, assignments, answer)
        except GroupError as error:
            answer(error)

    def _sync_while_completing(
        self, member: Member, assignments: Mapping[str, bytes], answer: SyncAnswer
    ) -> None:
        member.finish_sync(self._rebalancing())  # an earlier try
        member.answer_sync = answer
        self._has_synced(member)
        if member.id != self.leader_id:
            return
        for other in self.members.values():
            other.assignment = assignments.get(other.id, b"")
        self._become(State.STABLE)
        for other in self.members.values():
            self._answer_sync(other, self._share(other))

    def _sync_while_stable(
        self, member: Member, assignments: Mapping[str, bytes], answer: SyncAnswer
    ) -> None:
        self._has_synced(member)
        answer(self._share(member))

    def _refuse_sync(
        self, member: Member, assignments: Mapping[str, bytes], answer: SyncAnswer
    ) -> None:
        self._seen(member)
        raise self._rebalancing()

    def _has_synced(self, member: Member) -> None:
        self._seen(member)
        self._unsynced.discard(member.id)
        if not self._unsynced:
            self._phase.cancel()

    def _answer_sync(self, member: Member, answer: Synced | GroupError) -> None:
        if member.answer_sync is not None:
            self._seen(member)  # until now it could not send heartbeats
            member.finish_sync(answer)

    def _share(self, member: Member) -> Synced:
        return Synced(self.protocol_type, self.protocol, member.assignment)

    # -- staying and going

    def heartbeat(self, who: Identity, generation: int) -> None:
        """A member is alive; raises what it must know."""
        member = self._member(who)
        self._check_generation(generation)
        self._seen(member)
        if self.state is State.PREPARING:
            raise self._rebalancing()

    def leave(self, leaving: Iterable[Identity]) -> list[GroupError | None]:
        """Members go, or are put out by their instance id; what was wrong with each."""
        results: list[GroupError | None] = []
        for who in leaving:
            try:
                self._leave(who)
            except GroupError as error:
                results.append(error)
            else:
                results.append(None)
        if None in results:
            self._after_removal("members left")
        return results

    def _leave(self, who: Identity) -> None:
        if who.member_id in self._pending:
            self._pending.pop(who.member_id).cancel()
            return
        if not who.member_id:
            who = who._replace(member_id=self._static.get(who.instance_id or "", ""))
        self._remove(self._member(who))

    def _remove(self, member: Member) -> None:
        """Take a member out; the caller sees to what follows from it."""
        del self.members[member.id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self._support.subtract(protocol.name for protocol in member.protocols)
        self._absent.discard(member.id)
        self._unsynced.discard(member.id)
        member.session.cancel()
        if self.leader_id == member.id:
            self.leader_id = next(iter(self.members), None)
        member.finish_join(self._unknown(member.id))
        member.finish_sync(self._unknown(member.id))

    def _after_removal(self, why: str) -> None:
        if self.state in (State.COMPLETING, State.STABLE):
            self._rebalance(why)
        elif self.state is State.PREPARING:
            self._complete_if_gathered()

    def _seen(self, member: Member) -> None:
        member.last_seen = self._clock.monotonic()

    def _watch(self, member: Member) -> None:
        """Begin a member's session."""
        self._seen(member)
        member.session.set(member.patience, partial(self._check_session, member))

    def _check_session(self, member: Member) -> None:
        now = self._clock.monotonic()
        if member.is_waiting and not member.is_new:
            member.last_seen = now  # it cannot send heartbeats while it waits for us
        # One timer that is put off when it goes off, instead of a new one for every heartbeat.
        left = member.last_seen + member.patience - now
        if left > 0:
            member.session.set(left, partial(self._check_session, member))
            return
        _log.info("group %s: the session of %s has ended", self.name, member.id)
        self._remove(member)
        self._after_removal(f"the session of {member.id} has ended")

    # -- who may do what

    def _member(self, who: Identity) -> Member:
        """The member, or UnknownMemberError, or FencedInstanceError if another has its place."""
        if who.instance_id is not None:
            known = self._static.get(who.instance_id)
            if known is None:
                raise self._unknown(who.member_id)
            if known != who.member_id:
                raise self._fenced(who.instance_id)
        member = self.members.get(who.member_id)
        if member is None:
            raise self._unknown(who.member_id)
        return member

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGenerationError(
                f"use group {self.name}",
                f"generation {generation} where it is at {self.generation}",
                "join again",
            )

    def check_commit(self, who: Identity, generation: int) -> None:
        """Pass if offsets may be committed: by a member, or by anybody while there is none."""
        if generation < 0 and self.state is State.EMPTY:
            return
        self._check_committer(who, generation)
        if self.state is State.COMPLETING:
            raise self._rebalancing()

    def _check_committer(self, who: Identity, generation: int) -> None:
        if generation < 0 and not who.member_id and who.instance_id is None:
            raise UnknownMemberError(
                f"commit offsets of group {self.name}",
                "it has members, and this is none of them",
                "stop its members first",
            )
        self._seen(self._member(who))
        self._check_generation(generation)

    def _unknown(self, member_id: str) -> UnknownMemberError:
        return UnknownMemberError(
            f"use group {self.name}", f"{member_id[:100]!r} is not a member", "join again"
        )

    def _fenced(self, instance_id: str | None) -> FencedInstanceError:
        return FencedInstanceError(
            f"use group {self.name}",
            f"another process has taken over group.instance.id {instance_id!r}",
            "give every process an id of its own",
        )

    def _rebalancing(self) -> RebalanceInProgressError:
        return RebalanceInProgressError(
            f"use group {self.name}", "its members are being gathered", "join again"
        )


# What the requests of a known member do. In EMPTY and DEAD there are no members.
_JOIN_AGAIN: Final = {
    State.PREPARING: Group._wait_in_preparing,
    State.COMPLETING: Group._join_while_completing,
    State.STABLE: Group._join_while_stable,
}
_SYNC: Final = {
    State.PREPARING: Group._refuse_sync,
    State.COMPLETING: Group._sync_while_completing,
    State.STABLE: Group._sync_while_stable,
}
