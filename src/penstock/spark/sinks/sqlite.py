"""Writes the batches of a query to a table of SQLite, each of them exactly once.

The driver writes all rows of a batch in one transaction of the database, together with a row in
`penstock_commits` that says which batch of which query it was. A batch that Spark runs again finds that
row and writes nothing. SQLite has one writer at a time: for tables that many write to, take PostgreSQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    NullType,
)

from penstock.errors import UsageError
from penstock.spark.sinks.replays import was_written
from penstock.spark.sinks.row_modes import (
    CHANGE,
    NESTED,
    PUTS,
    TAKES,
    Mode,
    RowMode,
    column,
    row_mode,
)

MARKERS: Final = "penstock_commits"
_CREATE_MARKERS: Final = (
    f"CREATE TABLE IF NOT EXISTS {MARKERS} "
    "(query TEXT, sink TEXT, batch INTEGER NOT NULL, PRIMARY KEY (query, sink))"
)
_LAST: Final = f"SELECT batch FROM {MARKERS} WHERE query = ? AND sink = ?"  # noqa: S608 -- our name
_MARK: Final = f"INSERT OR REPLACE INTO {MARKERS} VALUES (?, ?, ?)"  # noqa: S608 -- our name
_WAIT_SECONDS: Final = 60.0
# All others are kept as text: times in ISO 8601 and UTC, decimal numbers as they are written.
_AFFINITIES: Final[tuple[tuple[tuple[type[DataType], ...], str], ...]] = (
    ((IntegralType, BooleanType), "INTEGER"),
    ((FloatType, DoubleType), "REAL"),
    ((BinaryType,), "BLOB"),
)


class SqliteSink:
    """See the module.

    Args:
        path: the database's file, which is made if it is not there.
        table: where rows go; made with the columns of the first batch if it is not there.
        key: columns that name a row.
        mode: append, upsert or changelog (row_modes.py); by default upsert with a key, otherwise append.
        name: what tells it from other sinks of the same query; by default by its table.

    Raises:
        UsageError: the mode does not fit the key.
    """

    def __init__(
        self,
        path: str | Path,
        table: str,
        *,
        key: str | Sequence[str] = (),
        mode: Mode | None = None,
        name: str | None = None,
    ) -> None:
        self._path = str(path)
        self._table = table
        self._name = name or f"table:{table}"
        self._operation = f"cannot write to table {table} of {path}"
        self._mode = row_mode(mode, key, self._operation)

    @property
    def name(self) -> str:
        """What tells it from other sinks of the same query."""
        return self._name

    def prepare(self, frame: DataFrame) -> None:
        """Say before a query starts what would stop it.

        Raises:
            UsageError: the database cannot be used, or the table has other columns.
        """
        self._mode.check(frame)
        try:
            with closing(self._connect()) as database:
                self._check_table(database, frame)
        except sqlite3.Error as error:
            raise UsageError(
                self._operation, str(error), "check the file and its folder"
            ) from error

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Write one batch, or find that it has been written.

        Raises:
            ConflictError: a later batch has been written.
            UsageError: a row has no key, or is no change.
        """
        marker = (query_id, self.name)
        with closing(self._connect()) as database:
            # At once as a writer, so that nobody else comes between the look and the commit.
            database.execute("BEGIN IMMEDIATE")
            database.execute(_CREATE_MARKERS)
            done = database.execute(_LAST, marker).fetchone()
            if not was_written(done and done[0], batch_id, self._operation):
                statements = _Statements(self._table, self._mode, batch)
                database.execute(statements.create)
                for statement, values in statements.of(_rows(batch)):
                    database.execute(statement, values)
                database.execute(_MARK, (*marker, batch_id))
            database.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        # Transactions are begun by hand: Python's own would begin them later than is said here.
        database = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None)
        # FULL does not sync the folder in which the journal was: a power cut could undo the commit.
        database.execute("PRAGMA synchronous = EXTRA")
        return database

    def _check_table(self, database: sqlite3.Connection, frame: DataFrame) -> None:
        """That an existing table takes these rows: SQLite itself is asked, by a plan of a statement."""
        pragma = f"PRAGMA table_info({_quoted(self._table)})"
        existing = {row[1]: row[2] for row in database.execute(pragma)}
        if not existing:
            return
        stored = self._mode.stored(frame.columns)
        for field in (field for field in frame.schema if field.name in stored):
            kept, wanted = existing.get(field.name), _affinity(field.dataType)
            if kept is None:
                cause = f"the table has no column {field.name}"
                raise UsageError(self._operation, cause, f"it has {', '.join(sorted(existing))}")
            if kept in _KEPT and kept != wanted and not isinstance(field.dataType, NullType):
                cause = f"column {field.name} is {kept} in the table, and {wanted} in the query"
                raise UsageError(self._operation, cause, "cast it, or write to another table")
        statements = _Statements(self._table, self._mode, frame)
        places = [None] * len(statements.columns)
        database.execute(f"EXPLAIN {statements.put}", places)


