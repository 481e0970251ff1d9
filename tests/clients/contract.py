"""What a client must be able to do for the shared scenarios, and the words they are told in.

An adapter per client turns its API into these few calls, so that one scenario runs with every
client on both brokers and asserts the same outcome: the same records, the same error code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeVar

T = TypeVar("T")

MakeTopic = Callable[..., str]
"""Creates a topic, given its partitions and its settings; the name."""
NewName = Callable[[], str]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE = 60.0
MEBIBYTE = 1024 * 1024


class Code(IntEnum):
    """Kafka's error codes, as far as the tests name them."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    MESSAGE_TOO_LARGE = 10
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    INVALID_REQUIRED_ACKS = 21
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
    KAFKA_STORAGE_ERROR = 56
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    INVALID_RECORD = 87
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100


class Refused(Exception):
    """The broker answered with an error code; every adapter raises this for it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error code {code}")
        self.code = code


@dataclass(frozen=True)
class Record:
    """A record to write. Without a timestamp the client takes the time of day."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None


@dataclass(frozen=True)
class Stored:
    """A record that was read."""

    offset: int
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int

    @property
    def content(self) -> tuple[object, ...]:
        return self.key, self.value, self.headers


class Writer(Protocol):
    def write(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        """Write the records in order and wait until they are acknowledged."""


class Reader(Protocol):
    def read(
        self, topic: str, count: int, *, partition: int = 0, start: int | None = None
    ) -> list[Stored]:
        """The first count records from an offset on; None is the start of the log."""

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The earliest offset and the one after the latest record."""

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        """The offset of the first record that is not older than timestamp (milliseconds)."""

    def read_out_of_range(self, topic: str, start: int) -> int:
        """The error code with which reading from an offset that is not there ends."""


class Wide(Protocol):
    def write_everywhere(self, topic: str, values: Mapping[int, bytes]) -> None:
        """Write one record to each of the partitions, with one producer."""

    def read_everywhere(self, topic: str, partitions: int) -> dict[int, list[bytes | None]]:
        """The values of as many records as there are partitions, with one consumer of all."""


class Administrator(Protocol):
    def create(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None: ...

    def delete(self, topic: str) -> None: ...

    def topics(self) -> set[str]: ...

    def partitions(self, topic: str) -> int: ...

    def grow(self, topic: str, partitions: int) -> None: ...

    def delete_records(self, topic: str, before: int, partition: int = 0) -> int:
        """Delete the records below an offset; the new start of the log."""

    def configs(self, topic: str) -> dict[str, str | None]:
        """Every setting of the topic with its effective value."""

    def configure(self, topic: str, configs: Mapping[str, str]) -> None: ...

    def cluster(self) -> tuple[str, list[str]]:
        """The cluster's id and its brokers as host:port."""


def eventually(poll: Callable[[], T | None], what: str, deadline: float = DEADLINE) -> T:
    """What poll returns as soon as it is something."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        found = poll()
        if found is not None:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {deadline:.0f} s")


def numbered(count: int, prefix: str = "record") -> list[Record]:
    """Records that compress and tell who they are."""
    return [
        Record(f"{prefix}-{number:06}-".encode() * 4, key=str(number).encode())
        for number in range(count)
    ]
