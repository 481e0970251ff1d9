"""What members of a group have a share of, as it is told to them and shown to others.

The messages of consumer groups and of share groups have the same form and different classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from penstock.broker.assignors import Share
from penstock.broker.broker import Broker
from penstock.broker.errors import UnknownTopicError
from penstock.broker.group_errors import GroupError
from penstock.kafka.errors import code_of
from penstock.wire.codec import Message, MessageClass


def told(assignment: MessageClass, share: Share | None) -> Message | None:
    """What a heartbeat answers; None if nothing is new."""
    if share is None:
        return None
    return assignment(
        topic_partitions=[
            assignment.TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in _by_topic(share)
        ]
    )


def described(assignment: MessageClass, broker: Broker, share: Share) -> Message:
    """What a description shows, with the names of topics."""
    topics: list[Message] = []
    for topic_id, numbers in _by_topic(share):
        try:
            name = broker.topic_by_id(topic_id).name
        except UnknownTopicError:
            continue  # deleted, and about to be taken from its reader
        topics.append(
            assignment.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
        )
    return assignment(topic_partitions=topics)


def not_described(group: MessageClass, name: str, error: GroupError) -> Message:
    """What stands in the place of a group that cannot be described."""
    return group(
        error_code=code_of(error),
        error_message=error.cause,
        group_id=name,
        group_state="",
        assignor_name="",
        members=[],
    )


def _by_topic(share: Share) -> Iterable[tuple[UUID, list[int]]]:
    """The numbers of the partitions of each topic."""
    topics: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(share):
        topics.setdefault(topic_id, []).append(number)
    return topics.items()
