"""From the rows of a batch to what becomes of each key: the last row of it, or nothing.

Rows of a batch have no order of their own: tasks end as they like. So a key that comes twice needs
columns that say which row is the last, and is refused without them: every try of a batch must come to
the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock.errors import UsageError

CHANGE_TYPE: Final = "_change_type"
# Of a changelog's own columns none is a part of the view.
CHANGELOG_COLUMNS: Final = frozenset({CHANGE_TYPE, "_commit_version", "_commit_timestamp"})
_INSERT: Final = ("insert", "update_postimage")
_DELETE: Final = "delete"
_BEFORE: Final = "update_preimage"

Row = tuple[Any, ...]
Key = tuple[Any, ...]
Rank = tuple[Any, ...]


class Changes:
    """Takes the rows of one batch.

    Args:
        operation: for errors.
        names: the columns of the rows.
        kept: the columns of the view.
        key: those that name a row.
        order_by: those that say which row of a key is the last.
    """

    def __init__(
        self,
        operation: str,
        names: Sequence[str],
        kept: Sequence[str],
        key: Sequence[str],
        order_by: Sequence[str],
    ) -> None:
        at = {name: index for index, name in enumerate(names)}
        self._operation = operation
        self._change = at.get(CHANGE_TYPE)
        self._kept = [at[name] for name in kept]
        self._key_names = tuple(key)
        self._key = [at[name] for name in key]
        self._order = [at[name] for name in order_by]
        self._last: dict[Key, tuple[Rank, Row | None]] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Take rows.

        Raises:
            UsageError: a row cannot be placed.
        """
        for row in rows:
            kind = _INSERT[0] if self._change is None else row[self._change]
            if kind == _BEFORE:
                continue
            if kind not in (*_INSERT, _DELETE):
                cause = f"{CHANGE_TYPE} is {kind!r}"
                remedy = f"it can be {', '.join((*_INSERT, _DELETE, _BEFORE))}"
                raise UsageError(self._operation, cause, remedy)
            key = self._key_of(row)
            after = None if kind == _DELETE else tuple(row[index] for index in self._kept)
            self._place(key, self._rank(row, after), after)

    def upserts(self) -> list[Row]:
        """The rows that are to be there."""
        return [row for _, row in self._last.values() if row is not None]

    def deletes(self) -> list[Key]:
        """The keys that are to be gone."""
        return [key for key, (_, row) in self._last.items() if row is None]

    def _key_of(self, row: Row) -> Key:
        key = tuple(row[index] for index in self._key)
        if None in key:
            cause = f"{self._key_names[key.index(None)]}, of the key, is null"
            raise UsageError(self._operation, cause, "filter such rows, or use coalesce()")
        return key

    def _rank(self, row: Row, after: Row | None) -> Rank:
        order = [(row[index] is not None, row[index]) for index in self._order]
        # An update may be told as a delete and an insert; together they are the insert.
        return (*order, after is not None)

    def _place(self, key: Key, rank: Rank, after: Row | None) -> None:
        found = self._last.get(key)
        if found is not None and rank == found[0] and after != found[1]:
            names = dict(zip(self._key_names, key, strict=True))
            cause = f"there are two rows of {names} in a batch, and nothing says which is the last"
            raise UsageError(self._operation, cause, "name columns that do in order_by")
        if found is None or rank > found[0]:
            self._last[key] = (rank, after)
