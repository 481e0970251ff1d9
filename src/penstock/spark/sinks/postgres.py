"""Writes the batches of a query to a table of PostgreSQL, each of them exactly once.

stage      tasks copy their rows to a staging table of this try alone, and say what they copied
merge      the driver takes the rows of the tasks that succeeded to the table, writes the marker of the
           batch to `penstock_commits`, drops the staging table, and commits all of it at once

What an earlier try or a task that was tried twice has staged is never taken, and goes with the next try.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql as text
from psycopg.conninfo import conninfo_to_dict
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from penstock.errors import UnavailableError, UsageError
from penstock.spark.sinks.postgres_merge import LOCK, Merge
from penstock.spark.sinks.replays import was_written
from penstock.spark.sinks.row_modes import NESTED, Mode, column, numbered, row_mode
from penstock.views.postgres import DURABLE

MARKERS: Final = "penstock_commits"
_CREATE_MARKERS: Final = (
    f"CREATE TABLE IF NOT EXISTS {MARKERS} "
    "(query text, sink text, batch bigint NOT NULL, PRIMARY KEY (query, sink))"
)
# There is a row to lock from the first batch on; -1 stands for none.
_FIRST: Final = f"INSERT INTO {MARKERS} VALUES (%s, %s, -1) ON CONFLICT DO NOTHING"  # noqa: S608 -- our name
_LAST: Final = f"SELECT batch FROM {MARKERS} WHERE query = %s AND sink = %s FOR UPDATE"  # noqa: S608 -- our name
_MARK: Final = f"UPDATE {MARKERS} SET batch = %s WHERE query = %s AND sink = %s"  # noqa: S608 -- our name
_COPIED: Final = "attempt bigint, rows bigint"


class PostgresSink:
    """See the module.

    Args:
        connection: how to reach the database, as libpq reads it. Tasks connect by it too.
        table: where rows go, also `schema.table`; made with the columns of the query if not there.
        key: columns that name a row; an existing table needs a unique constraint on them.
        mode: append, upsert or changelog (row_modes.py); by default upsert with a key, otherwise append.
        name: what tells it from other sinks of the same query; by default by its table.

    Raises:
        UsageError: the mode does not fit the key, or the address is malformed.
    """

    def __init__(
        self,
        connection: str,
        table: str,
        *,
        key: str | Sequence[str] = (),
        mode: Mode | None = None,
        name: str | None = None,
        token: Callable[[], str] = lambda: uuid.uuid4().hex[:12],
    ) -> None:
        self._connection = connection
        self._table = table
        self._name = name or f"table:{table}"
        self._token = token
        self._operation = f"cannot write to table {table}"
        self._mode = row_mode(mode, key, self._operation)
        try:
            conninfo_to_dict(connection)
        except psycopg.ProgrammingError:
            # What libpq says of it would show the password.
            remedy = "write postgresql://USER@HOST:PORT/DATABASE"
            raise UsageError(self._operation, "the address is malformed", remedy) from None

    @property
    def name(self) -> str:
        """What tells it from other sinks of the same query."""
        return self._name

    def prepare(self, frame: DataFrame) -> None:
        """Say before a query starts what would stop it.

        Raises:
            UsageError: the table does not take these rows.
            UnavailableError: the database cannot be reached.
        """
        self._mode.check(frame)
        merge = self._merge(frame, "")
        try:
            with self._connect() as database:
                if merge.exists(database):
                    merge.try_out(database)
                _create_markers(database)
        except psycopg.Error as error:
            remedy = "cast the columns, make the table fit, or write to another table"
            raise UsageError(self._operation, _said(error), remedy) from error

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Write one batch, or find that it has been written.

        Raises:
            ConflictError: a later batch has been written.
            UsageError: a row has no key, or is no change.
            UnavailableError: the database went away; whether the batch was written is known next time.
        """
        marker = (query_id, self.name)
        family = "penstock_" + hashlib.sha256("/".join(marker).encode()).hexdigest()[:16]
        merge = self._merge(batch, f"{family}_{self._token()}")
        try:
            # One connection throughout: staging tables are not logged, so that they are empty after a
            # crash of the database, and then this fails rather than merge nothing.
            with self._connect() as database:
                _create_markers(database)
                if self._done(database, marker, batch_id):
                    return
                _drop_staging(database, family)
                merge.create(database)
                database.commit()
                staged = self._stage(batch, merge)
                self._take(database, merge, staged, marker, batch_id)
        except psycopg.OperationalError as error:
            raise self._unavailable(error) from error

    def _done(self, database: Any, marker: tuple[str, str], batch_id: int) -> bool:
        database.execute(_FIRST, marker)
        (last,) = database.execute(_LAST, marker).fetchone()
        return was_written(last, batch_id, self._operation)

    def _stage(self, batch: DataFrame, merge: Merge) -> Staged:
        for field in batch.schema:
            if isinstance(field.dataType, NESTED):
                batch = batch.withColumn(field.name, sql.to_json(column(field.name)))
        copy = _task_copy(self._connection, merge.copy)
        copied = numbered(batch).mapInArrow(copy, _COPIED).collect()
        return Staged([row.attempt for row in copied], sum(row.rows for row in copied))

    def _take(
        self, database: Any, merge: Merge, staged: Staged, marker: tuple[str, str], batch_id: int
    ) -> None:
        """The rows and the marker, in one transaction."""
        database.execute(DURABLE)
        if self._done(database, marker, batch_id):
            return  # by another process, meanwhile
        found = merge.count(database, staged.attempts)
        if found != staged.rows:
            cause = f"{staged.rows} rows were staged, and {found} are there"
            raise UnavailableError(self._operation, cause, "run the batch again")
        self._check_rows(database, merge, staged.attempts)
        merge.run(database, staged.attempts)
        database.execute(_MARK, (batch_id, *marker))
        merge.drop(database)
        database.commit()

    def _check_rows(self, database: Any, merge: Merge, attempts: list[int]) -> None:
        for name in self._mode.key:
            if merge.has_null(database, attempts, name):
                raise self._mode.refuse_null(name)
        if self._mode.mode == "changelog":
            unknown = merge.unknown_change(database, attempts)
            if unknown:
                raise self._mode.refuse_change(unknown[0])

    def _merge(self, frame: DataFrame, staging: str) -> Merge:
        kinds = {field.name: field.dataType for field in frame.schema}
        return Merge(self._table, staging, kinds, self._mode)

    def _connect(self) -> Any:
        try:
            return psycopg.connect(self._connection)
        except psycopg.OperationalError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> UnavailableError:
        remedy = "check that the database runs and lets this user in"
        return UnavailableError(self._operation, _said(error), remedy)


