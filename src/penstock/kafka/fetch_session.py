"""Fetch sessions (KIP-227): a client names its partitions once and then only what changes.

request (session id, epoch)     meaning
(0, -1)                         no session: a full fetch
(0, 0)                          full fetch, and please open a session
(id, 0)                         close that session and open another
(id, -1)                        full fetch, and close that session
(id, n)                         the n-th incremental fetch of that session
"""

from __future__ import annotations

from collections import OrderedDict
from random import Random

from penstock.limits import FETCH_SESSIONS_MAX
from penstock.wire.requests import NO_SESSION, FetchPartition, PartitionKey

INITIAL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1


class FetchSession:
    """A client's partitions, in the order in which they are served."""

    __slots__ = ("epoch", "id", "partitions")

    def __init__(self, session_id: int, partitions: dict[PartitionKey, FetchPartition]) -> None:
        self.id = session_id
        self.epoch = 1
        self.partitions = partitions

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
    """All open sessions; the least recently used gives way when there are too many."""

    def __init__(self, random: Random, limit: int = FETCH_SESSIONS_MAX) -> None:
        self._random = random
        self._limit = limit
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, partitions: dict[PartitionKey, FetchPartition]) -> FetchSession:
        """A new session with an id that is hard to guess."""
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = FetchSession(session_id, partitions)
        self._sessions[session_id] = session
        if len(self._sessions) > self._limit:
            self._sessions.popitem(last=False)
        return session

    def get(self, session_id: int) -> FetchSession | None:
        """An open session, now the most recently used."""
        session = self._sessions.get(session_id)
        if session is not None:
            self._sessions.move_to_end(session_id)
        return session

    def close(self, session_id: int) -> None:
        """End a session, if it is open."""
        self._sessions.pop(session_id, None)
