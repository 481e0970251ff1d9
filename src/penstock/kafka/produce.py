"""Produce (key 0, versions 3-13), parsed by hand: batches go from the frame to the log untouched.

    response  topics [name or id; partitions [int32 number, int16 error, int64 base offset,
              int64 append time, int64 start offset (v5), record errors [] and message (v8)]],
              int32 throttle

Versions from 9 on are flexible. acks=0 is not answered; 1 and all are answered when the data is as
durable as the topic promises.

This module may run compiled (setup.py), with the C types that stand in produce.pxd.
"""

from __future__ import annotations

from functools import partial
from struct import Struct

from penstock.broker.errors import UnknownTopicError
from penstock.errors import PenstockError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code, code_of
from penstock.log.partition import Partition
from penstock.record.batch import InvalidBatchError
from penstock.wire.primitives import (
    MalformedRequestError,
    array_start,
    nullable_string,
)
from penstock.wire.requests import PRODUCE_FLEXIBLE_FROM, TopicKey, parse_produce, topic_start

_RESULT = Struct(">ihqqq")  # number, error, base offset, append time, start offset
# No record errors, no message; the end of the structure.
_NO_ERRORS = b"\x00\x00\x00\x00\xff\xff"
_NO_ERRORS_FLEXIBLE = b"\x01\x00\x00"
_NO_THROTTLE = b"\x00\x00\x00\x00"
_ACKS = (-1, 0, 1)
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


def handle(call: Call) -> None:
    """Append every batch of the request, and answer when they are durable."""
    request = parse_produce(call.frame, call.version, call.body_start)
    acks = request.acks
    topics: list[tuple[TopicKey, list[Result]]] = []
    must_sync = False
    for key, partitions in request.topics:
        results: list[Result] = []
        for number, records in partitions:
            result = _append(call, key, number, records, acks)
            results.append(result)
            if result.partition is not None and result.partition.synced:
                must_sync = True
        topics.append((key, results))
    if acks == 0:
        _answer_nothing(call, topics)
    elif must_sync:
        call.context.broker.commit.after(partial(_answer, call, topics))
    else:
        _answer(call, topics)


def _append(
    call: Call, key: TopicKey, number: int, records: memoryview | None, acks: int
) -> Result:
    broker = call.context.broker
    try:
        if acks not in _ACKS:
            return Result(number, Code.INVALID_REQUIRED_ACKS)
        topic = broker.topic(key.name) if key.id is None else broker.topic_by_id(key.id)
        partition = topic.partition(number)
        if records is None or len(records) == 0:
            raise InvalidBatchError(f"append to {topic.name}", "there are no records")
        appender = broker.appender
        appended = appender.append(topic, partition, records)
    except UnknownTopicError as error:
        code = Code.UNKNOWN_TOPIC_OR_PARTITION if key.id is None else Code.UNKNOWN_TOPIC_ID
        return Result(number, code, error.reason)
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


def _answer(call: Call, topics: list[tuple[TopicKey, list[Result]]]) -> None:
    version = call.version
    flexible = version >= PRODUCE_FLEXIBLE_FROM
    end = b"\x00" if flexible else b""
    parts = [array_start(len(topics), flexible=flexible)]
    for key, results in topics:
        parts.append(topic_start(key, len(results), flexible))
        parts += [_encode(result, version, flexible) for result in results]
        parts.append(end)
    parts.append(_NO_THROTTLE + end)
    call.reply_parts([b"".join(parts)], flexible=flexible)


def _encode(result: Result, version: int, flexible: bool) -> bytes:
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
    data = _RESULT.pack(
        result.number, result.code, result.base_offset, result.append_time, start_offset
    )
    if version < 5:
        return data[:-8]
    if version < 8:
        return data
    if message is None:
        return data + (_NO_ERRORS_FLEXIBLE if flexible else _NO_ERRORS)
    errors = array_start(0, flexible=flexible) + nullable_string(message, flexible=flexible)
    return data + errors + (b"\x00" if flexible else b"")