_KEPT: Final = ("INTEGER", "REAL", "BLOB", "TEXT")  # what we make; others are the user's own


class _Statements:
    """What rows do to a table."""

    def __init__(self, table: str, mode: RowMode, frame: DataFrame) -> None:
        self._mode = mode
        self._table = _quoted(table)
        self._all = frame.columns
        self.columns = mode.stored(frame.columns)
        kinds = {field.name: field.dataType for field in frame.schema}
        made = [f"{_quoted(name)} {_affinity(kinds[name])}" for name in self.columns]
        if mode.key:
            made.append(f"PRIMARY KEY ({', '.join(map(_quoted, mode.key))})")
        self.create = f"CREATE TABLE IF NOT EXISTS {self._table} ({', '.join(made)})"
        self.put = self._put()
        where = " AND ".join(f"{_quoted(name)} = ?" for name in mode.key)
        self._take = f"DELETE FROM {self._table} WHERE {where}"  # noqa: S608 -- quoted

    def of(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[str, Sequence[Any]]]:
        """A statement and its values for each row."""
        places = {name: at for at, name in enumerate(self._all)}
        stored = [places[name] for name in self.columns]
        key = [places[name] for name in self._mode.key]
        change = places[CHANGE] if self._mode.mode == "changelog" else None
        for row in rows:
            missing = [self._all[at] for at in key if row[at] is None]
            if missing:
                raise self._mode.refuse_null(missing[0])
            if change is None or row[change] in PUTS:
                yield self.put, [row[at] for at in stored]
            elif row[change] in TAKES:
                yield self._take, [row[at] for at in key]
            else:
                raise self._mode.refuse_change(row[change])

    def _put(self) -> str:
        names = ", ".join(map(_quoted, self.columns))
        places = ", ".join("?" * len(self.columns))
        text = f"INSERT INTO {self._table} ({names}) VALUES ({places})"  # noqa: S608 -- quoted
        if not self._mode.key:
            return text
        rest = [name for name in self.columns if name not in self._mode.key]
        changes = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in rest)
        keys = ", ".join(map(_quoted, self._mode.key))
        return f"{text} ON CONFLICT ({keys}) DO {f'UPDATE SET {changes}' if rest else 'NOTHING'}"


def _rows(batch: DataFrame) -> Iterator[tuple[Any, ...]]:
    nested = [one.name for one in batch.schema if isinstance(one.dataType, NESTED)]
    for name in nested:
        batch = batch.withColumn(name, sql.to_json(column(name)))
    for part in batch.toArrow().to_batches():
        columns: Iterable[list[Any]] = (column.to_pylist() for column in part.columns)
        for row in zip(*columns, strict=True):
            yield tuple(map(_stored, row))


def _stored(value: Any) -> Any:
    """A value as SQLite keeps it."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _affinity(kind: DataType) -> str:
    return next((name for kinds, name in _AFFINITIES if isinstance(kind, kinds)), "TEXT")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
