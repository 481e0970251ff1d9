"""How the rows of a batch change a table: they are added, replace others by key, or are changes.

append      every row is added
upsert      a row replaces the one of the same key; of several in a batch the last one counts
changelog   `_change_type` says what a row is: `insert` and `update_postimage` put it in the place of the
            one with its key, `delete` and `update_preimage` take that one away

Of one key the last change of a batch counts: in the order of tasks, and of rows within a task. What
keeps changes of a key in one task, as our operators do, keeps their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    MapType,
    NullType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from penstock.errors import UsageError

Mode = Literal["append", "upsert", "changelog"]
CHANGE: Final = "_change_type"
PUTS: Final = ("insert", "update_postimage")
TAKES: Final = ("delete", "update_preimage")
NESTED: Final = (StructType, ArrayType, MapType)
# Databases keep them in ways of their own, or not at all.
_REFUSED: Final = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType, VariantType)


@dataclass(frozen=True, slots=True)
class RowMode:
    """What a sink does with rows, and by which key."""

    mode: Mode
    key: tuple[str, ...]
    operation: str

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Which columns of a row the table has."""
        return [name for name in columns if self.mode != "changelog" or name != CHANGE]

    def check(self, frame: DataFrame, *, nulls: bool = True) -> None:
        """Say what is wrong with the columns of a query.

        Args:
            frame: the query.
            nulls: whether the table can have a column of no type.

        Raises:
            UsageError: a column is missing, there twice, or of a type that cannot be kept.
        """
        listed = ", ".join(frame.columns)
        if self.mode == "changelog":
            self._check_changes(frame)
        for name in self.key:
            if name not in self.stored(frame.columns):
                cause = f"there is no column {name} for the key"
                raise UsageError(self.operation, cause, f"there are {listed}")
        folded = [name.lower() for name in frame.columns]
        twice = [name for name in frame.columns if folded.count(name.lower()) > 1]
        if twice:
            raise UsageError(self.operation, f"there are two columns {twice[0]}", "rename one")
        refused = _REFUSED if nulls else (*_REFUSED, NullType)
        for field in frame.schema:
            bad = _first_of(field.dataType, refused)
            if bad is not None:
                cause = f"column {field.name} holds {bad.simpleString()}"
                raise UsageError(self.operation, cause, "cast it to a type that can be stored")

    def _check_changes(self, frame: DataFrame) -> None:
        kind = frame.schema[CHANGE].dataType if CHANGE in frame.columns else None
        if not isinstance(kind, StringType):
            cause = f"there is no column {CHANGE} of strings that says what a row is"
            remedy = f"add one of {', '.join((*PUTS, *TAKES))}, or choose another mode"
            raise UsageError(self.operation, cause, remedy)

    def refuse_null(self, column: str) -> UsageError:
        """The error for a row without a key: two of them would be two rows in most databases."""
        cause = f"a row has no {column}, which is of the key"
        return UsageError(self.operation, cause, "filter such rows out, or give it with coalesce")

    def refuse_change(self, found: Any) -> UsageError:
        """The error for a row that is no change."""
        cause = f"a row has {CHANGE} {found!r}"
        return UsageError(self.operation, cause, f"it is one of {', '.join((*PUTS, *TAKES))}")


def row_mode(mode: Mode | None, key: str | Sequence[str], operation: str) -> RowMode:
    """What a caller means: by default rows are replaced if there is a key, and otherwise added.

    Raises:
        UsageError: there is no such mode, or it needs a key, or has no use for one.
    """
    names = (key,) if isinstance(key, str) else tuple(key)
    chosen = mode or ("upsert" if names else "append")
    if chosen not in get_args(Mode):
        known = ", ".join(get_args(Mode))
        raise UsageError(operation, f"there is no mode {chosen}", f"use one of {known}")
    if chosen == "append" and names:
        raise UsageError(operation, "append has no use for a key", "leave one of them out")
    if chosen != "append" and not names:
        raise UsageError(operation, f"{chosen} needs a key", "name its columns in key=")
    return RowMode(chosen, names, operation)


def column(name: str) -> Column:
    """A column by its name, also with a dot in it."""
    return sql.col("`" + name.replace("`", "``") + "`")


def numbered(frame: DataFrame) -> DataFrame:
    """The same columns by number: mapInArrow takes no name with a dot in it."""
    return frame.toDF(*(f"c{at}" for at in range(len(frame.columns))))


def _first_of(kind: DataType, refused: tuple[type[DataType], ...]) -> DataType | None:
    """The first type of some within a type."""
    if isinstance(kind, refused):
        return kind
    inner: list[DataType] = []
    if isinstance(kind, StructType):
        inner = [field.dataType for field in kind]
    elif isinstance(kind, ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    return next((bad for one in inner if (bad := _first_of(one, refused)) is not None), None)
