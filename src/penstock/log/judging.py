"""Which records of transactions count, and which of their ends a pass of compaction must keep.

Asked by whoever goes over what is decided: queues, which give out no record of an aborted transaction,
and compaction, which removes them. The marker that ends a transaction is needed as long as a batch of it
is there, if only an empty one, and as long as it alone says which epoch its producer has come to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from penstock.record.batch import TRANSACTIONAL_FLAG, BatchHeader


class Transactions:
    """Asked batch by batch, in order.

    Args:
        aborted: producer, first offset and offset of the marker of every aborted transaction.
        fences: producers with the epoch that only a marker tells.
    """

    def __init__(self, aborted: Iterable[Sequence[int]], fences: Iterable[Sequence[int]]) -> None:
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first, marker in aborted:  # those of one producer are in order
            self._aborted.setdefault(producer_id, []).append((first, marker))
        self._fences = {(producer_id, epoch) for producer_id, epoch in fences}
        self._left: set[int] = set()
        """Producers of whose transaction something stays, up to where the pass is."""

    def aborted(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to a transaction that was aborted."""
        found = self._aborted.get(header.producer_id)
        if found is None or not header.attributes & TRANSACTIONAL_FLAG:
            return False
        at = bisect_right(found, header.base_offset, key=lambda one: one[0]) - 1
        return at >= 0 and header.base_offset < found[at][1]

    def stays(self, header: BatchHeader) -> None:
        """A batch stays, maybe without records."""
        if header.attributes & TRANSACTIONAL_FLAG:
            self._left.add(header.producer_id)

    def needs(self, marker: BatchHeader) -> bool:
        """Whether a marker must stay; it ends the transaction of its producer."""
        left = marker.producer_id in self._left
        self._left.discard(marker.producer_id)
        return left or (marker.producer_id, marker.producer_epoch) in self._fences
