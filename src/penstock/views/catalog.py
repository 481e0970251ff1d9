"""The tables in which a store says what it holds: `penstock_views` and `penstock_view_versions`."""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.views.database import Database, Session
from penstock.views.kinds import Kind
from penstock.views.version import Column, Commit, Position, Shape, State, Version

VIEWS: Final = "penstock_views"
VERSIONS: Final = "penstock_view_versions"
_CREATE: Final = (
    # How many versions a view has ever had: a number is never used for another one.
    f"CREATE TABLE IF NOT EXISTS {VIEWS} (name TEXT PRIMARY KEY, versions INTEGER NOT NULL)",
    f"CREATE TABLE IF NOT EXISTS {VERSIONS} (name TEXT NOT NULL, version INTEGER NOT NULL, "
    "state TEXT NOT NULL, key_columns TEXT, columns TEXT, begins TEXT, query_id TEXT, batch BIGINT, "
    "position TEXT, watermark_ms BIGINT, updated_ms BIGINT, PRIMARY KEY (name, version))",
)
# The names are constants of this module; values are never in the text.
_SELECT: Final = (
    "SELECT name, version, state, key_columns, columns, begins, query_id, batch, position, "  # noqa: S608
    f"watermark_ms, updated_ms FROM {VERSIONS}"
)
_ORDER: Final = " ORDER BY name, version"
_ONE: Final = "WHERE name = ? AND version = ?"


def create(database: Database, session: Session) -> None:
    """Make the tables if they are not there."""
    if database.create_first:
        session.execute(database.create_first)
    for statement in _CREATE:
        session.execute(statement)


def exists(database: Database, session: Session) -> bool:
    """Whether the tables are there."""
    return database.has(session, VERSIONS)


def every_version(session: Session) -> list[Version]:
    """All versions of all views."""
    return [_version(row) for row in session.rows(_SELECT + _ORDER)]


def versions_of(session: Session, name: str) -> list[Version]:
    """All versions of a view, the oldest first."""
    return [_version(row) for row in session.rows(_SELECT + " WHERE name = ?" + _ORDER, name)]


def locked(database: Database, session: Session, name: str) -> list[Version]:
    """The same, and nobody else changes them until our transaction ends."""
    session.rows(f"SELECT versions FROM {VIEWS} WHERE name = ?{database.lock}", name)  # noqa: S608
    return versions_of(session, name)


def add(session: Session, name: str) -> Version:
    """One more version, of which nothing is known yet."""
    session.execute(
        f"INSERT INTO {VIEWS} (name, versions) VALUES (?, 1) "  # noqa: S608
        f"ON CONFLICT (name) DO UPDATE SET versions = {VIEWS}.versions + 1",
        name,
    )
    ((number,),) = session.rows(f"SELECT versions FROM {VIEWS} WHERE name = ?", name)  # noqa: S608
    made = Version(name, number, State.BUILDING, None, None, None)
    session.execute(
        f"INSERT INTO {VERSIONS} (name, version, state) VALUES (?, ?, ?)",  # noqa: S608
        *(name, number, made.state),
    )
    return made


def set_state(session: Session, version: Version, state: State) -> None:
    """Move a version on."""
    version.must_become(state)
    session.execute(
        f"UPDATE {VERSIONS} SET state = ? {_ONE}",  # noqa: S608
        *(str(state), version.view, version.number),
    )


def set_shape(session: Session, version: Version, shape: Shape, begins: Position | None) -> None:
    """Say what a version will hold, and where its query begins."""
    columns = [[column.name, str(column.kind)] for column in shape.columns]
    session.execute(
        f"UPDATE {VERSIONS} SET key_columns = ?, columns = ?, begins = ? {_ONE}",  # noqa: S608
        *(
            json.dumps(shape.key),
            json.dumps(columns),
            None if begins is None else json.dumps(begins),
        ),
        *(version.view, version.number),
    )


def set_last(session: Session, version: Version, last: Commit) -> None:
    """Say which batch was written."""
    session.execute(
        f"UPDATE {VERSIONS} SET query_id = ?, batch = ?, position = ?, watermark_ms = ?, "  # noqa: S608
        f"updated_ms = ? {_ONE}",
        *(last.query_id, last.batch, json.dumps(last.position), last.watermark_ms, last.at_ms),
        *(version.view, version.number),
    )


def forget(session: Session, version: Version) -> None:
    """Say that a version is no longer there."""
    session.execute(f"DELETE FROM {VERSIONS} {_ONE}", version.view, version.number)  # noqa: S608


def _version(row: tuple[Any, ...]) -> Version:
    name, number, state, key, columns, begins, query_id, batch, position, watermark, at = row
    return Version(
        name,
        number,
        State(state),
        None if columns is None else _shape(key, columns),
        None if begins is None else json.loads(begins),
        None if batch is None else Commit(query_id, batch, json.loads(position), watermark, at),
    )


def _shape(key: str, columns: str) -> Shape:
    found = tuple(Column(name, Kind(kind)) for name, kind in json.loads(columns))
    return Shape(found, tuple(json.loads(key)))
