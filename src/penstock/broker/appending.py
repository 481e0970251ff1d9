"""Decides what may be appended: checks a batch, recognises a retry, stamps it if the topic says so.

This module may run compiled (setup.py), with the C types that stand in appending.pxd.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.errors import (
    BatchTooLargeError,
    InvalidAppendError,
    InvalidTimestampError,
    KeylessRecordsError,
    MessageTooLargeError,
)
from penstock.broker.producers import ProducerTable
from penstock.broker.topic import Topic
from penstock.clock import Clock
from penstock.errors import StorageError
from penstock.files import lacks_descriptor
from penstock.log.commit import GroupCommit
from penstock.log.partition import Partition
from penstock.log.space import DiskSpace, means_full
from penstock.record.batch import (
    CODEC_MASK,
    CODEC_MAX,
    CONTROL_FLAG,
    LENGTH_OVERHEAD,
    NO_PRODUCER,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    InvalidBatchError,
    checked,
    parse,
    stamp_append_time,
)
from penstock.record.marker import encode_marker
from penstock.record.recompress import recompress
from penstock.record.thin import unpacked

NO_TIMESTAMP = -1
Enlist = Callable[[int, int, Partition, bool], None]
"""Producer id, epoch, partition, and whether the batch may bring the partition in."""


def _no_transactions(producer_id: int, epoch: int, partition: Partition, begins: bool) -> None:
    raise InvalidAppendError(f"append to {partition}", "this broker has no transactions")


class Appended:
    """Where a batch went, and the time the log stamped, or -1 if records keep their own."""

    def __init__(self, base_offset: int, append_time: int) -> None:
        self.base_offset = base_offset
        self.append_time = append_time


class Appender:
    """Appends batches to partitions, and asks for the commit rounds they need."""

    def __init__(self, commit: GroupCommit, space: DiskSpace, clock: Clock) -> None:
        self._commit = commit
        self._space = space
        self._clock = clock
        self.enlist: Enlist = _no_transactions
        """Asked before a batch of a transaction is appended."""

    def append(
        self,
        topic: Topic,
        partition: Partition,
        data: bytearray | memoryview,
        begins: bool = False,
    ) -> Appended:
        """Store one batch; data is patched in place.

        Args:
            topic: where it goes.
            partition: where in it.
            data: the batch.
            begins: a batch of a transaction that the partition has no part in yet brings it in.

        Raises:
            TransactionError: the batch belongs to no transaction that is open.
            InvalidBatchError, InvalidAppendError: the batch is not acceptable.
            StorageError: the disk is full, or what topics in memory may hold; no file can be opened; or
                the partition is out of service.
        """
        header = checked(data)
        _check_batch(topic, header, len(data))
        if header.attributes & TRANSACTIONAL_FLAG:
            self.enlist(header.producer_id, header.producer_epoch, partition, begins)
        if header.producer_id != NO_PRODUCER:
            duplicate = self.producers(partition).find_duplicate(header)
            if duplicate is not None:
                return Appended(duplicate, NO_TIMESTAMP)
        if topic.needs_keys:
            _check_keys(topic, header, data)
        if partition.memory is None:
            self._space.check(len(data))
        else:
            partition.memory.check(len(data))
        append_time = NO_TIMESTAMP
        if topic.takes_batches_as_they_are:
            self._check_timestamp(topic, header)
        else:
            data = self._repacked(topic, header, data)
            append_time = self._stamped(topic, data)
            header = parse(data)
        try:
            base_offset = partition.append(header, data)
        except OSError as error:
            raise self._write_failed(partition, error) from error
        if partition.needs_round:
            self._commit.appended(partition, len(data))
        return Appended(base_offset, append_time)

    def append_marker(
        self, partition: Partition, producer_id: int, epoch: int, *, commit: bool
    ) -> None:
        """End a transaction in a partition.

        Raises:
            StorageError: the disk is full or the partition is out of service.
        """
        data = encode_marker(producer_id, epoch, self._clock.wall_ms(), commit=commit)
        try:
            partition.append(parse(data), data)
        except OSError as error:
            raise self._write_failed(partition, error) from error
        if partition.needs_round:
            self._commit.appended(partition, len(data))

    @staticmethod
    def producers(partition: Partition) -> ProducerTable:
        """The producers of a partition; every partition of a broker observes with such a table."""
        observer = partition.observer
        assert isinstance(observer, ProducerTable)
        return observer

    def _repacked(
        self, topic: Topic, header: BatchHeader, data: bytearray | memoryview
    ) -> bytearray | memoryview:
        """The batch with the codec its topic wants."""
        codec = topic.config.codec
        if codec is None or header.codec == codec:
            return data
        data = recompress(header, data, codec, topic.config.codec_level)
        if len(data) > topic.largest_batch:
            raise _too_large(topic, len(data))
        return data

    def _stamped(self, topic: Topic, data: bytearray | memoryview) -> int:
        """Give the batch the log's time, if its topic says so; returns it, or -1."""
        if not topic.config.append_time:
            self._check_timestamp(topic, parse(data))
            return NO_TIMESTAMP
        append_time = self._clock.wall_ms()
        stamp_append_time(data, 0, append_time)
        return append_time

    def _check_timestamp(self, topic: Topic, header: BatchHeader) -> None:
        if header.max_timestamp == NO_TIMESTAMP:
            return
        ahead = header.max_timestamp - self._clock.wall_ms()
        config = topic.config
        if ahead > config.timestamp_after_max_ms or -ahead > config.timestamp_before_max_ms:
            raise InvalidTimestampError(
                f"append to {topic.name}",
                f"timestamp {header.max_timestamp} is {abs(ahead)} ms from the broker's time",
                "see message.timestamp.before.max.ms and message.timestamp.after.max.ms",
            )

    def _write_failed(self, partition: Partition, error: OSError) -> StorageError:
        if means_full(error):
            self._space.found_full()
            return self._space.error()
        if lacks_descriptor(error):
            # Files are opened before they are written to: the log is as it was.
            return StorageError(
                f"append to {partition}",
                f"too many files are open ({error.strerror})",
                "raise the server's limit (ulimit -n; LimitNOFILE in systemd)",
            )
        partition.fail(f"write failed: {error}")
        return StorageError(f"append to {partition}", str(error), "check the disk, then restart")


