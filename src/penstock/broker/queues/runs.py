"""Values of neighbouring positions, kept as runs: a million equal ones cost as much as one.

Positions that nothing was put at have the default value, without end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")
ENDLESS = 2**63 - 1


class Run(NamedTuple, Generic[V]):
    """Neighbours of equal value, the last one included."""

    first: int
    last: int
    value: V

    @property
    def size(self) -> int:
        """How many positions it is."""
        return self.last - self.first + 1


class Runs(Generic[V]):
    """See the module."""

    def __init__(self, default: V) -> None:
        self._default = default
        self._runs: list[Run[V]] = []

    def __iter__(self) -> Iterator[Run[V]]:
        """What differs from the default, in order."""
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def end(self) -> int:
        """The position after the last that differs from the default; 0 if none does."""
        return self._runs[-1].last + 1 if self._runs else 0

    def over(self, first: int, last: int = ENDLESS) -> Iterator[Run[V]]:
        """The runs from first to last, cut to fit, with those of the default between them."""
        at = self._index(first)
        while first <= last:
            run = self._runs[at] if at < len(self._runs) else None
            if run is None or run.first > last:
                yield Run(first, last, self._default)
                return
            if run.first > first:
                yield Run(first, run.first - 1, self._default)
            yield Run(max(first, run.first), min(last, run.last), run.value)
            first = run.last + 1
            at += 1

    def put(self, first: int, last: int, value: V) -> None:
        """Give positions a value."""
        assert first <= last
        begin = self._index(first - 1)  # with the neighbours, which may have the same value
        end = self._index(last + 2)
        if end < len(self._runs) and self._runs[end].first <= last + 1:
            end += 1
        pieces: list[Run[V]] = []
        for run in self._runs[begin:end]:
            if run.first < first:
                pieces.append(Run(run.first, min(run.last, first - 1), run.value))
        if value != self._default:
            pieces.append(Run(first, last, value))
        for run in self._runs[begin:end]:
            if run.last > last:
                pieces.append(Run(max(run.first, last + 1), run.last, run.value))
        self._runs[begin:end] = _joined(pieces)

    def drop_below(self, position: int) -> None:
        """Forget what was put below a position."""
        at = self._index(position)
        del self._runs[:at]
        if self._runs and self._runs[0].first < position:
            self._runs[0] = self._runs[0]._replace(first=position)

    def drop_from(self, position: int) -> None:
        """Forget what was put at a position and above."""
        at = self._index(position)
        kept = self._runs[at : at + 1]
        del self._runs[at:]
        if kept and kept[0].first < position:
            self._runs.append(kept[0]._replace(last=position - 1))

    def _index(self, position: int) -> int:
        """The first run that ends at a position or after it."""
        return bisect_left(self._runs, position, key=_last)


def _last(run: Run[V]) -> int:
    return run.last


def _joined(runs: list[Run[V]]) -> list[Run[V]]:
    joined: list[Run[V]] = []
    for run in runs:
        if joined and joined[-1].value == run.value and joined[-1].last + 1 == run.first:
            joined[-1] = joined[-1]._replace(last=run.last)
        else:
            joined.append(run)
    return joined
