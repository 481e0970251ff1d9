"""A question to a view: which rows, in which order, how many. Written as PostgREST writes them.

`user=eq.ann&amount=gte.10&order=amount.desc&limit=5`. Names are looked up among the view's columns, and
values travel beside the statement: nothing that is asked becomes a part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import UsageError
from penstock.limits import VIEW_ROWS_DEFAULT, VIEW_ROWS_MAX
from penstock.views import kinds
from penstock.views.kinds import Kind
from penstock.views.version import Shape

_ASK: Final = "cannot ask the view"
_OPERATORS: Final = {"eq": "=", "neq": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_IN: Final = "in"
_IS: Final = "is"
_NULLS: Final = {"null": "IS NULL", "notnull": "IS NOT NULL"}
# As PostgreSQL has it, and what PostgREST does.
_DIRECTIONS: Final = {"asc": "ASC NULLS LAST", "desc": "DESC NULLS FIRST"}
_OFFSET_MAX: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on one column."""

    column: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True)
class Query:
    """See the module."""

    filters: tuple[Filter, ...] = ()
    order: tuple[tuple[str, str], ...] = ()
    """Columns, each with asc or desc."""
    limit: int = VIEW_ROWS_DEFAULT
    offset: int = 0

    @classmethod
    def parse(cls, pairs: Iterable[tuple[str, str]]) -> Query:
        """Read the parameters of a URL.

        Raises:
            UsageError: they are no question.
        """
        filters: list[Filter] = []
        order: tuple[tuple[str, str], ...] = ()
        limit, offset = VIEW_ROWS_DEFAULT, 0
        for name, text in pairs:
            match name:
                case "order":
                    order = tuple(map(_direction, text.split(",")))
                case "limit":
                    limit = _number(name, text, VIEW_ROWS_MAX)
                case "offset":
                    offset = _number(name, text, _OFFSET_MAX)
                case _:
                    filters.append(_filter(name, text))
        return cls(tuple(filters), order, limit, offset)


def _number(name: str, text: str, most: int) -> int:
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not digits or int(text) > most:
        cause = f"{name} is '{text}'"
        raise UsageError(_ASK, cause, f"write a number from 0 to {most}")
    return int(text)


def _direction(text: str) -> tuple[str, str]:
    column, _, direction = text.partition(".")
    direction = direction or "asc"
    if direction not in _DIRECTIONS:
        raise UsageError(_ASK, f"order is '{text}'", "write COLUMN, COLUMN.asc or COLUMN.desc")
    return column, direction


def _filter(name: str, text: str) -> Filter:
    operator, dot, value = text.partition(".")
    known = (*_OPERATORS, _IN, _IS)
    if not dot or operator not in known:
        remedy = f"write {name}=OPERATOR.VALUE, with one of {', '.join(known)}"
        raise UsageError(_ASK, f"'{name}={text}' names no operator", remedy)
    return Filter(name, operator, value)


class Selection:
    """A query as a statement for the table of one version, and the values beside it.

    Args:
        query: what is asked.
        shape: the columns that there are.
        comparable: how a column is compared in this database.
        stored: how a value is, too.
    """

    def __init__(self, query: Query, shape: Shape, comparable: Any, stored: Any) -> None:
        self._shape = shape
        self._comparable = comparable
        self._stored = stored
        self.values: list[Any] = []
        conditions = [self._condition(one) for one in query.filters]
        self._where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        self._order = ", ".join(self._ordering(query.order))
        # One more than is wanted tells whether there are more.
        self._limit = f" LIMIT {query.limit + 1} OFFSET {query.offset}"

    def statement(self, columns: str, table: str) -> str:
        """The whole of it."""
        return f"SELECT {columns} FROM {table}{self._where} ORDER BY {self._order}{self._limit}"  # noqa: S608 -- from names that are looked up

    def _kind(self, column: str) -> Kind:
        kind = self._shape.kind(column)
        if kind is None:
            remedy = f"there are {', '.join(self._shape.names)}"
            raise UsageError(_ASK, f"there is no column {column}", remedy)
        return kind

    def _condition(self, one: Filter) -> str:
        kind = self._kind(one.column)
        column = self._comparable(one.column, kind)
        if one.operator == _IS:
            if one.value not in _NULLS:
                raise UsageError(
                    _ASK, f"is.{one.value} means nothing", "write is.null or is.notnull"
                )
            return f"{column} {_NULLS[one.value]}"
        if kind is Kind.JSON:
            cause = f"{one.column} is a nested value, and those are not compared"
            raise UsageError(_ASK, cause, "compare another column")
        if one.operator == _IN:
            values = [self._value(kind, text) for text in _members(one.value)]
            return f"{column} IN ({', '.join(values)})"
        return f"{column} {_OPERATORS[one.operator]} {self._value(kind, one.value)}"

    def _value(self, kind: Kind, text: str) -> str:
        self.values.append(self._stored(kind, kinds.parse(kind, text)))
        return "?"

    def _ordering(self, order: Sequence[tuple[str, str]]) -> list[str]:
        named = [
            f"{self._comparable(column, self._kind(column))} {_DIRECTIONS[direction]}"
            for column, direction in order
        ]
        # The key last: rows that are alike in what was asked still have one order.
        asked = {column for column, _ in order}
        rest = [column for column in self._shape.key if column not in asked]
        return named + [self._comparable(column, self._kind(column)) for column in rest]


def _members(text: str) -> list[str]:
    if not (text.startswith("(") and text.endswith(")") and len(text) > 2):
        raise UsageError(_ASK, f"in.{text} is no list", "write in.(a,b)")
    return text[1:-1].split(",")
