"""Produce (key 0, versions 3-13), parsed by hand: batches go from the frame to the log untouched.

    response  topics [name or id; partitions [int32 number, int16 error, int64 base offset,
              int64 append time, int64 start offset (v5), record errors [] and message (v8)]],
              int32 throttle

Versions from 9 on are flexible. acks=0 is not answered; 1 and all are answered when the data is as
durable as the topic promises.

This module may run compiled (setup.py), with the C types that stand in produce.pxd.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.broker.errors import KeylessRecordsError
from penstock.broker.quotas import PRODUCE
from penstock.errors import PenstockError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code, code_of
from penstock.kafka.throttling import budget_of, charge
from penstock.log.partition import Partition
from penstock.record.batch import InvalidBatchError
from penstock.wire.errors import MalformedRequestError
from penstock.wire.requests import PRODUCE_FLEXIBLE_FROM, TopicKey, parse_produce
from penstock.wire.writer import Writer

_ACKS = (-1, 0, 1)
_BEGINS_TRANSACTIONS_FROM = 12
_NONE = int(Code.NONE)


class Result:
    """The outcome for one partition."""

    def __init__(self, number: int, code: int, message: str | None = None) -> None:
        self.number = number
        self.code = code
        self.message = message
        self.base_offset = -1
        self.append_time = -1
        self.partition: Partition | None = None
        self.refused_records: Sequence[int] = ()
        """Which of the batch's records are to blame, where that is known."""


def handle(call: Call) -> None:
    """Append every batch of the request, and answer when they are durable."""
    request = parse_produce(call.frame, call.version, call.body_start)
    acks = request.acks
    topics: list[tuple[TopicKey, list[Result]]] = []
    must_sync = False
    size = 0
    for key, partitions in request.topics:
        results: list[Result] = []
        for number, records in partitions:
            result = _append(call, key, number, records, acks)
            results.append(result)
            if records is not None:
                size += len(records)
            if result.partition is not None and result.partition.synced:
                must_sync = True
        topics.append((key, results))
    budget = budget_of(call, PRODUCE)
    throttle_ms = 0 if budget is None else charge(call, budget, size)
    if acks == 0:
        _answer_nothing(call, topics)
    elif must_sync:
        call.context.broker.commit.after(partial(_answer, call, topics, throttle_ms))
    else:
        _answer(call, topics, throttle_ms)


def _append(
    call: Call, key: TopicKey, number: int, records: memoryview | None, acks: int
) -> Result:
    try:
        if acks not in _ACKS:
            return Result(number, Code.INVALID_REQUIRED_ACKS)
        topic = call.topic(key)
        partition = topic.partition(number)
        if records is None or len(records) == 0:
            raise InvalidBatchError(f"append to {topic.name}", "there are no records")
        begins = call.version >= _BEGINS_TRANSACTIONS_FROM
        appended = call.context.broker.appender.append(topic, partition, records, begins)
    except KeylessRecordsError as error:
        result = Result(number, code_of(error), error.reason)
        result.refused_records = error.records
        return result
    except PenstockError as error:
        return Result(number, code_of(error), error.reason)
    result = Result(number, _NONE)
    result.base_offset = appended.base_offset
    result.append_time = appended.append_time
    result.partition = partition
    return result


def _answer_nothing(call: Call, topics: list[tuple[TopicKey, list[Result]]]) -> None:
    """acks=0: a client that cannot be told of an error is disconnected, as Kafka does."""
    call.answer.drop()
    for _, results in topics:
        for result in results:
            if result.code != _NONE:
                raise MalformedRequestError(f"produce with acks=0 failed: {result.message}")


def _answer(call: Call, topics: list[tuple[TopicKey, list[Result]]], throttle_ms: int) -> None:
    version = call.version
    answer = Writer(call.correlation_id, version >= PRODUCE_FLEXIBLE_FROM)
    answer.length(len(topics))
    for key, results in topics:
        answer.topic(key.name, key.id)
        answer.length(len(results))
        for result in results:
            _write(answer, result, version)
        answer.end()
    answer.int32(throttle_ms)
    answer.end()
    call.answer.fill(answer.finish())


def _write(answer: Writer, result: Result, version: int) -> None:
    partition = result.partition
    message = result.message
    start_offset = -1
    if partition is not None:
        if partition.offline is not None:
            # The sync this answer waited for has failed: the records may be lost, so they are not
            # acknowledged.
            result.code, result.base_offset = Code.KAFKA_STORAGE_ERROR, -1
            message = partition.offline
        else:
            start_offset = partition.start_offset
    answer.int32(result.number)
    answer.int16(result.code)
    answer.int64(result.base_offset)
    answer.int64(result.append_time)
    if version >= 5:
        answer.int64(start_offset)
    if version >= 8:
        answer.length(len(result.refused_records))
        for record in result.refused_records:
            answer.int32(record)
            answer.string(message)
            answer.end()
        answer.string(message)
    answer.end()
