"""Transactions, answered when what they change is durable.

AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), TxnOffsetCommit (28), and for administration
DescribeTransactions (65) and ListTransactions (66).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from kafka.protocol.admin import DescribeTransactionsResponse, ListTransactionsResponse
from kafka.protocol.producer import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    TxnOffsetCommitResponse,
)

from penstock.broker.errors import UnknownTopicError
from penstock.broker.group_errors import InvalidRegexError
from penstock.broker.group_member import Identity
from penstock.broker.journaling import Done
from penstock.broker.topic_directory import compile_pattern
from penstock.broker.transaction import Producer, State, Transaction
from penstock.errors import PenstockError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.kafka.group_offsets import forget_deleted, partition_id
from penstock.kafka.outcome import Outcome, attempt, failure, outcome_of, replying
from penstock.log.committed import Offsets
from penstock.log.positions import PartitionId
from penstock.wire.codec import Message

# From this version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn on a client knows that a newer
# producer has taken over from it.
_FENCED_FROM = 2
_NEW_EPOCH_FROM = 5
_ANYONE = Identity("", None)


def _code(outcome: Outcome, call: Call) -> Code:
    """What is answered in a version of the request."""
    if outcome.code is Code.PRODUCER_FENCED and call.version < _FENCED_FROM:
        return Code.INVALID_PRODUCER_EPOCH
    return outcome.code


# -- AddPartitionsToTxn


async def add_partitions_to_txn(call: Call, request: Message) -> Message | None:
    """Enlist partitions; if one of them does not exist, none is."""
    name: str = request.v3_and_below_transactional_id
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    found: dict[tuple[str, int], PartitionId | None] = {}
    async for topic in call.each(request.v3_and_below_topics):
        async for number in call.each(topic.partitions):
            found[topic.name, number] = _known(call, topic.name, number)

    async def answer(outcome: Outcome) -> Message:
        return await _added(call, dict.fromkeys(found, _code(outcome, call)))

    if None in found.values():
        return await _added(
            call,
            {
                key: Code.OPERATION_NOT_ATTEMPTED if p else Code.UNKNOWN_TOPIC_OR_PARTITION
                for key, p in found.items()
            },
        )

    partitions = {p for p in found.values() if p is not None}
    transactions = call.context.broker.transactions
    settle = replying(call, answer)
    outcome = attempt(lambda: transactions.add_partitions(name, producer, partitions, settle))
    return None if outcome.ok else await answer(outcome)


def _known(call: Call, name: str, number: int) -> PartitionId | None:
    try:
        return partition_id(call.context.broker.topic(name), number)
    except UnknownTopicError:
        return None


async def _added(call: Call, codes: dict[tuple[str, int], Code]) -> Message:
    message = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    topics: dict[str, list[Message]] = {}
    async for (name, number), code in call.each(codes.items()):
        topics.setdefault(name, []).append(
            message.AddPartitionsToTxnPartitionResult(
                partition_index=number, partition_error_code=code
            )
        )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            message(name=name, results_by_partition=results) for name, results in topics.items()
        ]
    )


# -- AddOffsetsToTxn


def add_offsets_to_txn(call: Call, request: Message) -> Message | None:
    """Open the transaction for a group's offsets, which come with TxnOffsetCommit."""

    def answer(outcome: Outcome) -> Message:
        return AddOffsetsToTxnResponse(error_code=_code(outcome, call))

    if not request.group_id:
        return answer(Outcome(Code.INVALID_GROUP_ID))
    transactions = call.context.broker.transactions
    settle = replying(call, answer)
    producer = Producer(request.producer_id, request.producer_epoch)
    name: str = request.transactional_id
    outcome = attempt(lambda: transactions.add_partitions(name, producer, (), settle))
    return None if outcome.ok else answer(outcome)


# -- EndTxn


def end_txn(call: Call, request: Message) -> Message | None:
    """Commit or abort; from version 5 on the producer is told the epoch to go on with."""

    def answer(outcome: Outcome, producer: Producer) -> Message:
        response = EndTxnResponse(error_code=_code(outcome, call))
        if call.version >= _NEW_EPOCH_FROM and outcome.ok:
            response.producer_id, response.producer_epoch = producer
        return response

    def settle(error: PenstockError | None, producer: Producer) -> None:
        call.reply(answer(outcome_of(error), producer))

    producer = Producer(request.producer_id, request.producer_epoch)
    outcome = attempt(
        lambda: call.context.broker.transactions.end(
            request.transactional_id,
            producer,
            settle,
            commit=request.committed,
            new_epoch=call.version >= _NEW_EPOCH_FROM,
        )
    )
    return None if outcome.ok else answer(outcome, producer)


# -- TxnOffsetCommit


