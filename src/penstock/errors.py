"""Every error Penstock raises for something that is not its own mistake.

PenstockError                     carries operation, cause and remedy; its text is all three
├── UsageError                    the caller asked for something that makes no sense
├── NotFoundError                 a topic or partition that does not exist
├── ConflictError                 it exists already, or somebody else holds it
├── UnavailableError              a peer that does not answer
└── StorageError                  the disk, or what is on it
    ├── DamagedLogError           bytes below the durable point are not what was written
    │   ├── UnreadableLogError    nobody can say what they are: the disk or the system refuses them
    │   └── UnsettledLogError     there is no room to settle what a crash has left of them
    ├── OfflineError              this partition was taken out of service; others go on
    ├── DiskFullError             writes are refused until space returns
    ├── MemoryFullError           the same for topics that are kept in memory
    ├── NotWrittenError           a commit or a transaction's step that did not reach the disk
    └── FormatError               written by a newer Penstock

A mistake of ours is an assertion, never one of these.
"""

from __future__ import annotations


class PenstockError(Exception):
    """Base of all: what was attempted, why it failed, and what to do about it.

    `reason` is the last two, for those who know what they attempted.
    """

    def __init__(self, operation: str, cause: str, remedy: str = "") -> None:
        self.operation = operation
        self.cause = cause
        self.remedy = remedy
        self.reason = f"{cause}; {remedy}" if remedy else cause
        super().__init__(f"{operation}: {self.reason}")


class UsageError(PenstockError):
    """The request itself is wrong."""


class NotFoundError(PenstockError):
    """What was named does not exist."""


class ConflictError(PenstockError):
    """What was asked collides with what is there."""


class UnavailableError(PenstockError):
    """A peer that was needed does not answer."""


class StorageError(PenstockError):
    """The disk failed, or what it holds is not usable."""


class DamagedLogError(StorageError):
    """Acknowledged bytes are missing or changed; nothing is guessed about them."""


class UnreadableLogError(DamagedLogError):
    """A partition's files cannot be opened or read; they may be whole."""


class UnsettledLogError(DamagedLogError):
    """What a crash has left of a partition must be put aside first, and the disk is full."""


class OfflineError(StorageError):
    """The partition is out of service until the server is restarted or the log is repaired."""


class DiskFullError(StorageError):
    """New data is refused; reading and deleting go on."""


class MemoryFullError(StorageError):
    """Topics in memory take no new data; reading and deleting go on, and so do all other topics."""


class NotWrittenError(StorageError):
    """A change of what groups and transactions stand at was not made durable, and does not count."""


class FormatError(StorageError):
    """The data folder was written by a newer version."""
