"""Goes over the batches of a fetch and leaves out what its reader must not see.

What is left out: batches before the offset that was asked for, the markers that end transactions, and
the batches of transactions that were aborted, of which the broker names producer and first offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.client.cluster import Fetched
from penstock.record.batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    checked,
)
from penstock.record.compression import decompress
from penstock.record.marker import commits


class OpenBatch(NamedTuple):
    """A batch with its records unpacked."""

    header: BatchHeader
    records: bytes


def whole_batches(data: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a fetch, with its header; the broker cuts the last at a number of bytes.

    Raises:
        InvalidBatchError: one is damaged.
    """
    left = memoryview(data)
    while len(left) >= HEADER_BYTES:
        size = LENGTH_OVERHEAD + int.from_bytes(left[8:12])
        if len(left) < size:
            break
        yield checked(left[:size]), left[:size]
        left = left[size:]


def opened(header: BatchHeader, batch: memoryview) -> OpenBatch:
    """A batch with its records unpacked."""
    return OpenBatch(header, decompress(header.codec, batch[HEADER_BYTES:]))


class Batches:
    """The batches of one fetch; `next_offset` is where to go on once they have been gone over."""

    def __init__(self, fetched: Fetched, offset: int) -> None:
        self._data = fetched.batches
        self._aborted = sorted(fetched.aborted, key=lambda one: one[1], reverse=True)
        self._aborting: set[int] = set()
        self.next_offset = offset

    def __iter__(self) -> Iterator[OpenBatch]:
        """The batches to be read.

        Raises:
            InvalidBatchError: one is damaged.
        """
        for header, batch in whole_batches(self._data):
            end = header.base_offset + header.last_offset_delta + 1
            if end <= self.next_offset:
                continue
            if self._wanted(header, batch):
                yield opened(header, batch)
            self.next_offset = end

    def _wanted(self, header: BatchHeader, batch: memoryview) -> bool:
        last = header.base_offset + header.last_offset_delta
        while self._aborted and self._aborted[-1][1] <= last:
            self._aborting.add(self._aborted.pop()[0])
        if header.attributes & CONTROL_FLAG:
            if not commits(batch):
                self._aborting.discard(header.producer_id)
            return False
        return not (header.attributes & TRANSACTIONAL_FLAG and header.producer_id in self._aborting)
