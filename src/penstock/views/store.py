"""Views in a database: written by one query, a batch at a time, and read by anybody.

Rows, the batch they came with and the input they reflect are one transaction, and so is the step from
one version to the next: whoever reads sees the view as it was after some batch, and is told which.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from penstock.errors import ConflictError, NotFoundError, UnavailableError, UsageError
from penstock.limits import VIEW_READ_SECONDS_MAX
from penstock.views import catalog, names
from penstock.views.database import Database, Session, stored_rows
from penstock.views.kinds import to_json
from penstock.views.query import Query, Selection
from penstock.views.sqlite import SqliteDatabase
from penstock.views.version import Commit, Position, Shape, State, Version, has_caught_up

_SQLITE: Final = "sqlite:///"
_POSTGRES: Final = ("postgresql://", "postgres://")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of a view, and the version that they are of, as of its last batch."""

    version: Version
    rows: list[dict[str, Any]]
    """Ready for JSON."""
    more: bool
    """Whether there are more than were asked for."""


def open_store(where: str) -> ViewStore:
    """A store by its URL; nothing is connected or made yet.

    Args:
        where: sqlite:///PATH (four slashes if it begins at the root) or postgresql://...

    Raises:
        UsageError: it is something else.
    """
    if where.startswith(_SQLITE) and len(where) > len(_SQLITE):
        return ViewStore(SqliteDatabase(Path(where.removeprefix(_SQLITE))))
    if where.startswith(_POSTGRES):
        from penstock.views.postgres import PostgresDatabase  # noqa: PLC0415 -- needs psycopg

        return ViewStore(PostgresDatabase(where))
    kind = where.partition(":")[0]
    remedy = "write sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE"
    raise UsageError("cannot open the store of views", f"'{kind}' is no kind of store", remedy)


