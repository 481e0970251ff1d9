"""Kafka's error codes, and which of our errors is which."""

from __future__ import annotations

from enum import IntEnum

from penstock.broker import errors as broker_errors
from penstock.broker import group_errors, transaction_errors
from penstock.broker.queues.errors import NotHeldError
from penstock.errors import (
    NotWrittenError,
    PenstockError,
    StorageError,
    UsageError,
)
from penstock.kafka.share_session import (
    SessionEpochError,
    SessionLimitError,
    SessionNotFoundError,
)
from penstock.log.reading import OffsetOutOfRangeError
from penstock.record.batch import CorruptBatchError, InvalidBatchError


class Code(IntEnum):
    """The codes this broker answers with."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    INVALID_REGULAR_EXPRESSION = 128
    SHARE_SESSION_LIMIT_REACHED = 133


# The first class an error is an instance of decides, so the special ones stand first.
_CODES: tuple[tuple[type[PenstockError], Code], ...] = (
    (OffsetOutOfRangeError, Code.OFFSET_OUT_OF_RANGE),
    (CorruptBatchError, Code.CORRUPT_MESSAGE),
    (InvalidBatchError, Code.INVALID_RECORD),
    (broker_errors.MessageTooLargeError, Code.MESSAGE_TOO_LARGE),
    (broker_errors.BatchTooLargeError, Code.RECORD_LIST_TOO_LARGE),
    (broker_errors.InvalidTimestampError, Code.INVALID_TIMESTAMP),
    (broker_errors.OutOfOrderSequenceError, Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (broker_errors.ProducerFencedError, Code.INVALID_PRODUCER_EPOCH),
    (broker_errors.InvalidAppendError, Code.INVALID_RECORD),
    (broker_errors.PolicyError, Code.POLICY_VIOLATION),
    (broker_errors.UnknownTopicIdError, Code.UNKNOWN_TOPIC_ID),
    (broker_errors.UnknownTopicError, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (broker_errors.TopicExistsError, Code.TOPIC_ALREADY_EXISTS),
    (broker_errors.InvalidTopicNameError, Code.INVALID_TOPIC_EXCEPTION),
    (broker_errors.InvalidPartitionsError, Code.INVALID_PARTITIONS),
    (broker_errors.InvalidReplicationError, Code.INVALID_REPLICATION_FACTOR),
    (broker_errors.InvalidConfigError, Code.INVALID_CONFIG),
    (group_errors.InvalidGroupIdError, Code.INVALID_GROUP_ID),
    (group_errors.InvalidSessionTimeoutError, Code.INVALID_SESSION_TIMEOUT),
    (group_errors.InconsistentProtocolError, Code.INCONSISTENT_GROUP_PROTOCOL),
    (group_errors.GroupFullError, Code.GROUP_MAX_SIZE_REACHED),
    (group_errors.MemberIdRequiredError, Code.MEMBER_ID_REQUIRED),
    (group_errors.UnknownMemberError, Code.UNKNOWN_MEMBER_ID),
    (group_errors.FencedInstanceError, Code.FENCED_INSTANCE_ID),
    (group_errors.IllegalGenerationError, Code.ILLEGAL_GENERATION),
    (group_errors.RebalanceInProgressError, Code.REBALANCE_IN_PROGRESS),
    (group_errors.InvalidHeartbeatError, Code.INVALID_REQUEST),
    (group_errors.UnsupportedAssignorError, Code.UNSUPPORTED_ASSIGNOR),
    (group_errors.InvalidRegexError, Code.INVALID_REGULAR_EXPRESSION),
    (group_errors.FencedMemberEpochError, Code.FENCED_MEMBER_EPOCH),
    (group_errors.StaleMemberEpochError, Code.STALE_MEMBER_EPOCH),
    (group_errors.UnreleasedInstanceError, Code.UNRELEASED_INSTANCE_ID),
    (group_errors.GroupsStoppingError, Code.COORDINATOR_NOT_AVAILABLE),
    (group_errors.UnknownGroupError, Code.GROUP_ID_NOT_FOUND),
    (group_errors.NonEmptyGroupError, Code.NON_EMPTY_GROUP),
    (group_errors.MetadataTooLargeError, Code.OFFSET_METADATA_TOO_LARGE),
    (NotHeldError, Code.INVALID_RECORD_STATE),
    (SessionNotFoundError, Code.SHARE_SESSION_NOT_FOUND),
    (SessionEpochError, Code.INVALID_SHARE_SESSION_EPOCH),
    (SessionLimitError, Code.SHARE_SESSION_LIMIT_REACHED),
    (transaction_errors.InvalidTransactionStateError, Code.INVALID_TXN_STATE),
    (transaction_errors.UnknownTransactionError, Code.INVALID_PRODUCER_ID_MAPPING),
    (transaction_errors.FencedError, Code.PRODUCER_FENCED),
    (transaction_errors.OldEpochError, Code.INVALID_PRODUCER_EPOCH),
    (transaction_errors.ConcurrentTransactionError, Code.CONCURRENT_TRANSACTIONS),
    (transaction_errors.InvalidTimeoutError, Code.INVALID_TRANSACTION_TIMEOUT),
    # Kafka's coordinators do not speak of their disk either: clients ask for the coordinator again, and
    # go on, where a storage error ends a transaction.
    (NotWrittenError, Code.COORDINATOR_NOT_AVAILABLE),
    (StorageError, Code.KAFKA_STORAGE_ERROR),
    (UsageError, Code.INVALID_REQUEST),
)


def code_of(error: PenstockError) -> Code:
    """The code a client understands."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Code.UNKNOWN_SERVER_ERROR
