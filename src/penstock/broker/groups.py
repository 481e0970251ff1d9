"""All groups of the broker: finds them, makes them, removes them, and keeps what they commit.

Membership lives in memory: after a restart members are told that they are unknown, and join again.
Committed offsets live in a journal (offsets.py), what share groups have finished in another (queues/).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from uuid import UUID

from penstock.broker.consumer_group import ConsumerGroup, before_restart, check
from penstock.broker.consumer_member import JOINING, Beat, Told
from penstock.broker.dialect import Dialect
from penstock.broker.group import Group
from penstock.broker.group_config import GroupConfigs
from penstock.broker.group_errors import (
    GroupError,
    GroupFullError,
    GroupsStoppingError,
    IllegalGenerationError,
    InconsistentProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    MetadataTooLargeError,
    NonEmptyGroupError,
    UnknownGroupError,
    UnknownMemberError,
)
from penstock.broker.group_member import Identity, JoinAnswer, JoinRequest, SyncAnswer
from penstock.broker.held_offsets import HeldOffsets
from penstock.broker.journaling import Done
from penstock.broker.mixed_group import MixedGroup
from penstock.broker.offsets import CommittedOffsets
from penstock.broker.queues.queues import Queues
from penstock.broker.share_group import ShareGroup
from penstock.broker.timers import CallLater
from penstock.broker.topic_directory import TopicDirectory
from penstock.clock import Clock
from penstock.errors import StorageError
from penstock.limits import (
    CONSUMER_HEARTBEAT_SECONDS,
    CONSUMER_HEARTBEAT_SECONDS_MIN,
    CONSUMER_HEARTBEATS_PER_SECOND,
    GROUP_MEMBERS_MAX,
    NAME_BYTES_MAX,
    OFFSET_METADATA_CHARS_MAX,
    OFFSETS_CHECK_SECONDS,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
)
from penstock.log.committed import Committed, Offsets
from penstock.log.positions import Ends, PartitionId
from penstock.log.store import LogStore

AnyGroup = Group | MixedGroup | ShareGroup
_COUNT_SECONDS = 1.0


class Groups:
    """See the module."""

    def __init__(
        self, store: LogStore, clock: Clock, call_later: CallLater, dialect: Dialect
    ) -> None:
        self._clock = clock
        self._call_later = call_later
        self._dialect = dialect
        self._groups: dict[str, AnyGroup] = {}
        self.topics = TopicDirectory()
        """What the broker lets groups know of its topics."""
        self._offsets = CommittedOffsets(store, clock)
        self.held = HeldOffsets()
        """What transactions that are open may commit."""
        self.configs = GroupConfigs(store)
        """The groups' settings."""
        self.queues = Queues(store, clock, call_later, lambda name: self.configs.of(name).rules)
        """What share groups have finished, and what their members hold."""
        self.stopping = False
        """Whether the broker is on its way out, and nobody is to be kept waiting."""
        self._expired_at = clock.monotonic()
        self._heartbeat_seconds = CONSUMER_HEARTBEAT_SECONDS_MIN
        self._counted_at = -_COUNT_SECONDS

    def open(self, topics: Collection[UUID], end_of: Ends) -> None:
        """Find the groups that have committed offsets, or finished records, in topics that exist."""
        for name, kind in self._offsets.open(topics, end_of).items():
            self._make(name, kind)
        for name in self.queues.open(topics, end_of):
            self._groups[name] = self._new_share_group(name)

    def stop(self) -> None:
        """Answer everybody who waits, and take no more."""
        self.stopping = True
        for group in self._groups.values():
            group.stop()
        self.queues.stop()

    # -- looking

    def all(self) -> list[AnyGroup]:
        """Every group, by name."""
        return [self._groups[name] for name in sorted(self._groups)]

    def get(self, name: str) -> AnyGroup:
        """A group, or UnknownGroupError."""
        try:
            return self._groups[name]
        except KeyError:
            raise UnknownGroupError(
                f"use group {name[:100]}", f"Group {name[:100]} not found."
            ) from None

    def __contains__(self, name: str) -> bool:
        """Whether a group of any kind has that name."""
        return name in self._groups

    def offsets(self, name: str) -> Mapping[PartitionId, Committed]:
        """What a group has committed; nothing, for one that does not exist."""
        return self._offsets.of(name)

    # -- membership

    def join(self, name: str, request: JoinRequest, answer: JoinAnswer) -> None:
        """See Group.join; a new member makes the group."""
        try:
            self._check_usable(name)
            timeout = request.session_timeout_ms
            if not SESSION_TIMEOUT_MS_MIN <= timeout <= SESSION_TIMEOUT_MS_MAX:
                raise InvalidSessionTimeoutError(
                    f"join group {name}",
                    f"a session timeout of {timeout} ms",
                    f"it must be from {SESSION_TIMEOUT_MS_MIN} to {SESSION_TIMEOUT_MS_MAX}",
                )
            group = self._to_join(name, request)
            if isinstance(group, MixedGroup):
                answer(group.join(request))
                return
        except GroupError as error:
            answer(error)
        else:
            group.join(request, answer)

    def _to_join(self, name: str, request: JoinRequest) -> Group | MixedGroup:
        group = self._groups.get(name)
        if isinstance(group, ShareGroup):
            raise InconsistentProtocolError(
                f"join group {name}", "it is a share group", "use another group"
            )
        if isinstance(group, Group) or (group is not None and not group.is_empty):
            return group
        if request.member_id:
            raise _unknown_member(name)
        return self._make(name)

    def sync(
        self,
        name: str,
        who: Identity,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        answer: SyncAnswer,
    ) -> None:
        """See Group.sync."""
        try:
            group = self._with_members(name)
            if isinstance(group, MixedGroup):
                answer(group.sync(who, generation))
                return
        except GroupError as error:
            answer(error)
        else:
            group.sync(who, generation, protocol, assignments, answer)

    def heartbeat(self, name: str, who: Identity, generation: int) -> None:
        """See Group.heartbeat."""
        group = self._with_members(name)
        if isinstance(group, MixedGroup):
            group.classic_heartbeat(who, generation)
        else:
            group.heartbeat(who, generation)

    def leave(self, name: str, leaving: Iterable[Identity]) -> list[GroupError | None]:
        """See Group.leave."""
        return self._with_members(name).leave(leaving)

    def _with_members(self, name: str) -> Group | MixedGroup:
        self._check_usable(name)
        group = self._groups.get(name)
        if group is None or isinstance(group, ShareGroup):
            raise _unknown_member(name)
        return group

    # -- membership, where the server shares out the work

    def consumer_heartbeat(self, name: str, beat: Beat) -> Told:
        """See ConsumerGroup.heartbeat; a new member makes the group."""
        self._check_usable(name)
        check(beat)
        group = self._groups.get(name)
        if isinstance(group, MixedGroup):
            return group.heartbeat(beat)
        if isinstance(group, ShareGroup):
            raise UnknownGroupError(
                f"use group {name}", f"Group {name} is not a consumer group.", "use another group"
            )
        if beat.epoch != JOINING:
            # Kafka says that the group is unknown, which its members take for fatal; but a group is
            # also unknown after a restart, and they have only to join again.
            raise before_restart(name) if beat.epoch > JOINING else _unknown_member(name)
        if group is not None and not group.is_empty:
            return self._upgrade(group, beat)
        made = self._mixed(name)
        told = made.heartbeat(beat)
        if group is not None:
            group.die()
        self._groups[name] = made
        return told

    def heartbeat_seconds(self, name: str) -> float:
        """How often members are to be heard of: the more of them there are, the more seldom.

        Unless the group has a setting of its own.
        """
        own = self.configs.of(name).consumer_heartbeat_seconds
        if own is not None:
            return own
        now = self._clock.monotonic()
        if now - self._counted_at >= _COUNT_SECONDS:
            self._counted_at = now
            groups = [g for g in self._groups.values() if isinstance(g, MixedGroup)]
            wanted = sum(len(group.members) for group in groups) / CONSUMER_HEARTBEATS_PER_SECOND
            self._heartbeat_seconds = min(
                max(wanted, CONSUMER_HEARTBEAT_SECONDS_MIN), CONSUMER_HEARTBEAT_SECONDS
            )
        return self._heartbeat_seconds

    def _mixed(self, name: str) -> MixedGroup:
        return MixedGroup(
            name,
            self._clock,
            self._call_later,
            self.topics,
            lambda: self.configs.of(name).consumer_session_seconds,
            self._occupied,
            self._dialect,
            self._downgrade,
        )

    def _upgrade(self, group: Group, beat: Beat) -> Told:
        """A group whose members share out the work becomes one where the server does it."""
        if group.protocol_type != MixedGroup.protocol_type or not self._is_understood(group):
            raise UnknownGroupError(
                f"use group {group.name}",
                f"Group {group.name} is not a consumer group.",
                "stop its members, which use the classic protocol, first",
            )
        if len(group.members) >= GROUP_MEMBERS_MAX:
            raise GroupFullError(f"join group {group.name}", f"it has {GROUP_MEMBERS_MAX} members")
        made = self._mixed(group.name)
        members, waiting = group.hand_over()
        made.adopt(group.generation, members)
        self._groups[group.name] = made
        try:
            return made.heartbeat(beat)
        finally:
            # Told to join again, librdkafka would make an error of it for the application.
            for request, answer in waiting:
                self.join(group.name, request, answer)

    def _is_understood(self, group: Group) -> bool:
        try:
            for member in group.members.values():
                self._dialect.subscription(member.protocols[0].metadata)
                self._dialect.share(member.assignment)
        except ValueError:
            return False
        return True

    def _downgrade(self, group: MixedGroup) -> None:
        """The last member that used the consumer protocol has gone: the others go on by themselves."""
        made = self._make(group.name)
        made.take_over(*group.dissolve())

    def consumer_group(self, name: str) -> MixedGroup:
        """A group to which the server shares out the work, or UnknownGroupError."""
        group = self.get(name)
        if isinstance(group, MixedGroup):
            return group
        raise UnknownGroupError(f"use group {name}", f"Group {name} is not a consumer group.")

    def has_epochs(self, name: str, member_id: str) -> bool:
        """Whether a client commits with an epoch: that of a group to which the server shares out."""
        group = self._groups.get(name)
        return isinstance(group, MixedGroup) and not group.uses_classic(member_id)

    # -- membership, where many work off the same partitions

    def share_heartbeat(self, name: str, beat: Beat) -> Told:
        """See ShareGroup.heartbeat; a new member makes the group."""
        self._check_usable(name)
        group = self._groups.get(name)
        if isinstance(group, ShareGroup):
            return group.heartbeat(beat)
        if group is not None:
            raise UnknownGroupError(
                f"use group {name}",
                f"Group {name} is not a share group.",
                "use another group, or delete it first",
            )
        if beat.epoch != JOINING:
            raise _unknown_member(name)  # as above
        made = self._new_share_group(name)
        told = made.heartbeat(beat)
        self._groups[name] = made
        return told

    def _new_share_group(self, name: str) -> ShareGroup:
        return ShareGroup(
            name,
            self._clock,
            self._call_later,
            self.topics,
            lambda: self.configs.of(name),
            partial(self.queues.leave, name),
        )

    def share_group(self, name: str) -> ShareGroup:
        """A group whose members work off the same partitions, or UnknownGroupError."""
        group = self.get(name)
        if isinstance(group, ShareGroup):
            return group
        raise UnknownGroupError(f"use group {name}", f"Group {name} is not a share group.")

    def share_group_to_be(self, name: str) -> ShareGroup:
        """The same, made if no group has that name: where it begins can be set before it has members."""
        self._check_usable(name)
        if name not in self._groups:
            self._groups[name] = self._new_share_group(name)
        return self.share_group(name)

    def is_share_group(self, name: str) -> bool:
        """Whether a group's members work off the same partitions."""
        return isinstance(self._groups.get(name), ShareGroup)

    def classic_group(self, name: str) -> Group:
        """A group whose members share out the work, or UnknownGroupError."""
        group = self.get(name)
        if isinstance(group, Group):
            return group
        raise UnknownGroupError(f"use group {name}", f"Group {name} is not a classic group.")

    def _check_usable(self, name: str) -> None:
        if not name:
            raise InvalidGroupIdError("use a group", "its name is empty", "set group.id")
        _check_length(name)
        if self.stopping:
            raise GroupsStoppingError(f"use group {name}", "the broker stops", "look for it anew")

    def _make(self, name: str, kind: str = "") -> Group:
        group = Group(name, self._clock, self._call_later, self._occupied, kind)
        self._groups[name] = group
        return group

    def _occupied(self, group: Group | ConsumerGroup) -> None:
        self._offsets.occupied(group.name, group.protocol_type, empty=group.is_empty)

    # -- committed offsets

    def check_commit(
        self, name: str, who: Identity, generation: int, partitions: Collection[PartitionId]
    ) -> None:
        """Pass if a client may commit for a group; a client without one makes it."""
        _check_length(name)
        group = self._groups.get(name)
        if isinstance(group, ShareGroup):
            raise _no_offsets(name)
        if isinstance(group, MixedGroup):
            group.check_commit(who.member_id, generation, partitions)
        elif group is not None:
            group.check_commit(who, generation)
        elif generation >= 0:
            # Kafka's newer versions answer that the group is unknown, which Java takes for fatal; but
            # a group is also unknown after a restart, and its members have only to join again.
            raise IllegalGenerationError(
                f"commit offsets of group {name[:100]}", "it has no members", "join again"
            )

    def check_fetch(self, name: str, member_id: str | None, epoch: int) -> None:
        """Pass if a client may see where a group stands."""
        group = self._groups.get(name)
        if isinstance(group, ShareGroup):
            raise _no_offsets(name)
        if isinstance(group, MixedGroup):
            group.check_fetch(member_id, epoch)

    def commit(self, name: str, offsets: Offsets, done: Done) -> None:
        """Keep offsets, after check_commit; done is called when they are certain, or with why not."""
        group = self._groups.get(name) or self._make(name)
        if not self._offsets.of(name):
            done = partial(self._first_committed, name, done)
        self._offsets.put(name, group.protocol_type, offsets, done)

    def _first_committed(self, name: str, done: Done, error: StorageError | None) -> None:
        # A look for groups of which nothing is left may have come before the first offset did.
        if name not in self._groups and self._offsets.of(name):
            self._make(name)
        done(error)

    def sync_offsets(self) -> None:
        """Have commits synced that are only written. Called every second."""
        self._offsets.sync()

    def kind(self, name: str) -> str:
        """The type of a group; empty for one that does not exist."""
        group = self._groups.get(name)
        return group.protocol_type if group is not None else ""

    def take(self, name: str, offsets: Offsets) -> None:
        """Show offsets that a transaction has committed; they are durable already."""
        if not offsets:
            return  # later commits, or removals, have taken their place
        if name not in self._groups:
            self._make(name)
        self._offsets.take(name, offsets)

    def position(self, offset: int, leader_epoch: int, metadata: str | None) -> Committed:
        """A position to commit now, or MetadataTooLargeError."""
        metadata = metadata or ""
        if len(metadata) > OFFSET_METADATA_CHARS_MAX:
            raise MetadataTooLargeError(
                "commit an offset", f"its metadata is above {OFFSET_METADATA_CHARS_MAX} characters"
            )
        return Committed(offset, leader_epoch, metadata, self._clock.wall_ms())

    def remove_offsets(self, name: str, partitions: Collection[PartitionId], done: Done) -> None:
        """Forget some of a group's offsets."""
        self.held.remove(name, partitions)
        self._offsets.remove(name, partitions, done)

    def topic_deleted(self, name: str, topic_id: UUID) -> None:
        """Offsets go with their topic."""
        self.topics.remove(name)
        self.held.remove_topic(topic_id)
        self._offsets.remove_topic(topic_id)
        self.queues.remove_topic(topic_id)

    def delete(self, name: str, done: Done) -> None:
        """Remove a group without members and all it has committed.

        Raises:
            UnknownGroupError, NonEmptyGroupError: nothing was done.
        """
        group = self.get(name)
        if not group.is_empty:
            raise NonEmptyGroupError(
                f"delete group {name}", f"it has {len(group.members)} members", "stop them first"
            )
        self._bury(group)
        if isinstance(group, ShareGroup):
            self.queues.remove_all(name, done)
        else:
            self.held.remove_group(name)
            self._offsets.remove_group(name, done)

    def _bury(self, group: AnyGroup) -> None:
        group.die()
        del self._groups[group.name]
        self._offsets.forget_age(group.name)

    def expire(self) -> None:
        """Forget old offsets, and groups of which nothing is left. Called now and then."""
        now = self._clock.monotonic()
        if now - self._expired_at < OFFSETS_CHECK_SECONDS:
            return
        self._expired_at = now
        for group in list(self._groups.values()):
            if not group.is_empty:
                continue
            if self._offsets.of(group.name):
                self._offsets.expire(group.name)
            elif isinstance(group, ShareGroup):
                if not self.queues.of(group.name):
                    self._bury(group)
            elif isinstance(group, MixedGroup) or not group.pending:
                self._bury(group)


def _check_length(name: str) -> None:
    if len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidGroupIdError(
            f"use group {name[:100]}...", f"its name has more than {NAME_BYTES_MAX} bytes"
        )


def _no_offsets(name: str) -> UnknownGroupError:
    return UnknownGroupError(
        f"use offsets of group {name[:100]}", f"Group {name[:100]} is a share group."
    )


def _unknown_member(name: str) -> UnknownMemberError:
    return UnknownMemberError(f"use group {name[:100]}", "it has no members", "join again")
