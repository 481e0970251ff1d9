"""What the coordinator of transactions refuses, one class per reason."""

from __future__ import annotations

from penstock.errors import ConflictError


class TransactionError(ConflictError):
    """A request that does not fit the state of its transaction."""


class InvalidTransactionStateError(TransactionError):
    """Nothing like that can be done now: no transaction is open, or it has ended otherwise."""


class UnknownTransactionError(TransactionError):
    """The transactional id is not in use, or not by this producer."""


class FencedError(TransactionError):
    """A newer incarnation of the producer has taken over, or its time was up."""


class OldEpochError(TransactionError):
    """A batch of an older incarnation of the producer."""


class ConcurrentTransactionError(TransactionError):
    """The transaction is just being ended; try again."""


class InvalidTimeoutError(TransactionError):
    """A transaction timeout above what the broker allows, or not above zero."""
