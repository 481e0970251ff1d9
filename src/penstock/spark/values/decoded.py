"""What comes of decoding values: columns, and which values do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

REASON_LENGTH_MAX: Final = 300


class UnreadableError(Exception):
    """What is wrong with one value."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A value that does not fit."""

    row: int
    reason: str


@dataclass(slots=True)
class Decoded:
    """Columns of all values, with nulls in the rows of those that do not fit."""

    columns: dict[str, pa.Array]
    malformed: list[Malformed] = field(default_factory=list)


def decode_each(
    values: Iterable[bytes | None],
    read: Callable[[bytes], dict[str, Any]],
    types: Mapping[str, pa.DataType],
) -> Decoded:
    """Columns of values that are read one by one, with UnreadableError for those that are none.

    A null is a row of nulls.
    """
    rows: list[dict[str, Any] | None] = []
    malformed: list[Malformed] = []
    for number, value in enumerate(values):
        row = None
        if value is not None:
            try:
                row = read(value)
            except UnreadableError as error:
                malformed.append(Malformed(number, str(error)[:REASON_LENGTH_MAX]))
        rows.append(row)
    return _columns_of(rows, types, malformed)


def _columns_of(
    rows: list[dict[str, Any] | None],
    types: Mapping[str, pa.DataType],
    malformed: Sequence[Malformed],
) -> Decoded:
    """Columns of rows that a reader made; None is a row of nulls."""
    found = list(malformed)
    shapes = {name: _shape(kind) for name, kind in types.items()}
    try:
        columns = {name: _column(rows, name, types[name], shapes[name]) for name in types}
    except _MISFITS:
        # Once more, row by row: which ones do not fit is not known otherwise.
        for number, row in enumerate(rows):
            if row is not None and (reason := _misfit(row, types, shapes)):
                found.append(Malformed(number, reason))
                rows[number] = None
        columns = {name: _column(rows, name, types[name], shapes[name]) for name in types}
    return Decoded(columns, sorted(found, key=lambda one: one.row))


_Shape = Callable[[Any], Any]
_MISFITS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError)


def _column(
    rows: Sequence[dict[str, Any] | None], name: str, kind: pa.DataType, shape: _Shape | None
) -> pa.Array:
    cells = [None if row is None else row.get(name) for row in rows]
    if shape is not None:
        cells = [None if cell is None else shape(cell) for cell in cells]
    return pa.array(cells, kind)


def _misfit(
    row: dict[str, Any], types: Mapping[str, pa.DataType], shapes: Mapping[str, _Shape | None]
) -> str:
    for name, kind in types.items():
        try:
            _column([row], name, kind, shapes[name])
        except _MISFITS as error:
            return f"{name}: {error}"
    return ""


def _shape(kind: pa.DataType) -> _Shape | None:
    """How a cell becomes what Arrow takes for a type, where it is not that already."""
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_map(kind):
        item = _shape(kind.item_type)
        return lambda cell: [
            (k, v if item is None or v is None else item(v)) for k, v in cell.items()
        ]
    if pa.types.is_list(kind):
        element = _shape(kind.value_type)
        return element and (lambda cell: [None if one is None else element(one) for one in cell])
    if pa.types.is_struct(kind):
        inner = {one.name: shape for one in kind if (shape := _shape(one.type)) is not None}
        return (lambda cell: _struct(cell, inner)) if inner else None
    return None


def _text(cell: Any) -> Any:
    return str(cell) if isinstance(cell, UUID) else cell


def _struct(cell: dict[str, Any], inner: Mapping[str, _Shape]) -> dict[str, Any]:
    changed = {
        name: shape(cell[name]) for name, shape in inner.items() if cell.get(name) is not None
    }
    return {**cell, **changed}
