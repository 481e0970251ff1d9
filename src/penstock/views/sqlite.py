"""Views in a file of SQLite: read by anybody at any time, written by one at a time."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from penstock.views.database import Session
from penstock.views.kinds import Kind, in_utc, iso
from penstock.views.names import quoted

_WAIT_SECONDS: Final = 60.0
_LOOK_STEPS: Final = 10_000  # of SQLite's machine, about a tenth of a millisecond
_TYPES: Final = {
    Kind.INTEGER: "INTEGER",
    Kind.REAL: "REAL",
    Kind.BOOLEAN: "INTEGER",
    Kind.BINARY: "BLOB",
}
_HAS: Final = "SELECT 1 FROM sqlite_master WHERE name = ?"


class SqliteDatabase:
    """See the module."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    lock = ""  # there is one writer at a time, from BEGIN IMMEDIATE on
    create_first = ""
    wait_briefly = ""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)

    def exists(self) -> bool:
        """Whether there is something to read."""
        return self._path.exists()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction that writes: all of it is durable after the block, or nothing if it raises."""
        # Transactions are begun by hand: Python's own would begin them later than is said here.
        connection = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None)
        with contextlib.closing(connection):
            # With a write-ahead log nobody who reads waits for one who writes, nor the other way.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            session = Session(connection, "?")
            session.execute("BEGIN IMMEDIATE")
            yield session
            session.execute("COMMIT")

    @contextlib.contextmanager
    def reading(self, seconds_max: float) -> Iterator[Session]:
        """One transaction that cannot write and sees one state of everything, for so long at most."""
        until = time.monotonic() + seconds_max
        # To write is allowed to the connection, not to statements: who reads a write-ahead log keeps
        # a file beside it, and has to make it where nobody else is there.
        where = f"file:{quote(str(self._path.absolute()))}?mode=rw"
        connection = sqlite3.connect(where, uri=True, timeout=seconds_max, isolation_level=None)
        with contextlib.closing(connection):
            connection.execute("PRAGMA query_only = ON")
            connection.set_progress_handler(lambda: time.monotonic() > until, _LOOK_STEPS)
            session = Session(connection, "?")
            session.execute("BEGIN")
            yield session

    def has(self, session: Session, name: str) -> bool:
        """Whether there is a table or view of that name."""
        return bool(session.rows(_HAS, name))

    def sql_type(self, kind: Kind) -> str:
        """The type of a column; times and dates are text in ISO 8601."""
        return _TYPES.get(kind, "TEXT")

    def comparable(self, column: str, kind: Kind) -> str:
        """A column in a comparison; decimal numbers are kept as text, and compared as numbers."""
        name = quoted(column)
        return f"CAST({name} AS REAL)" if kind is Kind.DECIMAL else name

    def stored(self, kind: Kind, value: Any) -> Any:
        """A value as the driver takes it."""
        if value is None:
            return None
        match kind:
            case Kind.TIMESTAMP:
                return iso(value)
            case Kind.DATE:
                return value.isoformat()
            case Kind.DECIMAL:
                return str(value)
            case _:
                return value

    def loaded(self, kind: Kind, value: Any) -> Any:
        """A value that the driver gave."""
        if value is None:
            return None
        match kind:
            case Kind.BOOLEAN:
                return bool(value)
            case Kind.TIMESTAMP:
                return in_utc(datetime.fromisoformat(value))
            case Kind.DATE:
                return date.fromisoformat(value)
            case Kind.DECIMAL:
                return Decimal(value)
            case _:
                return value

    def point(
        self, session: Session, view: str, select: str, *, replace: bool, alike: bool
    ) -> None:
        """Let a name stand for a question; `replace` if it did for another."""
        if replace:
            session.execute(f"DROP VIEW {quoted(view)}")
        session.execute(f"CREATE VIEW {quoted(view)} AS {select}")

    def too_slow(self, error: Exception) -> bool:
        """Whether an error says that the time was up."""
        code = getattr(error, "sqlite_errorcode", None)
        return code == sqlite3.SQLITE_INTERRUPT

    def is_gone(self, error: Exception) -> bool:
        """Whether a table was removed while it was to be read: a transaction sees one state here."""
        return False
