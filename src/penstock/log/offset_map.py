"""The newest offset of every key, in little memory: what one pass of compaction remembers.

A key is known by 128 bits of its BLAKE2b hash, so that two keys are never taken for one. Slots of
three 64-bit numbers (half of the hash, the other half, offset) in one array that is probed in order;
it grows by half-full doubling, to 48 bytes for a key at the most.

This module may run compiled (setup.py), with the C types that stand in offset_map.pxd.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from struct import Struct

_FIRST_SLOTS = 1024  # a power of two, as all further sizes
_FREE = -1
_HALVES = Struct("=qq")


class OffsetMap:
    """Keys and the largest offset each was put with."""

    def __init__(self) -> None:
        self._count = 0
        self._allocate(_FIRST_SLOTS)

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, offset: int) -> None:
        """Remember an offset; those of a key come in rising order."""
        if 2 * self._count >= self._slots:
            self._grow()
        high, low = _HALVES.unpack(blake2b(key, digest_size=16).digest())
        self._put(high, low, offset)

    def get(self, key: bytes) -> int:
        """The last offset of a key; -1 for one that is not there."""
        high, low = _HALVES.unpack(blake2b(key, digest_size=16).digest())
        return self._table[3 * self._slot(high, low) + 2]

    def _allocate(self, slots: int) -> None:
        self._slots = slots
        self._table = array("q", [_FREE]) * (3 * slots)

    def _slot(self, high: int, low: int) -> int:
        """Where a key is, or the free slot where it would be."""
        table = self._table
        mask = self._slots - 1
        slot = low & mask
        while table[3 * slot + 2] != _FREE:
            if table[3 * slot] == high and table[3 * slot + 1] == low:
                return slot
            slot = (slot + 1) & mask
        return slot

    def _put(self, high: int, low: int, offset: int) -> None:
        table = self._table
        at = 3 * self._slot(high, low)
        if table[at + 2] == _FREE:
            self._count += 1
            table[at] = high
            table[at + 1] = low
        table[at + 2] = offset

    def _grow(self) -> None:
        old = self._table
        self._count = 0
        self._allocate(2 * self._slots)
        for at in range(0, len(old), 3):
            if old[at + 2] != _FREE:
                self._put(old[at], old[at + 1], old[at + 2])
