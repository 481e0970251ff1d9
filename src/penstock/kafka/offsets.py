"""ListOffsets (2) and OffsetForLeaderEpoch (23).

The one leader never changes, but every start of it is an epoch of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from kafka.protocol.consumer import ListOffsetsResponse, OffsetForLeaderEpochResponse

from penstock.broker.appending import Appender
from penstock.errors import PenstockError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.kafka.leader_epoch import epoch_code
from penstock.kafka.outcome import RefusedError, failure
from penstock.kafka.pace import Cold
from penstock.log.epochs import end_of_epoch
from penstock.log.partition import Partition
from penstock.log.reading import NotCachedError, TimedOffset, newest_by_time, offset_for_time
from penstock.wire.codec import Message

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4
_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -5, -6
# The version of ListOffsets that brought each of the timestamps with a meaning.
_SINCE: Final = {
    _LATEST: 0,
    _EARLIEST: 0,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_NO_TIMESTAMP = -1
_READ_COMMITTED = 1
_UNDEFINED = -1
_COLD_TRIES_MAX = 8


async def list_offsets(call: Call, request: Message) -> Message:
    """Offsets by time or by a name for it, among what is durable.

    For those who read only what is committed nothing is known beyond the first open transaction.
    """
    committed_only = call.version >= 2 and request.isolation_level == _READ_COMMITTED
    topic_message = ListOffsetsResponse.ListOffsetsTopicResponse
    # A search by time is costly: as in Kafka, one of each partition in a request.
    named = Counter(
        [(t.name, p.partition_index) for t in request.topics async for p in call.each(t.partitions)]
    )
    return ListOffsetsResponse(
        topics=[
            topic_message(
                name=topic.name,
                partitions=[
                    await _listed(
                        call,
                        topic.name,
                        wanted,
                        named[topic.name, wanted.partition_index],
                        committed_only,
                    )
                    async for wanted in call.each(topic.partitions)
                ],
            )
            async for topic in call.each(request.topics)
        ]
    )


async def _listed(
    call: Call, name: str, wanted: Message, named: int, committed_only: bool
) -> Message:
    message = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse
    number = wanted.partition_index
    if named > 1:
        return message(partition_index=number, error_code=Code.INVALID_REQUEST)
    try:
        partition = _partition(call, name, number, wanted.current_leader_epoch)
        end = partition.durable_offset
        if committed_only:
            # What a transaction began with may be deleted before it ends.
            stable = Appender.producers(partition).last_stable_offset(end)
            end = max(stable, partition.start_offset)
        found = await _find(partition, wanted.timestamp, call.version, end)
    except (PenstockError, OSError) as error:
        return message(partition_index=number, error_code=failure(error).code)
    if found is None:
        return message(partition_index=number, error_code=Code.NONE)
    return message(
        partition_index=number,
        error_code=Code.NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=partition.epoch,
    )


def _partition(call: Call, name: str, number: int, leader_epoch: int) -> Partition:
    partition = call.context.broker.topic(name).partition(number)
    code = epoch_code(leader_epoch, partition.epoch)
    if code != Code.NONE:
        raise RefusedError(
            Code(code), f"use {partition}", f"its epoch is {partition.epoch}, not {leader_epoch}"
        )
    return partition


async def _find(partition: Partition, timestamp: int, version: int, end: int) -> TimedOffset | None:
    if timestamp >= 0:
        return await _searched(partial(offset_for_time, partition, timestamp), end)
    if version < _SINCE.get(timestamp, version + 1):
        raise RefusedError(
            Code.UNSUPPORTED_VERSION, f"list offsets of {partition}", f"timestamp {timestamp}"
        )
    if timestamp == _LATEST:
        return TimedOffset(end, _NO_TIMESTAMP)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return TimedOffset(partition.start_offset, _NO_TIMESTAMP)
    if timestamp == _MAX_TIMESTAMP:
        return await _searched(partial(newest_by_time, partition), end)
    return None  # the rest ask for tiered storage, where nothing is


async def _searched(search: Callable[..., TimedOffset | None], end: int) -> TimedOffset | None:
    """What is found below the end of what the client may know of."""
    found = await _from_disk(search)
    return found if found is not None and found.offset < end else None


async def _from_disk(search: Callable[..., TimedOffset | None]) -> TimedOffset | None:
    """Search what is cached; where something is not, a thread reads it first, as for a fetch."""
    for _ in range(_COLD_TRIES_MAX):
        try:
            return search(wait=False)
        except NotCachedError as missing:
            await Cold(missing.warm)
    return search(wait=True)  # what is read goes from the cache at once: the disk is waited for


# -- OffsetForLeaderEpoch


async def offset_for_leader_epoch(call: Call, request: Message) -> Message:
    """Where an epoch ended; consumers ask to find out whether the log was cut under them."""
    topic_message = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    return OffsetForLeaderEpochResponse(
        topics=[
            topic_message(
                topic=topic.topic,
                partitions=[
                    _epoch_end(call, topic.topic, wanted)
                    async for wanted in call.each(topic.partitions)
                ],
            )
            async for topic in call.each(request.topics)
        ]
    )


def _epoch_end(call: Call, name: str, wanted: Message) -> Message:
    message = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult.EpochEndOffset
    number = wanted.partition
    try:
        partition = _partition(call, name, number, wanted.current_leader_epoch)
        found = end_of_epoch(partition, wanted.leader_epoch)
    except (PenstockError, OSError) as error:
        return message(error_code=failure(error).code, partition=number)
    if found is None:
        # As Kafka: an epoch this log never had is undefined. An error would be retried for ever by a
        # consumer whose positions come from another cluster; so told, it resets.
        return message(
            error_code=Code.NONE, partition=number, leader_epoch=_UNDEFINED, end_offset=_UNDEFINED
        )
    return message(
        error_code=Code.NONE,
        partition=number,
        leader_epoch=found.epoch,
        end_offset=found.offset,
    )