def _check_batch(topic: Topic, header: BatchHeader, size: int) -> None:
    """Pass what can be stored; the usual batch costs a few comparisons."""
    count = header.record_count
    if (
        header.length + LENGTH_OVERHEAD != size
        or count < 1
        or header.last_offset_delta != count - 1
        or header.attributes & CODEC_MASK > CODEC_MAX
        or (
            header.producer_id != NO_PRODUCER
            and (header.base_sequence < 0 or header.producer_epoch < 0)
        )
        or (header.producer_id == NO_PRODUCER and header.attributes & TRANSACTIONAL_FLAG)
    ):
        raise InvalidBatchError(f"append to {topic.name}", _what_is_wrong(header, size))
    if size > topic.largest_batch:
        raise _too_large(topic, size)
    if header.attributes & CONTROL_FLAG:
        raise InvalidAppendError(
            f"append to {topic.name}", "only the broker writes control batches"
        )


def _check_keys(topic: Topic, header: BatchHeader, data: bytearray | memoryview) -> None:
    """Open a batch for a compacted topic; Kafka too refuses it whole if any record has no key."""
    _, records = unpacked(header, data)
    keyless = [at for at, record in enumerate(records) if record.key is None]
    if keyless:
        raise KeylessRecordsError(f"append to {topic.name}", keyless)


def _what_is_wrong(header: BatchHeader, size: int) -> str:
    if header.size != size:
        return "more than one batch for a partition"
    if header.codec > CODEC_MAX:
        return f"codec {header.codec} is unknown"
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        return "record count and last offset delta differ"
    if header.producer_id == NO_PRODUCER:
        return "a transaction without a producer id"
    return "a producer id without a sequence or an epoch"


def _too_large(topic: Topic, size: int) -> InvalidAppendError:
    config = topic.config
    if size > config.max_message_bytes:
        return MessageTooLargeError(
            f"append to {topic.name}",
            f"a batch of {size} bytes is above max.message.bytes",
            f"it is {config.max_message_bytes}; raise it or send smaller batches",
        )
    return BatchTooLargeError(
        f"append to {topic.name}",
        f"a batch of {size} bytes is above segment.bytes",
        f"it is {config.log.segment_bytes}; raise it or send smaller batches",
    )
