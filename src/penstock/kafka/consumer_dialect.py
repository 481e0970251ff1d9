"""What Kafka's consumers write into the metadata of a join and the assignment of a sync.

Both begin with a version. Newer versions only add fields at the end, so that of a version that is
not known everything that is known can be read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from io import BytesIO
from typing import Final

from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from penstock.broker.dialect import Place, Subscription
from penstock.wire.codec import Message, MessageClass

_NEWEST: Final = 3
_WRITTEN: Final = 0  # what every consumer can read
_OWNED_FROM: Final = 1
_RACK_FROM: Final = 3


class ConsumerDialect:
    """See the module."""

    def subscription(self, metadata: bytes) -> Subscription:
        """Topics, and from version 1 on what the member has."""
        version, found = _read(ConsumerProtocolSubscription, metadata)
        owned = found.owned_partitions if version >= _OWNED_FROM else ()
        rack = found.rack_id if version >= _RACK_FROM else None
        return Subscription(frozenset(found.topics), _places(owned), rack or None)

    def share(self, assignment: bytes) -> frozenset[Place]:
        """What a member was given; a member that was given nothing may have got no bytes."""
        if not assignment:
            return frozenset()
        _, found = _read(ConsumerProtocolAssignment, assignment)
        return _places(found.assigned_partitions)

    def assignment(self, share: Iterable[Place]) -> bytes:
        """The partitions of each topic, in order."""
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(share):
            topics.setdefault(topic, []).append(number)
        data = struct.pack(">hi", _WRITTEN, len(topics))
        for topic, numbers in topics.items():
            name = topic.encode()
            data += struct.pack(f">h{len(name)}si", len(name), name, len(numbers))
            data += struct.pack(f">{len(numbers)}i", *numbers)
        return data + struct.pack(">i", -1)  # no words of the assignor's


def _places(topics: Iterable[Message]) -> frozenset[Place]:
    return frozenset((topic.topic, number) for topic in topics for number in topic.partitions)


def _read(message_class: MessageClass, data: bytes) -> tuple[int, Message]:
    try:
        (version,) = struct.unpack_from(">h", data)
        if version < 0:
            raise ValueError(f"version {version}")
        version = min(version, _NEWEST)
        found = message_class._struct.decode(
            BytesIO(data[2:]), version=version, data_class=message_class
        )
        return version, found
    except Exception as error:  # the codec raises whatever it stumbles over
        raise ValueError(f"{message_class.__name__}: {error}") from error
