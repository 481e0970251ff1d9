"""Giving out records of a partition: what the queue has ready, as the batches that hold it.

Batches are never opened: a member gets whole ones, and is told which of their records are its own. What
nobody may see, such as the markers of transactions and, for readers of committed records, those that
were aborted, is finished here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.broker.appending import Appender
from penstock.broker.group_config import Begin, GroupConfig
from penstock.broker.producers import Aborted
from penstock.broker.queues.ledger import Given
from penstock.broker.queues.queue import Hold, Queue
from penstock.broker.queues.runs import ENDLESS
from penstock.errors import DamagedLogError
from penstock.limits import KIB
from penstock.log.judging import Transactions
from penstock.log.partition import Partition
from penstock.log.reading import NotCachedError, offset_for_time, read
from penstock.record.batch import BatchHeader, headers

# Of what is given out again few neighbours may be ready: not much is read for their sake.
_AGAIN_BYTES = 64 * KIB


class Wish(NamedTuple):
    """How much a member wants."""

    records: int
    size: int
    """Bytes; the first batch may have more."""
    exactly: bool
    """Whether the number of records is a limit, even inside a batch."""
    committed_only: bool


class Span(NamedTuple):
    """Positions to look at."""

    first: int
    end: int
    transactions: Transactions
    """Who knows what of them was aborted."""


class Delivery(NamedTuple):
    """What a member gets."""

    batches: list[memoryview]
    given: list[Given]
    skipped_on: bool = False
    """Nothing is given, but only because it was not looked at everything yet."""

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(len(batch) for batch in self.batches)

    @property
    def records(self) -> int:
        """Positions, of which a few may turn out to be empty."""
        return sum(given.last - given.first + 1 for given in self.given)


def first_position(partition: Partition, config: GroupConfig, now_ms: int) -> int:
    """Where a group begins that has never read a partition."""
    if config.begin is Begin.EARLIEST:
        return partition.start_offset
    if config.begin is Begin.BY_DURATION:
        found = offset_for_time(partition, max(0, now_ms - config.begin_before_ms))
        if found is not None:
            return found.offset
    return partition.durable_offset


def deliver(queue: Queue, partition: Partition, holder: str, wish: Wish) -> Delivery:
    """Give a holder what is ready, from the oldest on.

    Raises:
        NotCachedError: the disk would have to be waited for, and nothing was given out.
        DamagedLogError: what stands in a segment is not a batch, and nothing was given out.
    """
    queue.follow(partition.start_offset)
    producers = Appender.producers(partition)
    end = partition.durable_offset
    if wish.committed_only:
        end = producers.last_stable_offset(end)
    delivery = Delivery([], [])
    # The same for all, so that neighbours which are given out one by one cost as much as one.
    hold = Hold(holder, queue.next_deadline)
    position = queue.next_ready(queue.start)
    looked = 0
    # What nobody may see is skipped for as many bytes as were asked for, not for a whole log.
    while position < end and looked < wish.size and not _is_enough(delivery, wish):
        size = wish.size - delivery.size
        if position < queue.given_end:
            size = min(size, _AGAIN_BYTES)
        try:
            data = memoryview(bytes(read(partition, position, size, end)))
        except (NotCachedError, DamagedLogError):
            if delivery.given:
                break  # the next request asks for the rest, or is told
            raise
        looked += len(data)
        batches = list(_batches(data))
        aborted: list[Aborted] = []
        if wish.committed_only and batches:
            aborted = producers.aborted_between(position, batches[-1][0].last_offset + 1)
        span = Span(position, end, Transactions(aborted, ()))
        after = _deliver_batches(queue, batches, span, hold, wish, delivery)
        queue.remember_skipped()
        if after == position:
            break
        position = queue.next_ready(after)
    skipped_on = looked >= wish.size and not delivery.given
    return delivery._replace(skipped_on=skipped_on)


def _is_enough(delivery: Delivery, wish: Wish) -> bool:
    return delivery.records >= wish.records or delivery.size >= wish.size


def _deliver_batches(
    queue: Queue,
    batches: Iterable[tuple[BatchHeader, memoryview]],
    span: Span,
    hold: Hold,
    wish: Wish,
    delivery: Delivery,
) -> int:
    """Give out what is ready of some batches; returns the position after the last one looked at."""
    position = span.first
    # What is given has its place below the limit already, what is skipped makes room for as much.
    limit = queue.limit
    for header, batch in batches:
        if header.base_offset > position:  # compacted away
            limit += queue.skip(position, min(header.base_offset, span.end) - 1)
        first = max(position, header.base_offset)
        last = min(header.last_offset, span.end - 1)
        if first > last:
            return span.end
        if header.is_control or header.record_count == 0 or span.transactions.aborted(header):
            limit += queue.skip(first, last)
        else:
            # What is skipped needs no place among those that may be on their way, what is given does.
            last = min(last, limit - 1)
            if first > last:
                break
            most = wish.records - delivery.records if wish.exactly else ENDLESS
            given = queue.take(first, last, hold, most)
            if given:
                delivery.batches.append(batch)
                _append(delivery.given, given)
        position = last + 1
        if _is_enough(delivery, wish):
            break
    return position


def _append(given: list[Given], more: list[Given]) -> None:
    for one in more:
        before = given[-1] if given else None
        if before and before.last + 1 == one.first and before.deliveries == one.deliveries:
            given[-1] = before._replace(last=one.last)
        else:
            given.append(one)


def _batches(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches; the last one of what was read may be cut short."""
    for at, header in headers(data):
        if at + header.size <= len(data):
            yield header, data[at : at + header.size]
