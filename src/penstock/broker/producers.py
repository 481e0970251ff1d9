"""The producers of one partition: who wrote what last, which transactions are open, which failed.

For each producer the last five batches are kept, which is what a client may have in flight, so that a
retry is stored once. For transactions there is the offset where each open one begins, and where those
lie that were aborted. The table is derived from the log: it follows every append, is saved in segment
checkpoints, and is rebuilt from the batches that came after them. Only when a producer may be forgotten
depends on the broker's clock, too.

Snapshot: uint8 version 2; uint32 count of producers, and per producer int64 id, int16 epoch, int64 last
timestamp, int64 begin of its open transaction or -1, uint8 count, and per batch int32 first sequence,
int32 last sequence, int64 base offset; then per aborted transaction int64 producer, int64 first offset,
int64 offset of the marker. Version 1 had no count of producers and nothing about transactions.

This module may run compiled (setup.py), with the C types that stand in producers.pxd.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection
from struct import Struct
from typing import NamedTuple

from penstock.broker.errors import OutOfOrderSequenceError, ProducerFencedError
from penstock.clock import Clock
from penstock.limits import (
    PRODUCER_BATCHES_KEPT,
    PRODUCER_IDS_MAX,
    PRODUCERS_PER_PARTITION_MAX,
)
from penstock.record.batch import NO_PRODUCER, TRANSACTIONAL_FLAG, BatchHeader

_VERSION = 2
_COUNT = Struct(">I")
_PRODUCER = Struct(">qhqqB")
_PRODUCER_V1 = Struct(">qhqB")
_BATCH = Struct(">iiq")
_ABORTED = Struct(">qqq")
NO_TRANSACTION = -1
_ENDING_KEPT = 100
_SEQUENCE_MAX = 2**31 - 1
# Kafka's producer.id.expiration.ms.
_EXPIRY_MS = 24 * 3600 * 1000


class WrittenBatch(NamedTuple):
    """A batch a producer wrote."""

    first_sequence: int
    last_sequence: int
    base_offset: int


class Aborted(NamedTuple):
    """A transaction whose records are not to be shown."""

    producer_id: int
    first_offset: int
    marker_offset: int


class ProducerState(NamedTuple):
    """How far a producer has come."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_start: int


class Producer:
    """One producer's recent batches, oldest first, and where its open transaction begins."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[WrittenBatch] = []
        self.last_timestamp = 0
        self.seen_at = 0.0
        """By the broker's clock; what a start finds was seen then."""
        self.transaction_start = NO_TRANSACTION


