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
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StructType,
)

from penstock.errors import ConflictError, UsageError

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
_NESTED: Final = (StructType, ArrayType, MapType)


class SqliteSink:
    """See the module.

    Args:
        path: the database's file, which is made if it is not there.
        table: where rows go; made with the columns of the first batch if it is not there.
        key: columns that name a row: one that comes again replaces the one that is there. Without
            a key rows are added.
    """

    def __init__(self, path: str | Path, table: str, *, key: Sequence[str] = ()) -> None:
        self._path = str(path)
        self._table = table
        self._key = tuple(key)
        self._operation = f"cannot write to table {table} of {path}"

    @property
    def name(self) -> str:
        """What tells it from other sinks of the same query."""
        return f"table:{self._table}"

    def prepare(self, frame: DataFrame) -> None:
        """Say before a query starts what would stop it.

        Raises:
            UsageError: the database cannot be used, or the table has other columns.
        """
        missing = [name for name in self._key if name not in frame.columns]
        if missing:
            cause = f"there is no column {missing[0]} for the key"
            raise UsageError(self._operation, cause, f"there are {', '.join(frame.columns)}")
        try:
            with closing(self._connect()) as database:
                self._check_columns(database, frame)
        except sqlite3.Error as error:
            raise UsageError(
                self._operation, str(error), "check the file and its folder"
            ) from error

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Write one batch, or find that it has been written."""
        marker = (query_id, self.name)
        with closing(self._connect()) as database:
            # At once as a writer, so that nobody else comes between the look and the commit.
            database.execute("BEGIN IMMEDIATE")
            database.execute(_CREATE_MARKERS)
            done = database.execute(_LAST, marker).fetchone()
            if done is not None and done[0] > batch_id:
                cause = f"batch {done[0]} has been written, and this is batch {batch_id}"
                remedy = "start with a new checkpoint, or with the newest copy of this one"
                raise ConflictError(self._operation, cause, remedy)
            if done is None or done[0] < batch_id:
                database.execute(self._create(batch))
                database.executemany(self._insert(batch.columns), _rows(batch))
                database.execute(_MARK, (*marker, batch_id))
            database.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        # Transactions are begun by hand: Python's own would begin them later than is said here.
        database = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None)
        database.execute("PRAGMA synchronous = FULL")
        return database

    def _check_columns(self, database: sqlite3.Connection, frame: DataFrame) -> None:
        existing = {
            row[1] for row in database.execute(f"PRAGMA table_info({_quoted(self._table)})")
        }
        unknown = [name for name in frame.columns if existing and name not in existing]
        if unknown:
            cause = f"the table has no column {unknown[0]}"
            raise UsageError(self._operation, cause, f"it has {', '.join(sorted(existing))}")

    def _create(self, batch: DataFrame) -> str:
        columns = [f"{_quoted(one.name)} {_affinity(one.dataType)}" for one in batch.schema]
        if self._key:
            columns.append(f"PRIMARY KEY ({', '.join(map(_quoted, self._key))})")
        return f"CREATE TABLE IF NOT EXISTS {_quoted(self._table)} ({', '.join(columns)})"

    def _insert(self, columns: Sequence[str]) -> str:
        names = ", ".join(map(_quoted, columns))
        places = ", ".join("?" * len(columns))
        text = f"INSERT INTO {_quoted(self._table)} ({names}) VALUES ({places})"  # noqa: S608 -- quoted
        if not self._key:
            return text
        rest = [name for name in columns if name not in self._key]
        changes = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in rest)
        keys = ", ".join(map(_quoted, self._key))
        return f"{text} ON CONFLICT ({keys}) DO {f'UPDATE SET {changes}' if rest else 'NOTHING'}"


def _rows(batch: DataFrame) -> Iterator[tuple[Any, ...]]:
    nested = [one.name for one in batch.schema if isinstance(one.dataType, _NESTED)]
    for name in nested:
        batch = batch.withColumn(name, sql.to_json(name))
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
