"""InitProducerId (22): ids for idempotent producers. Transactions come later."""

from __future__ import annotations

from kafka.protocol.producer import InitProducerIdResponse

from penstock.errors import PenstockError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.kafka.outcome import Outcome, failure, reply_when_durable
from penstock.wire.codec import Message


def init_producer_id(call: Call, request: Message) -> Message | None:
    """A new id, whatever id the producer had before."""
    if request.transactional_id is not None:
        # Clients learn from FindCoordinator that there are no transactions; for one that did not ask,
        # this is the code on which every client stops at once.
        return _refused(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id = call.context.broker.new_producer_id()
    except (PenstockError, OSError) as error:
        return _refused(failure(error).code)

    def build(durable: Outcome) -> Message:
        if not durable.ok:
            return _refused(durable.code)
        return InitProducerIdResponse(
            error_code=Code.NONE, producer_id=producer_id, producer_epoch=0
        )

    reply_when_durable(call, build)
    return None


def _refused(code: Code) -> Message:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
