"""What consumers of the classic protocol say inside the bytes that the broker only passes on.

To move a group from one protocol to the other while it works, the broker must read what its members
subscribe to and hold, and tell them their shares. How that is written is the protocol's business, so
it is passed in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

Place = tuple[str, int]
"""A topic's name and a partition."""


class Subscription(NamedTuple):
    """What a member wants, and what it has."""

    topics: frozenset[str]
    owned: frozenset[Place]
    rack_id: str | None = None


class Dialect(Protocol):
    """Reads and writes; what cannot be read is a ValueError."""

    def subscription(self, metadata: bytes) -> Subscription:
        """What a member says when it joins."""
        ...

    def share(self, assignment: bytes) -> frozenset[Place]:
        """What a leader has given to a member; nothing if there is nothing written."""
        ...

    def assignment(self, share: Iterable[Place]) -> bytes:
        """What to give to a member."""
        ...


class NoDialect:
    """For a broker that only looks at its data: nobody says anything."""

    def subscription(self, metadata: bytes) -> Subscription:
        """Nothing can be read."""
        raise ValueError("this broker does not know how consumers write")

    def share(self, assignment: bytes) -> frozenset[Place]:
        """Nothing can be read."""
        raise ValueError("this broker does not know how consumers write")

    def assignment(self, share: Iterable[Place]) -> bytes:
        """Nobody is told anything."""
        raise ValueError("this broker does not know how consumers write")
