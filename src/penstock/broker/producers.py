"""Idempotent producers of one partition: who wrote what last, so that a retry is stored once.

For each producer the last five batches are kept, which is what a client may have in flight. The table
is derived from the log alone: it follows every append, is saved in segment checkpoints, and is rebuilt
from the batches that came after them.

Snapshot: uint8 version 1, then per producer int64 id, int16 epoch, int64 last timestamp, uint8 count,
and per batch int32 first sequence, int32 last sequence, int64 base offset.

This module may run compiled (setup.py), with the C types that stand in producers.pxd.
"""

from __future__ import annotations

from collections import OrderedDict
from struct import Struct
from typing import NamedTuple

from penstock.broker.errors import OutOfOrderSequenceError, ProducerFencedError
from penstock.limits import PRODUCER_BATCHES_KEPT, PRODUCERS_PER_PARTITION_MAX
from penstock.record.batch import NO_PRODUCER, BatchHeader

_VERSION = 1
_PRODUCER = Struct(">qhqB")
_BATCH = Struct(">iiq")
_SEQUENCE_MAX = 2**31 - 1
# Kafka's producer.id.expiration.ms.
_EXPIRY_MS = 24 * 3600 * 1000


class WrittenBatch(NamedTuple):
    """A batch a producer wrote."""

    first_sequence: int
    last_sequence: int
    base_offset: int


class Producer:
    """One producer's recent batches, oldest first."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[WrittenBatch] = []
        self.last_timestamp = 0


class ProducerTable:
    """All producers of a partition, the least recently active first. Observes the log."""

    def __init__(self) -> None:
        self._producers: OrderedDict[int, Producer] = OrderedDict()
        self._newest_timestamp = 0

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def newest_id(self) -> int:
        """The largest producer id that is known here; -1 if there is none."""
        return max(self._producers, default=NO_PRODUCER)

    def find_duplicate(self, header: BatchHeader) -> int | None:
        """Check a batch before it is appended.

        Returns:
            The base offset the very same batch got earlier, or None if it is new and in order.

        Raises:
            ProducerFencedError: a newer incarnation of the producer has written.
            OutOfOrderSequenceError: batches before this one are missing.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # Its state expired, or its earlier records did: Kafka takes any sequence then.
            return None
        first = header.base_sequence
        if header.producer_epoch < producer.epoch:
            raise ProducerFencedError(
                f"append for producer {header.producer_id}",
                f"epoch {header.producer_epoch} is older than {producer.epoch}",
                "a newer instance has taken over; stop this one",
            )
        if header.producer_epoch > producer.epoch:
            if first != 0:
                raise _out_of_order(header, 0)
            return None
        last = sequence_after(first, header.record_count - 1)
        for batch in producer.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch.base_offset
        expected = sequence_after(producer.batches[-1].last_sequence, 1)
        if first != expected:
            raise _out_of_order(header, expected)
        return None

    # -- BatchObserver

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """Follow the log."""
        if header.producer_id == NO_PRODUCER or header.is_control:
            return
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = Producer(header.producer_epoch)
            self._producers[header.producer_id] = producer
        self._producers.move_to_end(header.producer_id)
        first = header.base_sequence
        # Not the number of records: compaction may have taken some, or all of them.
        last = sequence_after(first, header.last_offset_delta)
        producer.batches.append(WrittenBatch(first, last, base_offset))
        if len(producer.batches) > PRODUCER_BATCHES_KEPT:
            del producer.batches[0]
        producer.last_timestamp = header.max_timestamp
        self._newest_timestamp = max(self._newest_timestamp, header.max_timestamp)
        if len(self._producers) > PRODUCERS_PER_PARTITION_MAX:
            self._producers.popitem(last=False)

    def snapshot(self) -> bytes:
        """The table, without the producers that have been silent for a day of the log's time."""
        self._expire()
        parts = [bytes([_VERSION])]
        for producer_id, producer in self._producers.items():
            parts.append(
                _PRODUCER.pack(
                    producer_id, producer.epoch, producer.last_timestamp, len(producer.batches)
                )
            )
            parts += (_BATCH.pack(*batch) for batch in producer.batches)
        return b"".join(parts)

    def restore(self, state: bytes) -> None:
        """Take over a snapshot; the checkpoint's checksum has vouched for its bytes."""
        self._producers.clear()
        self._newest_timestamp = 0
        position = 1
        assert not state or state[0] == _VERSION
        while position < len(state):
            producer_id, epoch, last_timestamp, count = _PRODUCER.unpack_from(state, position)
            position += _PRODUCER.size
            producer = Producer(epoch)
            producer.last_timestamp = last_timestamp
            for _ in range(count):
                producer.batches.append(WrittenBatch._make(_BATCH.unpack_from(state, position)))
                position += _BATCH.size
            self._producers[producer_id] = producer
            self._newest_timestamp = max(self._newest_timestamp, last_timestamp)

    def needed(self) -> list[int]:
        """The last batch of each producer, which says what its next sequence is."""
        self._expire()
        return [producer.batches[-1].base_offset for producer in self._producers.values()]

    def _expire(self) -> None:
        horizon = self._newest_timestamp - _EXPIRY_MS
        silent = [i for i, p in self._producers.items() if p.last_timestamp < horizon]
        for producer_id in silent:
            del self._producers[producer_id]


def sequence_after(sequence: int, count: int) -> int:
    """Sequences wrap from 2^31-1 to 0."""
    return (sequence + count) & _SEQUENCE_MAX


def _out_of_order(header: BatchHeader, expected: int) -> OutOfOrderSequenceError:
    return OutOfOrderSequenceError(
        f"append for producer {header.producer_id}",
        f"sequence {header.base_sequence} where {expected} is expected",
        "batches before it were lost; the client restarts its sequence",
    )
