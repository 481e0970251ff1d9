"""What the broker refuses, one class per reason, so that each protocol can give it its own code.

UsageError
├── InvalidTopicNameError, InvalidPartitionsError, InvalidReplicationError
├── InvalidConfigError
└── InvalidAppendError
    ├── MessageTooLargeError, BatchTooLargeError, InvalidTimestampError
    └── OutOfOrderSequenceError, ProducerFencedError
ConflictError
└── TopicExistsError
NotFoundError
└── UnknownTopicError
    └── UnknownTopicIdError
"""

from __future__ import annotations

from penstock.errors import ConflictError, NotFoundError, UsageError


class InvalidTopicNameError(UsageError):
    """A name that cannot be a folder's."""


class InvalidPartitionsError(UsageError):
    """A number of partitions that makes no sense, or takes some away."""


class InvalidReplicationError(UsageError):
    """More copies than there are brokers."""


class InvalidQuotaError(UsageError):
    """A quota that there cannot be."""


class InvalidConfigError(UsageError):
    """An unknown setting, or a value it cannot have."""


class InvalidAppendError(UsageError):
    """A batch the topic does not take."""


class MessageTooLargeError(InvalidAppendError):
    """A batch above max.message.bytes."""


class BatchTooLargeError(InvalidAppendError):
    """A batch that no segment could hold."""


class KeylessRecordsError(InvalidAppendError):
    """Records without a key for a topic that is compacted by key."""

    def __init__(self, operation: str, records: list[int]) -> None:
        count = len(records)
        super().__init__(
            operation,
            f"{count} record(s) have no key, and the topic is compacted",
            "give every record a key, or set cleanup.policy=delete",
        )
        self.records = records
        """Which of the batch's records."""


class PolicyError(UsageError):
    """What the topic's cleanup.policy does not allow."""


class InvalidTimestampError(InvalidAppendError):
    """A record too far from the broker's time."""


class OutOfOrderSequenceError(InvalidAppendError):
    """An idempotent producer's batch that does not follow its last one."""


class ProducerFencedError(InvalidAppendError):
    """An older incarnation of a producer."""


class TopicExistsError(ConflictError):
    """The name is taken."""


class UnknownTopicError(NotFoundError):
    """No topic of that name, or no partition of that number."""


class UnknownTopicIdError(UnknownTopicError):
    """No topic of that id: it was deleted, perhaps another of the same name is there."""
