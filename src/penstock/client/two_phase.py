"""Two-phase transactions (KIP-939), by the requests themselves: taking an id over, ending what is open.

kafka-python's producer knows nothing of them, and ends its transactions in the older one of Kafka's
protocols, in which they share an epoch. Here every transaction has its own: producer id and epoch name
it for good, and the two together, as text, are its token.
"""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

from penstock.client.connection import library
from penstock.client.direct import Direct
from penstock.client.fencing import check
from penstock.errors import UnavailableError

_INIT_PRODUCER_ID: Final = 22
_TWO_PHASE_VERSION: Final = 6
_EPOCH_EACH_VERSION: Final = 5
# The broker ignores it for two-phase transactions, but wants one.
_TIMEOUT_MS: Final = 60_000
_RETRY_SECONDS: Final = 0.2
_CONCURRENT: Final = 51


class Identity(NamedTuple):
    """An incarnation of a producer, which with it names one transaction."""

    producer_id: int
    epoch: int

    @property
    def token(self) -> str:
        """As text, in the form that Java's PreparedTxnState has."""
        return f"{self.producer_id}:{self.epoch}"


def take_over(direct: Direct, name: str, operation: str) -> tuple[Identity, Identity | None]:
    """Become the user of a transactional id; who we are, and the transaction that was left open.

    Raises:
        UsageError: the broker has no two-phase transactions.
        PenstockError: it refused, or could not be asked.
    """
    direct.check_offers(
        _INIT_PRODUCER_ID, _TWO_PHASE_VERSION, "the broker has no two-phase transactions"
    )
    request = library("kafka.protocol.producer").InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=_TIMEOUT_MS,
        enable2_pc=True,
        keep_prepared_txn=True,
    )
    answer = direct.ask(request, _TWO_PHASE_VERSION)
    check(operation, answer.error_code)
    left = Identity(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
    return Identity(answer.producer_id, answer.producer_epoch), left if left.epoch >= 0 else None


def end(
    direct: Direct, name: str, identity: Identity, operation: str, *, commit: bool, seconds: float
) -> Identity:
    """End the open transaction, however often it has to be asked for; who we are from then on.

    Raises:
        UnavailableError: there was no answer for so many seconds; it may have ended or not.
        PenstockError: the broker refused.
    """
    request = library("kafka.protocol.producer").EndTxnRequest(
        transactional_id=name,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )
    deadline = time.monotonic() + seconds
    while (answer := _answer(direct, request, deadline)) is None:
        time.sleep(_RETRY_SECONDS)
    check(operation, answer.error_code)
    return Identity(answer.producer_id, answer.producer_epoch)


def _answer(direct: Direct, request: Any, deadline: float) -> Any | None:
    """What the broker says, or None to ask again: it answers the same to a request that is repeated."""
    try:
        answer = direct.ask(request, _EPOCH_EACH_VERSION)
    except UnavailableError:
        if time.monotonic() > deadline:
            raise
        return None
    if answer.error_code == _CONCURRENT and time.monotonic() < deadline:
        return None
    return answer