class ViewStore:
    """See the module."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.name = database.name
        """Where it is, without a password."""

    # -- for those who read

    def versions(self) -> list[Version]:
        """Everything there is, by name and version."""
        with self._reading("cannot list views") as session:
            return [] if session is None else catalog.every_version(session)

    def current(self, name: str) -> Version:
        """The version of a view that is read.

        Raises:
            NotFoundError: there is none.
        """
        operation = f"cannot read view {name}"
        with self._reading(operation) as session:
            return self._current(session, operation, name)

    def ask(self, name: str, query: Query) -> Answer:
        """Answer a question, from one state of the view.

        Raises:
            NotFoundError: there is no such view, or nothing in it yet.
            UsageError: the question does not fit its columns.
            UnavailableError: the database does not answer, or not in time.
        """
        operation = f"cannot read view {name}"
        try:
            return self._ask(operation, name, query)
        except _GoneError:
            # A version that was replaced between the look at the catalog and the one at its table.
            return self._ask(operation, name, query)

    def _ask(self, operation: str, name: str, query: Query) -> Answer:
        database = self._database
        with self._reading(operation) as session:
            version = self._current(session, operation, name)
            assert session is not None and version.shape is not None
            shape = version.shape
            chosen = Selection(query, shape, database.comparable, database.stored)
            table = names.quoted(names.table_of(name, version.number))
            statement = chosen.statement(names.listed(shape.names), table)
            found = session.rows(statement, *chosen.values)
        rows = [
            {
                column.name: to_json(column.kind, database.loaded(column.kind, value))
                for column, value in zip(shape.columns, row, strict=True)
            }
            for row in found[: query.limit]
        ]
        return Answer(version, rows, len(found) > query.limit)

    def _current(self, session: Session | None, operation: str, name: str) -> Version:
        found = [] if session is None else catalog.versions_of(session, name)
        for version in found:
            if version.state is State.CURRENT:
                return version
        cause = "nothing is in it yet" if found else f"there is none in {self.name}"
        raise NotFoundError(operation, cause, "see `penstock views list`")

    # -- for the query that keeps a view current

    def begin(self, name: str, shape: Shape, begins: Position | None) -> Version:
        """The version that a query writes to when it starts: the newest.

        Args:
            name: of the view.
            shape: what the query computes.
            begins: where it begins to read if it begins anew; None if that is not known.

        Raises:
            UsageError: a name cannot be used.
            ConflictError: the view holds something else than the query computes.
        """
        operation = f"cannot keep view {name}"
        names.check_view(name)
        names.check_columns(operation, shape.names)
        with self._writing(operation) as session:
            catalog.create(self._database, session)
            found = [v for v in self._locked(session, name) if v.state is not State.RETIRED]
            self._check_free(session, operation, name, found)
            version = found[-1] if found else catalog.add(session, name)
            if version.shape is None:
                session.execute(self._create_table(version, shape))
            elif version.shape != shape:
                cause = f"version {version.number} has other columns: {_described(version.shape)}"
                raise ConflictError(operation, cause, f"`penstock views rebuild {name}` first")
            if version.last is None:
                catalog.set_shape(session, version, shape, begins)
                version = replace(version, shape=shape, begins=begins)
        self._remove_retired(name)
        return version

    def has_written(self, version: Version, query_id: str, batch: int) -> bool:
        """Whether a batch is in a version already.

        Raises:
            ConflictError: it is not the next one, or not of the query that the version belongs to.
        """
        with self._reading(_cannot_write(version)) as session:
            found = [] if session is None else catalog.versions_of(session, version.view)
        return _is_written(_writable(version, found), query_id, batch)

    def write(
        self,
        version: Version,
        commit: Commit,
        upserts: Sequence[Sequence[Any]],
        deletes: Sequence[Sequence[Any]],
    ) -> bool:
        """Write one batch; False if it was written before.

        A version that has then seen as much as the one that is read takes its place.

        Raises:
            ConflictError: it is not the next one, or not of the query that the version belongs to.
        """
        with self._writing(_cannot_write(version)) as session:
            found = catalog.locked(self._database, session, version.view)
            mine = _writable(version, found)
            if _is_written(mine, commit.query_id, commit.batch):
                return False
            assert mine.shape is not None
            self._change(session, mine, mine.shape, upserts, deletes)
            catalog.set_last(session, mine, commit)
            switched = mine.state is State.BUILDING and self._switch(session, mine, commit, found)
        if switched:
            self._remove_retired(version.view)
        return True

    def _change(
        self,
        session: Session,
        version: Version,
        shape: Shape,
        upserts: Sequence[Sequence[Any]],
        deletes: Sequence[Sequence[Any]],
    ) -> None:
        table = names.quoted(names.table_of(version.view, version.number))
        kinds = {column.name: column.kind for column in shape.columns}
        conditions = " AND ".join(f"{names.quoted(name)} = ?" for name in shape.key)
        session.execute_many(
            f"DELETE FROM {table} WHERE {conditions}",  # noqa: S608 -- quoted names
            stored_rows(self._database, [kinds[name] for name in shape.key], deletes),
        )
        rest = [name for name in shape.names if name not in shape.key]
        sets = ", ".join(f"{names.quoted(name)} = excluded.{names.quoted(name)}" for name in rest)
        session.execute_many(
            f"INSERT INTO {table} ({names.listed(shape.names)}) "  # noqa: S608 -- quoted names
            f"VALUES ({', '.join('?' * len(shape.names))}) ON CONFLICT ({names.listed(shape.key)}) "
            f"DO {f'UPDATE SET {sets}' if rest else 'NOTHING'}",
            stored_rows(self._database, list(kinds.values()), upserts),
        )

    def _switch(
        self, session: Session, version: Version, commit: Commit, found: Sequence[Version]
    ) -> bool:
        """Take the place of the version that is read, if there is one, once nothing would be lost."""
        old = next((one for one in found if one.state is State.CURRENT), None)
        if old is not None:
            assert old.last is not None
            if not has_caught_up(commit, version.begins, old.last):
                return False
            catalog.set_state(session, old, State.RETIRED)
        assert version.shape is not None
        columns = names.listed(version.shape.names)
        table = names.quoted(names.table_of(version.view, version.number))
        self._database.point(
            session,
            version.view,
            f"SELECT {columns} FROM {table}",  # noqa: S608 -- quoted names
            replace=old is not None,
            alike=old is not None and _columns(old) == _columns(version),
        )
        catalog.set_state(session, version, State.CURRENT)
        return True

    def _check_free(
        self, session: Session, operation: str, name: str, found: Sequence[Version]
    ) -> None:
        """Never take the name of somebody else's table."""
        ours = any(version.state is State.CURRENT for version in found)
        if not ours and self._database.has(session, name):
            cause = f"{self.name} has a table or view of that name, which is none of Penstock's"
            raise ConflictError(operation, cause, "choose another name")

    def _create_table(self, version: Version, shape: Shape) -> str:
        columns = [
            f"{names.quoted(one.name)} {self._database.sql_type(one.kind)}"
            f"{' NOT NULL' if one.name in shape.key else ''}"
            for one in shape.columns
        ]
        table = names.quoted(names.table_of(version.view, version.number))
        return (
            f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({names.listed(shape.key)}))"
        )

    # -- for operators

    def plan_rebuild(self, name: str) -> Version:
        """A new version, which the query of the view builds from the beginning when it starts next.

        One that is being built is given up.

        Raises:
            NotFoundError: there is no such view.
        """
        with self._writing(f"cannot rebuild view {name}") as session:
            for version in self._known(session, f"cannot rebuild view {name}", name):
                if version.state is State.BUILDING:
                    catalog.set_state(session, version, State.RETIRED)
            made = catalog.add(session, name)
        self._remove_retired(name)
        return made

    def drop(self, name: str) -> None:
        """Remove a view with all its versions.

        Raises:
            NotFoundError: there is no such view.
        """
        with self._writing(f"cannot drop view {name}") as session:
            for version in self._known(session, f"cannot drop view {name}", name):
                if version.state is State.CURRENT:
                    session.execute(f"DROP VIEW {names.quoted(name)}")
                if version.state is not State.RETIRED:
                    catalog.set_state(session, version, State.RETIRED)
        self._remove_retired(name)

    def _known(self, session: Session, operation: str, name: str) -> list[Version]:
        there = catalog.exists(self._database, session)
        found = self._locked(session, name) if there else []
        if not found:
            cause = f"there is none in {self.name}"
            raise NotFoundError(operation, cause, "see `penstock views list`")
        return found

    def _locked(self, session: Session, name: str) -> list[Version]:
        return catalog.locked(self._database, session, name)

    def _remove_retired(self, name: str) -> None:
        """Drop the tables of versions that nobody is sent to any more.

        In a transaction of its own: it waits for those who read the old one, and the step to the new one
        must not. What a crash or a long reader leaves is removed when a query starts next.
        """
        operation = f"cannot remove an old version of view {name}"
        try:
            with self._writing(operation) as session:
                if self._database.wait_briefly:
                    session.execute(self._database.wait_briefly)
                for version in catalog.locked(self._database, session, name):
                    if version.state is State.RETIRED:
                        table = names.quoted(names.table_of(name, version.number))
                        session.execute(f"DROP TABLE IF EXISTS {table}")
                        catalog.forget(session, version)
        except UnavailableError as error:
            _log.warning("%s", error)

    # -- transactions

    @contextlib.contextmanager
    def _writing(self, operation: str) -> Iterator[Session]:
        with self._translated(operation), self._database.writing() as session:
            yield session

    @contextlib.contextmanager
    def _reading(self, operation: str) -> Iterator[Session | None]:
        """A session, or None where there is no store yet."""
        database = self._database
        if not database.exists():
            yield None
            return
        with self._translated(operation), database.reading(VIEW_READ_SECONDS_MAX) as session:
            yield session if catalog.exists(database, session) else None

    @contextlib.contextmanager
    def _translated(self, operation: str) -> Iterator[None]:
        try:
            yield
        except self._database.errors as error:
            if self._database.is_gone(error):
                raise _GoneError(operation, str(error), "try again") from error
            if self._database.too_slow(error):
                cause = f"the question takes longer than {VIEW_READ_SECONDS_MAX:g} s"
                raise UnavailableError(operation, cause, "ask by the key, or in SQL") from error
            cause = f"{self.name}: {str(error).strip()}"
            raise UnavailableError(
                operation, cause, "check that the database can be used"
            ) from error