async def txn_offset_commit(call: Call, request: Message) -> Message | None:
    """Hold offsets until the transaction ends; answered when that is durable."""
    offsets: Offsets = {}
    outcomes: list[tuple[str, int, Outcome]] = []
    async for topic, wanted in call.each(_partitions(request)):
        number: int = wanted.partition_index
        outcome = attempt(lambda t=topic, w=wanted: _take(call, t, w, offsets))  # type: ignore[misc]
        outcomes.append((topic.name, number, outcome))
    forget_deleted(call.context.broker, offsets)

    settle = replying(call, partial(_offsets_held, call, outcomes))
    outcome = attempt(lambda: _check_and_hold(call, request, offsets, settle))
    if outcome.ok and offsets:
        return None
    if outcome.code is Code.PRODUCER_FENCED:
        outcome = outcome._replace(code=Code.INVALID_PRODUCER_EPOCH)
    return await _offsets_held(call, outcomes, outcome)


def _partitions(request: Message) -> Iterator[tuple[Message, Message]]:
    for topic in request.topics:
        for wanted in topic.partitions:
            yield topic, wanted


def _take(call: Call, topic: Message, wanted: Message, offsets: Offsets) -> None:
    broker = call.context.broker
    epoch = wanted.committed_leader_epoch if call.version >= 2 else -1
    found = partition_id(broker.topic(topic.name), wanted.partition_index)
    offsets[found] = broker.groups.position(
        wanted.committed_offset, epoch, wanted.committed_metadata
    )


def _check_and_hold(call: Call, request: Message, offsets: Offsets, settle: Done) -> None:
    broker = call.context.broker
    producer = Producer(request.producer_id, request.producer_epoch)
    if call.version >= 3:
        who = Identity(request.member_id, request.group_instance_id)
        # A producer that names no member commits as one without a group.
        if who != _ANYONE or request.generation_id >= 0:
            broker.groups.check_commit(request.group_id, who, request.generation_id, offsets)
    if offsets:
        broker.transactions.hold_offsets(
            request.transactional_id,
            producer,
            request.group_id,
            offsets,
            settle,
            begins=call.version >= _NEW_EPOCH_FROM,
        )


async def _offsets_held(
    call: Call, outcomes: list[tuple[str, int, Outcome]], durable: Outcome
) -> Message:
    message = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    topics: dict[str, list[Message]] = {}
    async for name, number, done in call.each(outcomes):
        outcome = durable if done.ok else done
        topics.setdefault(name, []).append(
            message.TxnOffsetCommitResponsePartition(
                partition_index=number, error_code=outcome.code
            )
        )
    return TxnOffsetCommitResponse(
        topics=[message(name=name, partitions=items) for name, items in topics.items()]
    )


# -- administration


async def describe_transactions(call: Call, request: Message) -> Message:
    """What each transactional id is doing."""
    transactions = call.context.broker.transactions
    message = DescribeTransactionsResponse.TransactionState
    states: list[Message] = []
    async for name in call.each(request.transactional_ids):
        transaction = transactions.get(name)
        if transaction is None:
            states.append(
                message(error_code=Code.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=name)
            )
            continue
        states.append(
            message(
                error_code=Code.NONE,
                transactional_id=name,
                transaction_state=transaction.shown_state,
                transaction_timeout_ms=transaction.timeout_ms,
                transaction_start_time_ms=_begun(transaction),
                producer_id=transaction.producer.id,
                producer_epoch=transaction.producer.epoch,
                topics=[
                    message.TopicData(topic=topic, partitions=sorted(numbers))
                    for topic, numbers in _by_topic(call, transaction).items()
                ],
            )
        )
    return DescribeTransactionsResponse(transaction_states=states)


def _begun(transaction: Transaction) -> int:
    return -1 if transaction.state is State.EMPTY else transaction.begun_ms


def _by_topic(call: Call, transaction: Transaction) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for partition in transaction.partitions:
        try:
            name = call.context.broker.topic_by_id(partition.topic_id).name
        except UnknownTopicError:
            continue
        topics.setdefault(name, []).append(partition.partition)
    return topics


_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)


async def list_transactions(call: Call, request: Message) -> Message:
    """All transactional ids, filtered by state, producer, duration and pattern."""
    unknown = [state for state in request.state_filters if state not in _STATES]
    pattern: str | None = request.transactional_id_pattern if call.version >= 2 else None
    try:
        named = compile_pattern(pattern or ".*")
    except InvalidRegexError as error:
        return ListTransactionsResponse(error_code=failure(error).code)
    duration: int = request.duration_filter if call.version >= 1 else -1
    now = call.context.clock.wall_ms()
    message = ListTransactionsResponse.TransactionState
    return ListTransactionsResponse(
        error_code=Code.NONE,
        unknown_state_filters=unknown,
        transaction_states=[
            message(
                transactional_id=one.name,
                producer_id=one.producer.id,
                transaction_state=one.shown_state,
            )
            async for one in call.each(list(call.context.broker.transactions.all()))
            if (not request.state_filters or one.shown_state in request.state_filters)
            and (not request.producer_id_filters or one.producer.id in request.producer_id_filters)
            and (duration < 0 or (_begun(one) >= 0 and now - one.begun_ms > duration))
            and named.fullmatch(one.name)
        ],
    )
