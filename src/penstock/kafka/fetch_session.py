"""Fetch sessions (KIP-227): a client names its partitions once and then only what changes.

request (session id, epoch)     meaning
(0, -1)                         no session: a full fetch
(0, 0)                          full fetch, and please open a session
(id, 0)                         close that session and open another
(id, -1)                        full fetch, and close that session
(id, n)                         the n-th incremental fetch of that session

A session that would become too large, or for which there is no room beside the others, is not there: a
full fetch that asks for it is answered without one, and an incremental fetch is told that there is none,
whereupon its client makes a full fetch. Only a session that has not been used for a while gives way to
another: if any did, one client too many would take from each of them the session it comes back to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from random import Random

from penstock.clock import Clock
from penstock.limits import (
    FETCH_SESSION_KEPT_SECONDS,
    FETCH_SESSION_PARTITIONS_MAX,
    FETCH_SESSIONS_MAX,
    FETCH_SESSIONS_PARTITIONS_TOTAL,
    TOPIC_NAME_CHARS_MAX,
)
from penstock.wire.requests import NO_SESSION, FetchPartition, PartitionKey

INITIAL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1


class FetchSession:
    """A client's partitions, in the order in which they are served."""

    __slots__ = ("epoch", "id", "partitions", "used_at")

    def __init__(
        self, session_id: int, partitions: dict[PartitionKey, FetchPartition], used_at: float
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.partitions = partitions
        self.used_at = used_at

    def has_room_for(
        self, changed: dict[PartitionKey, FetchPartition], forgotten: list[PartitionKey]
    ) -> bool:
        """Whether an incremental fetch leaves the session small enough."""
        if not _can_be_topics(changed):
            return False
        if len(self.partitions) + len(changed) <= FETCH_SESSION_PARTITIONS_MAX:
            return True  # nearly always, and without looking at each
        after = (self.partitions.keys() | changed.keys()).difference(forgotten)
        return len(after) <= FETCH_SESSION_PARTITIONS_MAX

    def update(
        self, changed: dict[PartitionKey, FetchPartition], forgotten: list[PartitionKey]
    ) -> None:
        """Apply an incremental fetch."""
        for key, wanted in changed.items():
            known = self.partitions.get(key)
            if known is not None:
                wanted.told_high_watermark = known.told_high_watermark
                wanted.told_start_offset = known.told_start_offset
            self.partitions[key] = wanted
        for key in forgotten:
            self.partitions.pop(key, None)

    def next_epoch(self) -> None:
        """The number the client's next fetch must carry."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1


class FetchSessions:
    """All open sessions, the least recently used first."""

    def __init__(
        self,
        random: Random,
        clock: Clock,
        limit: int = FETCH_SESSIONS_MAX,
        partitions_limit: int = FETCH_SESSIONS_PARTITIONS_TOTAL,
    ) -> None:
        self._random = random
        self._clock = clock
        self._limit = limit
        self._partitions_limit = partitions_limit
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.partitions = 0
        """How many all sessions have together."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, partitions: dict[PartitionKey, FetchPartition]) -> FetchSession | None:
        """A new session with an id that is hard to guess; None if it is too large, or one too many."""
        if len(partitions) > FETCH_SESSION_PARTITIONS_MAX or not _can_be_topics(partitions):
            return None
        if not self._make_room(1, len(partitions)):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = FetchSession(session_id, partitions, self._clock.monotonic())
        self._sessions[session_id] = session
        self.partitions += len(partitions)
        return session

    def get(self, session_id: int) -> FetchSession | None:
        """An open session, now the most recently used."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.used_at = self._clock.monotonic()
            self._sessions.move_to_end(session_id)
        return session

    def update(
        self,
        session: FetchSession,
        changed: dict[PartitionKey, FetchPartition],
        forgotten: list[PartitionKey],
    ) -> bool:
        """Apply an incremental fetch; or end the session, for which there is no room any more."""
        if not session.has_room_for(changed, forgotten):
            self.close(session.id)
            return False
        before = len(session.partitions)
        session.update(changed, forgotten)
        self.partitions += len(session.partitions) - before
        if not self._make_room(0, 0):
            self.close(session.id)
            return False
        return True

    def _make_room(self, sessions: int, partitions: int) -> bool:
        """End what is no longer used until so many more fit; whether they do."""
        while (
            len(self._sessions) + sessions > self._limit
            or self.partitions + partitions > self._partitions_limit
        ):
            oldest = next(iter(self._sessions.values()))
            if self._clock.monotonic() - oldest.used_at < FETCH_SESSION_KEPT_SECONDS:
                return False
            self.close(oldest.id)
        return True

    def close(self, session_id: int) -> None:
        """End a session, if it is open."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.partitions)


def _can_be_topics(keys: Iterable[PartitionKey]) -> bool:
    """Whether no name is longer than a topic's: made up, they could take any amount of memory."""
    return all(len(key.topic.name) <= TOPIC_NAME_CHARS_MAX for key in keys)