class ProducerTable:
    """All producers of a partition, the least recently active first. Observes the log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._producers: OrderedDict[int, Producer] = OrderedDict()
        self._newest_timestamp = 0
        self._open: dict[int, int] = {}
        # Ended, but not yet by a marker that readers may see: marker and begin, in order of markers.
        self._ending: list[tuple[int, int]] = []
        self._aborted: list[Aborted] = []

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def newest_id(self) -> int:
        """The largest producer id known here that a broker gave out; -1 if there is none."""
        return max((n for n in self._producers if n < PRODUCER_IDS_MAX), default=NO_PRODUCER)

    def states(self) -> list[ProducerState]:
        """All producers, the least recently active first."""
        return [
            ProducerState(
                number,
                producer.epoch,
                producer.batches[-1].last_sequence if producer.batches else -1,
                producer.last_timestamp,
                producer.transaction_start,
            )
            for number, producer in self._producers.items()
        ]

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
        expected = 0  # the marker of a transaction began this epoch
        if producer.batches:
            expected = sequence_after(producer.batches[-1].last_sequence, 1)
        if first != expected:
            raise _out_of_order(header, expected)
        return None

    # -- transactions

    @property
    def open_transactions(self) -> dict[int, int]:
        """Producer id to the offset where its open transaction begins."""
        return self._open

    def epoch_of(self, producer_id: int) -> int:
        """The newest epoch a producer has written with; -1 for an unknown one."""
        producer = self._producers.get(producer_id)
        return -1 if producer is None else producer.epoch

    def last_stable_offset(self, durable_offset: int) -> int:
        """The end of what is decided: no transaction that begins below it is open.

        A marker counts when it is durable, as any record.
        """
        if self._open or self._ending:
            while self._ending and self._ending[0][0] < durable_offset:
                del self._ending[0]
            for start in self._open.values():
                durable_offset = min(durable_offset, start)
            for _, start in self._ending:
                durable_offset = min(durable_offset, start)
        return durable_offset

    def aborted_between(self, start: int, end: int) -> list[Aborted]:
        """The aborted transactions that have records from start on and below end."""
        # They stand in the order of their markers, and nearly every reader is near the end.
        first = bisect_left(self._aborted, start, key=_marker_offset)
        return [aborted for aborted in self._aborted[first:] if aborted.first_offset < end]

    def forget_aborted(self, start: int) -> None:
        """Records below start are gone, and so need not be hidden."""
        self._aborted = [a for a in self._aborted if a.marker_offset >= start]

    def forget_markers(self, gone: Collection[int]) -> None:
        """Compaction has removed these markers after all that they ended.

        A reader that is told of an aborted transaction waits for its marker: it would take the next
        transaction of that producer for this one.
        """
        if gone:
            offsets = frozenset(gone)
            self._aborted = [a for a in self._aborted if a.marker_offset not in offsets]

    # -- BatchObserver

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """Follow the log."""
        if header.producer_id == NO_PRODUCER:
            return
        producer = self._producer(header)
        if header.attributes & TRANSACTIONAL_FLAG and producer.transaction_start == NO_TRANSACTION:
            producer.transaction_start = base_offset
            self._open[header.producer_id] = base_offset
        first = header.base_sequence
        # Not the number of records: compaction may have taken some, or all of them.
        last = sequence_after(first, header.last_offset_delta)
        producer.batches.append(WrittenBatch(first, last, base_offset))
        if len(producer.batches) > PRODUCER_BATCHES_KEPT:
            del producer.batches[0]
        self._note_time(producer, header)
        if len(self._producers) > PRODUCERS_PER_PARTITION_MAX:
            self._drop_oldest()

    def _producer(self, header: BatchHeader) -> Producer:
        """The producer of a batch, made anew for a new epoch; its transaction stays open."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            start = NO_TRANSACTION if producer is None else producer.transaction_start
            producer = Producer(header.producer_epoch)
            producer.transaction_start = start
            self._producers[header.producer_id] = producer
        self._producers.move_to_end(header.producer_id)
        return producer

    def _note_time(self, producer: Producer, header: BatchHeader) -> None:
        """When it was active by the log's time: its own records may be old, or have no time."""
        self._newest_timestamp = max(self._newest_timestamp, header.max_timestamp)
        producer.last_timestamp = self._newest_timestamp
        producer.seen_at = self._clock.monotonic()

    def _drop_oldest(self) -> None:
        """Make room; a producer whose transaction is open is needed to end it."""
        for producer_id in self._producers:
            if producer_id not in self._open:
                del self._producers[producer_id]
                return

    def ended(self, header: BatchHeader, base_offset: int, *, commit: bool) -> None:
        """Follow the log: a marker."""
        producer = self._producer(header)
        self._note_time(producer, header)
        start = producer.transaction_start
        if start == NO_TRANSACTION:
            return
        producer.transaction_start = NO_TRANSACTION
        del self._open[header.producer_id]
        self._ending.append((base_offset, start))
        if len(self._ending) > _ENDING_KEPT:
            # Nobody has asked for long: the two oldest count as one, which ends with the later.
            (_, older), (marker, newer) = self._ending[:2]
            self._ending[:2] = [(marker, min(older, newer))]
        if not commit:
            self._aborted.append(Aborted(header.producer_id, start, base_offset))

    def snapshot(self) -> bytes:
        """The table, without the producers that have been silent for a day."""
        self._expire()
        parts = [bytes([_VERSION]), _COUNT.pack(len(self._producers))]
        for producer_id, producer in self._producers.items():
            parts.append(
                _PRODUCER.pack(
                    producer_id,
                    producer.epoch,
                    producer.last_timestamp,
                    producer.transaction_start,
                    len(producer.batches),
                )
            )
            parts += (_BATCH.pack(*batch) for batch in producer.batches)
        parts += (_ABORTED.pack(*aborted) for aborted in self._aborted)
        return b"".join(parts)

    def restore(self, state: bytes) -> None:
        """Take over a snapshot; the checkpoint's checksum has vouched for its bytes."""
        self._producers.clear()
        self._newest_timestamp = 0
        self._open, self._ending, self._aborted = {}, [], []
        if not state:
            return
        version, position = state[0], 1
        assert version in (1, _VERSION)
        if version == 1:
            while position < len(state):
                position = self._restore_producer(state, position, _PRODUCER_V1)
            return
        (count,) = _COUNT.unpack_from(state, position)
        position += _COUNT.size
        for _ in range(count):
            position = self._restore_producer(state, position, _PRODUCER)
        self._aborted = [Aborted._make(a) for a in _ABORTED.iter_unpack(state[position:])]

    def _restore_producer(self, state: bytes, position: int, layout: Struct) -> int:
        """Read one producer at position; returns the position after it."""
        producer_id, epoch, last_timestamp, *transaction, count = layout.unpack_from(
            state, position
        )
        position += layout.size
        producer = Producer(epoch)
        producer.last_timestamp = last_timestamp
        producer.seen_at = self._clock.monotonic()
        for _ in range(count):
            producer.batches.append(WrittenBatch._make(_BATCH.unpack_from(state, position)))
            position += _BATCH.size
        if transaction and transaction[0] != NO_TRANSACTION:
            producer.transaction_start = self._open[producer_id] = transaction[0]
        self._producers[producer_id] = producer
        self._newest_timestamp = max(self._newest_timestamp, last_timestamp)
        return position

    def needed(self) -> list[int]:
        """The last batch of each producer, which says what its next sequence is."""
        self._expire()
        return [p.batches[-1].base_offset for p in self._producers.values() if p.batches]

    def fences(self) -> list[tuple[int, int]]:
        """Producers whose epoch is known from a marker alone."""
        self._expire()
        return [(number, p.epoch) for number, p in self._producers.items() if not p.batches]

    def _expire(self) -> None:
        """Forget who was silent for a day of the log's time and for one of ours.

        The log's alone may run ahead: others write what they date later, while this one retries. Ours
        alone begins anew with every start.
        """
        horizon = self._newest_timestamp - _EXPIRY_MS
        seen_horizon = self._clock.monotonic() - _EXPIRY_MS / 1000
        silent = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.last_timestamp < horizon
            and producer.seen_at < seen_horizon
            and producer_id not in self._open
        ]
        for producer_id in silent:
            del self._producers[producer_id]


def _marker_offset(aborted: Aborted) -> int:
    return aborted.marker_offset


def sequence_after(sequence: int, count: int) -> int:
    """Sequences wrap from 2^31-1 to 0."""
    return (sequence + count) & _SEQUENCE_MAX


def _out_of_order(header: BatchHeader, expected: int) -> OutOfOrderSequenceError:
    return OutOfOrderSequenceError(
        f"append for producer {header.producer_id}",
        f"sequence {header.base_sequence} where {expected} is expected",
        "batches before it were lost; the client restarts its sequence",
    )
