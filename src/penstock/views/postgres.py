"""Views in PostgreSQL, for more than one machine. The one place that needs psycopg (3)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from penstock.errors import UsageError
from penstock.views.database import Session
from penstock.views.kinds import Kind
from penstock.views.names import quoted

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.errors import QueryCanceled, UndefinedTable
except ImportError as error:
    raise UsageError(
        "cannot use PostgreSQL", "psycopg is not installed", "pip install 'psycopg[binary]'"
    ) from error

_CONNECT_SECONDS: Final = 10
# A database that acknowledges before it is durable would lose a batch that Spark never runs again.
DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', true) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)
# Any number; two programs that start together must not make our tables at the same time.
_LOCK: Final = 0x70656E7376696577
_TYPES: Final = {
    Kind.INTEGER: "BIGINT",
    Kind.REAL: "DOUBLE PRECISION",
    # In the order of its bytes, as in SQLite, whatever language the database was made for.
    Kind.TEXT: 'TEXT COLLATE "C"',
    Kind.BOOLEAN: "BOOLEAN",
    Kind.TIMESTAMP: "TIMESTAMPTZ",
    Kind.DATE: "DATE",
    Kind.DECIMAL: "NUMERIC",
    Kind.BINARY: "BYTEA",
    Kind.JSON: "JSON",  # as it came: JSONB refuses the character 0
}


class PostgresDatabase:
    """See the module; `where` is a URL, postgresql://..., or what else libpq takes."""

    errors: tuple[type[Exception], ...] = (psycopg.Error,)
    lock = " FOR UPDATE"
    create_first = f"SELECT pg_advisory_xact_lock({_LOCK})"
    wait_briefly = "SET LOCAL lock_timeout = '2s'"

    def __init__(self, where: str) -> None:
        try:
            known = conninfo_to_dict(where)
        except psycopg.ProgrammingError as error:
            # The text is not shown: there may be a password in it.
            remedy = "write postgresql://USER@HOST:PORT/DATABASE"
            raise UsageError("cannot use PostgreSQL", "the address is malformed", remedy) from error
        self._where = where
        self.name = f"{known.get('dbname', 'database')} on {known.get('host', 'this machine')}"

    def exists(self) -> bool:
        """Whether there is something to read; to connect will tell."""
        return True

    @contextlib.contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction that writes: all of it is durable after the block, or nothing if it raises."""
        with self._connected() as session:
            session.execute("BEGIN")
            session.execute(DURABLE)
            yield session
            session.execute("COMMIT")

    @contextlib.contextmanager
    def reading(self, seconds_max: float) -> Iterator[Session]:
        """One transaction that cannot write and sees one state of everything, for so long at most."""
        with self._connected() as session:
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            session.execute(f"SET LOCAL statement_timeout = {int(seconds_max * 1000)}")
            yield session

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Session]:
        # Transactions are begun by hand; one that is open when the connection ends does not count.
        connection = psycopg.connect(self._where, autocommit=True, connect_timeout=_CONNECT_SECONDS)
        with contextlib.closing(connection):
            connection.execute("SET TIME ZONE 'UTC'")
            yield Session(connection, "%s")

    def has(self, session: Session, name: str) -> bool:
        """Whether there is a table or view of that name."""
        return session.rows("SELECT to_regclass(?)", quoted(name)) != [(None,)]

    def sql_type(self, kind: Kind) -> str:
        """The type of a column."""
        return _TYPES[kind]

    def comparable(self, column: str, kind: Kind) -> str:
        """A column in a comparison."""
        return quoted(column)

    def stored(self, kind: Kind, value: Any) -> Any:
        """A value as the driver takes it; text cannot hold a zero."""
        return value.replace("\0", "\ufffd") if isinstance(value, str) else value

    def loaded(self, kind: Kind, value: Any) -> Any:
        """A value that the driver gave."""
        return value

    def point(
        self, session: Session, view: str, select: str, *, replace: bool, alike: bool
    ) -> None:
        """Let a name stand for a question; `replace` if it did for another, `alike` in columns."""
        if replace and not alike:
            session.execute(f"DROP VIEW {quoted(view)}")
        # One with the same columns keeps its grants, and what other views make of it.
        session.execute(f"CREATE OR REPLACE VIEW {quoted(view)} AS {select}")

    def too_slow(self, error: Exception) -> bool:
        """Whether an error says that the time was up."""
        return isinstance(error, QueryCanceled)

    def is_gone(self, error: Exception) -> bool:
        """Whether a table was removed meanwhile: a transaction does not see one state of names."""
        return isinstance(error, UndefinedTable)
