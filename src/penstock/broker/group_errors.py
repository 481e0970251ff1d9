"""What groups refuse, one class per reason, so that each protocol can give it its own code.

GroupError
├── InvalidGroupIdError, InvalidSessionTimeoutError, InconsistentProtocolError, GroupFullError
├── MemberIdRequiredError                      carries the id to join with
├── UnknownMemberError, FencedInstanceError, IllegalGenerationError
├── RebalanceInProgressError, GroupsStoppingError
├── InvalidHeartbeatError, UnsupportedAssignorError, InvalidRegexError
├── FencedMemberEpochError, StaleMemberEpochError, UnreleasedInstanceError
├── UnknownGroupError, NonEmptyGroupError
└── MetadataTooLargeError
"""

from __future__ import annotations

from penstock.errors import PenstockError


class GroupError(PenstockError):
    """A group does not do what was asked."""


class InvalidGroupIdError(GroupError):
    """A group needs a name."""


class InvalidSessionTimeoutError(GroupError):
    """A session timeout out of bounds."""


class InconsistentProtocolError(GroupError):
    """A member that has nothing in common with the others."""


class GroupFullError(GroupError):
    """One member too many."""


class MemberIdRequiredError(GroupError):
    """Join again with this id: only members that got their answer are counted (KIP-394)."""

    def __init__(self, operation: str, member_id: str) -> None:
        super().__init__(operation, "a new member gets an id first", "join again with it")
        self.member_id = member_id


class UnknownMemberError(GroupError):
    """Not a member, or no longer one."""


class FencedInstanceError(GroupError):
    """Another process has taken over this group.instance.id."""


class IllegalGenerationError(GroupError):
    """The group has gone on without this member."""


class RebalanceInProgressError(GroupError):
    """Members are being gathered: join again."""


class InvalidHeartbeatError(GroupError):
    """A heartbeat that makes no sense."""


class UnsupportedAssignorError(GroupError):
    """A way to share out the work that the server does not know."""


class InvalidRegexError(GroupError):
    """A pattern of topic names that cannot be read."""


class FencedMemberEpochError(GroupError):
    """The member is not where it says it is: it must give up everything and join again."""


class StaleMemberEpochError(GroupError):
    """The member has moved on since: it can try again."""


class UnreleasedInstanceError(GroupError):
    """The process that has this group.instance.id has not left."""


class GroupsStoppingError(GroupError):
    """The broker is on its way out."""


class UnknownGroupError(GroupError):
    """No group of that name."""


class NonEmptyGroupError(GroupError):
    """The group still has members."""


class MetadataTooLargeError(GroupError):
    """A commit with more words than are kept."""
