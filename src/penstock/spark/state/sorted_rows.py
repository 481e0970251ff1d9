"""The rows of a file, sorted by the hash of their key: which hashes it names, and its rows of them."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

HASH: Final = "_hash"  # of the key: what rows are sorted by
DUE_ORDER: Final = "_due_order"  # positions of rows by their due time
Hashes = npt.NDArray[np.int64]
# Of the hashes that a file does not have, one in about so many is looked for in vain.
_MARKS_PER_ROW: Final = 8
_ROWS_PER_START: Final = 16
# So few are found sooner without an index.
_FEW: Final = 256


class SortedRows:
    """Rows of a file, which lie where it is mapped.

    A look for a hash waits for memory at every step, and most files have few of the hashes of a batch.
    So the first look makes two small indexes by the first bits of hashes, which are spread evenly: marks
    tell whether the file has any hash in a narrow range, starts where the rows of a wider one begin.
    """

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self._own = rows.drop_columns(DUE_ORDER) if DUE_ORDER in rows.column_names else rows

    @cached_property
    def hashes(self) -> Hashes:
        """The sorted column."""
        column = self.rows[HASH]
        whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        found: Hashes = whole.to_numpy()
        return found

    def find(self, wanted: Hashes) -> tuple[Hashes, pa.Table]:
        """Which of sorted hashes are there, by their positions, and all their rows."""
        maybe = np.flatnonzero(self._marked(wanted))
        begin = self._begin(wanted[maybe])
        there = self._is_at(begin, wanted[maybe])
        here, begin = maybe[there], begin[there]
        if self._is_at(begin + 1, wanted[here]).any():  # a key has more rows than one
            begin = _positions(begin, np.searchsorted(self.hashes, wanted[here], "right"))
        return here, self._own.take(pa.array(begin))

    def _is_at(self, positions: Hashes, wanted: Hashes) -> npt.NDArray[np.bool_]:
        last = len(self.hashes) - 1
        found: npt.NDArray[np.bool_] = self.hashes[np.minimum(positions, last)] == wanted
        return found & (positions <= last)

    def part(self, low: int, high: int) -> pa.Table:
        """The rows whose hashes are in a range, both ends included."""
        begin, end = self.place(low, high)
        return self.rows.slice(begin, end - begin)

    def place(self, low: int, high: int) -> tuple[int, int]:
        """Where the rows begin and end whose hashes are in a range."""
        begin = np.searchsorted(self.hashes, low, "left")
        return int(begin), max(int(begin), int(np.searchsorted(self.hashes, high, "right")))

    def _marked(self, wanted: Hashes) -> npt.NDArray[np.bool_]:
        marks, bits = self._marks
        ranges = _ranges(wanted, bits)
        marked: npt.NDArray[np.bool_] = (marks[ranges >> 3] >> (ranges & 7)) & 1 > 0
        return marked

    def _begin(self, wanted: Hashes) -> Hashes:
        """What searchsorted says, by steps that all hashes take at once."""
        if len(wanted) < _FEW:
            return np.searchsorted(self.hashes, wanted, "left")
        starts, bits = self._starts
        ranges = _ranges(wanted, bits)
        low, high = starts[ranges], starts[ranges + 1]
        while (within := low < high).any():
            middle = (low + high) >> 1
            less = self.hashes[np.where(within, middle, 0)] < wanted
            low = np.where(within & less, middle + 1, low)
            high = np.where(within & ~less, middle, high)
        return low

    @cached_property
    def _marks(self) -> tuple[npt.NDArray[np.uint8], int]:
        bits = max(3, (len(self.hashes) * _MARKS_PER_ROW).bit_length())
        marks = np.zeros(1 << bits, np.bool_)
        marks[_ranges(self.hashes, bits)] = True
        return np.packbits(marks, bitorder="little"), bits

    @cached_property
    def _starts(self) -> tuple[Hashes, int]:
        bits = max(1, (len(self.hashes) // _ROWS_PER_START).bit_length())
        counts = np.bincount(_ranges(self.hashes, bits), minlength=1 << bits)
        return np.concatenate(([0], np.cumsum(counts))), bits


def _ranges(hashes: Hashes, bits: int) -> Hashes:
    """Which of 2 ** bits ranges hashes are in, counted from the lowest."""
    return (hashes >> (64 - bits)) + (1 << (bits - 1))


def _positions(begin: Hashes, end: Hashes) -> Hashes:
    """All positions of ranges, one after the other."""
    counts = end - begin
    starts = np.repeat(begin - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    return starts + np.arange(counts.sum())
