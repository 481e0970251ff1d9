"""Where an epoch ended: how a reader finds out that a log was cut under it.

Every start of the server begins an epoch, and marks the batches that it appends with its number. A
reader knows the epoch of the last batch that it has read. After another start it asks where that epoch
ended: if that is before its position, then a crash has taken what it read there, and what has come since
has the same offsets (Kafka's KIP-320).

Nothing is kept for it but the marks: they only grow along a log, so that they can be searched.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from penstock.errors import DamagedLogError
from penstock.log.partition import Partition
from penstock.log.reading import walk
from penstock.log.segment import Segment
from penstock.record.batch import HEADER_BYTES, MAGIC, parse


class EpochEnd(NamedTuple):
    """An epoch of a log and the offset after its last record."""

    epoch: int
    offset: int


def end_of_epoch(partition: Partition, epoch: int) -> EpochEnd | None:
    """The last epoch up to this one that the log has records of, and its end; None for one to come.

    Raises:
        DamagedLogError: what stands in a segment is not a batch.
    """
    if not 0 <= epoch <= partition.epoch:
        return None
    if epoch == partition.epoch:
        return EpochEnd(epoch, partition.durable_offset)
    segments = partition.segments
    later = bisect_left(segments, True, key=lambda one: _begins_after(partition, one, epoch))
    if later == 0:
        return EpochEnd(epoch, partition.start_offset)
    return _end_within(partition, segments[later - 1], epoch)


def _begins_after(partition: Partition, segment: Segment, epoch: int) -> bool:
    """Whether all of a segment is later; the empty one at the end will be."""
    return segment.size == 0 or _epoch_at(partition, segment, 0) > epoch


def _end_within(partition: Partition, segment: Segment, epoch: int) -> EpochEnd:
    """The end of an epoch that a segment begins in, or before."""
    offsets = range(segment.base_offset, segment.next_offset)
    later = bisect_left(
        offsets, True, key=lambda at: _epoch_at(partition, segment, segment.floor(at)) > epoch
    )
    # The index knows few batches: the first later one stands after the last that it knows before.
    found = EpochEnd(epoch, segment.base_offset)
    for _, header in walk(segment, segment.floor(offsets[later - 1]), segment.size):
        if header.leader_epoch > epoch:
            return found
        found = EpochEnd(header.leader_epoch, header.last_offset + 1)
    if found.offset != segment.next_offset:
        raise _damaged(partition, segment, f"ends at {found.offset}")
    return found


def _epoch_at(partition: Partition, segment: Segment, position: int) -> int:
    data = segment.file.pread(HEADER_BYTES, position)
    if len(data) < HEADER_BYTES or parse(data).magic != MAGIC:
        raise _damaged(partition, segment, f"has no batch at byte {position}")
    return parse(data).leader_epoch


def _damaged(partition: Partition, segment: Segment, how: str) -> DamagedLogError:
    return DamagedLogError(
        f"look for an epoch of {partition}",
        f"segment {segment.base_offset:020d} {how}",
        "run `penstock log verify` on the data folder",
    )
