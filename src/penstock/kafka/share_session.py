"""Share sessions (KIP-932): a member names its partitions once and then only what changes.

epoch    meaning
0        open a session; the one there was, if any, is forgotten
n        the n-th request after it, a fetch or an acknowledgement
-1       the last one: what the member still holds is for others

A session ends with its connection, too: a member that has gone cannot acknowledge anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.limits import FETCH_SESSION_PARTITIONS_MAX, SHARE_SESSIONS_MAX
from penstock.log.positions import PartitionId

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1


class SessionNotFoundError(PenstockError):
    """The member has no session, or no longer."""


class SessionEpochError(PenstockError):
    """A request that is not the next one of its session."""


class SessionLimitError(PenstockError):
    """One member too many, or one with too many partitions."""


class SessionKey(NamedTuple):
    """Whose session it is."""

    group: str
    member: str


class ShareSession:
    """A member's partitions, in the order in which they are served."""

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self.epoch = 1
        self.partitions: dict[PartitionId, None] = {}

    def next_epoch(self) -> None:
        """The number the member's next request must carry."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def update(self, named: Iterable[PartitionId], forgotten: Iterable[PartitionId]) -> None:
        """Take over what a request changes.

        Raises:
            SessionLimitError: it has more partitions than are looked at in one go, and none from now on.
        """
        self.partitions.update(dict.fromkeys(named))
        for partition in forgotten:
            self.partitions.pop(partition, None)
        if len(self.partitions) > FETCH_SESSION_PARTITIONS_MAX:
            self.partitions.clear()
            raise SessionLimitError(
                f"fetch for share group {self.key.group[:100]}",
                f"a session has at most {FETCH_SESSION_PARTITIONS_MAX} partitions",
                "subscribe each member to fewer topics",
            )

    def put_last(self, partition: PartitionId) -> None:
        """Let others come first next time."""
        if partition in self.partitions:
            del self.partitions[partition]
            self.partitions[partition] = None


class ShareSessions:
    """All open sessions."""

    def __init__(self, limit: int = SHARE_SESSIONS_MAX) -> None:
        self._limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: SessionKey) -> ShareSession:
        """A new session, in the place of the one there was."""
        if key not in self._sessions and len(self._sessions) >= self._limit:
            raise SessionLimitError(
                f"fetch for share group {key.group[:100]}",
                f"{self._limit} members fetch already",
                "start fewer members",
            )
        session = self._sessions[key] = ShareSession(key)
        return session

    def use(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session that a request with this epoch belongs to."""
        operation = f"use the session of {key.member[:100]} in share group {key.group[:100]}"
        session = self._sessions.get(key)
        if session is None:
            raise SessionNotFoundError(operation, "there is none", "open one anew")
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise SessionEpochError(
                operation,
                f"epoch {epoch} where {session.epoch} is expected",
                "open one anew",
            )
        session.next_epoch()
        return session

    def close(self, session: ShareSession) -> bool:
        """End a session; whether it was still open."""
        if self._sessions.get(session.key) is not session:
            return False
        del self._sessions[session.key]
        return True