class _GoneError(UnavailableError):
    """A table went away between two statements."""


def _cannot_write(version: Version) -> str:
    return f"cannot write to version {version.number} of view {version.view}"


def _writable(version: Version, found: Sequence[Version]) -> Version:
    """What the catalog says of a version now."""
    for one in found:
        if one.number == version.number and one.state is not State.RETIRED:
            return one
    others = [one.number for one in found if one.state is not State.RETIRED]
    cause = f"version {others[-1]} took its place" if others else "the view was dropped"
    raise ConflictError(_cannot_write(version), cause, "start the query again to keep the newest")


def _is_written(version: Version, query_id: str, batch: int) -> bool:
    """Whether a batch was written; every batch comes after the one before it, from 0 on."""
    remedy = f"use the checkpoint that belongs to it, or `penstock views rebuild {version.view}`"
    last = version.last
    if last is not None and last.query_id != query_id:
        cause = f"it belongs to query {last.query_id}, and this is {query_id}"
        raise ConflictError(_cannot_write(version), cause, remedy)
    written = -1 if last is None else last.batch
    if batch not in (written, written + 1):
        cause = f"it has {written + 1} batches, and this is number {batch + 1}"
        raise ConflictError(_cannot_write(version), cause, remedy)
    return batch == written


def _columns(version: Version) -> object:
    return None if version.shape is None else version.shape.columns


def _described(shape: Shape) -> str:
    columns = ", ".join(f"{column.name} {column.kind}" for column in shape.columns)
    return f"{columns}, key {json.dumps(shape.key)}"
