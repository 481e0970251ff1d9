"""InitProducerId (22): ids for idempotent producers, and for those with transactions.

Version 6 brings two-phase transactions (KIP-939). A Kafka 4.3 has it but offers it only if told to; here
it is offered, because clients take no harm: librdkafka and aiokafka know lower versions only, Java 4.3
and kafka-python send it with both of its switches off and ignore what it adds to the answer, and nobody
guesses the version of a broker from it.
"""

from __future__ import annotations

from kafka.protocol.producer import InitProducerIdResponse

from penstock.broker.transaction import NO_PRODUCER, Producer
from penstock.errors import PenstockError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.kafka.outcome import Outcome, failure, reply_when_durable
from penstock.wire.codec import Message

_CLAIM_FROM = 3
_FENCED_FROM = 4
_TWO_PHASE_FROM = 6


def init_producer_id(call: Call, request: Message) -> Message | None:
    """A new id, or the one of a transactional id with an epoch that fences earlier users."""
    if request.transactional_id is None:
        return _idempotent(call)
    if not request.transactional_id:
        return _refused(Code.INVALID_REQUEST)
    claim = NO_PRODUCER
    if call.version >= _CLAIM_FROM:
        claim = Producer(request.producer_id, request.producer_epoch)

    def answer(error: PenstockError | None, producer: Producer, kept: Producer) -> None:
        call.reply(_answer(producer, kept) if error is None else _refused(_code(call, error)))

    knows_two_phase = call.version >= _TWO_PHASE_FROM
    call.context.broker.transactions.register(
        request.transactional_id,
        request.transaction_timeout_ms,
        claim,
        answer,
        two_phase=knows_two_phase and request.enable2_pc,
        keep=knows_two_phase and request.keep_prepared_txn,
    )
    return None


def _code(call: Call, error: PenstockError) -> Code:
    code = failure(error).code
    if code is Code.PRODUCER_FENCED and call.version < _FENCED_FROM:
        return Code.INVALID_PRODUCER_EPOCH
    return code


def _idempotent(call: Call) -> Message | None:
    try:
        producer_id = call.context.broker.new_producer_id()
    except (PenstockError, OSError) as error:
        return _refused(failure(error).code)

    def build(durable: Outcome) -> Message:
        return _answer(Producer(producer_id, 0)) if durable.ok else _refused(durable.code)

    reply_when_durable(call, build)
    return None


def _answer(producer: Producer, kept: Producer = NO_PRODUCER) -> Message:
    return InitProducerIdResponse(
        error_code=Code.NONE,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        ongoing_txn_producer_id=kept.id,
        ongoing_txn_producer_epoch=kept.epoch,
    )


def _refused(code: Code) -> Message:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