@dataclass(frozen=True, slots=True)
class Staged:
    """What the tasks of a batch have copied: by which attempts, and how many rows."""

    attempts: list[int]
    rows: int


def _create_markers(database: Any) -> None:
    database.execute(LOCK)
    database.execute(_CREATE_MARKERS)


def _drop_staging(database: Any, family: str) -> None:
    """What earlier tries of this query left behind; a straggler that still writes to it fails."""
    found = database.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE %s",
        (family.replace("_", r"\_") + r"\_%",),
    )
    for (name,) in found.fetchall():
        database.execute(text.SQL("DROP TABLE IF EXISTS {}").format(text.Identifier(name)))


def _task_copy(
    connection: str, copy: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its rows: all of them are staged, or none."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        part, attempt = task.partitionId(), task.taskAttemptId()
        rows = 0
        with psycopg.connect(connection) as database, database.cursor().copy(copy) as out:
            for batch in batches:
                columns = (one.to_pylist() for one in batch.columns)
                for row in zip(*columns, strict=True):
                    out.write_row((attempt, part, rows, *row))
                    rows += 1
        yield pa.RecordBatch.from_pydict({"attempt": [attempt], "rows": [rows]})

    return write


def _said(error: Exception) -> str:
    """The database's own words, in one line."""
    return " ".join(str(error).split()) or type(error).__name__
