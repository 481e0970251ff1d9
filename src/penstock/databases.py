"""What differs between the databases that hold a table of ours beside their own: SQLite, PostgreSQL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from penstock.errors import UsageError

# Any number; two programs that start together must not create the table at the same time.
_LOCK: Final = 0x70656E73746F636B


class Database(Protocol):
    """One kind of database."""

    mark: str
    """What stands for a value in a statement."""
    lock: str
    """Ends a SELECT, so that nobody else changes the row before our transaction ends."""
    create_first: str
    """A statement before the table is made; may be empty."""

    def in_transaction(self, connection: Any) -> bool:
        """Whether a transaction is open."""
        ...

    def transaction(self, connection: Any) -> AbstractContextManager[None]:
        """Everything in the block, or nothing of it if it raises."""
        ...


class Sqlite:
    """The module sqlite3."""

    mark = "?"
    lock = ""  # there is one writer at a time, from BEGIN IMMEDIATE on
    create_first = ""

    def in_transaction(self, connection: Any) -> bool:
        """Whether a transaction is open."""
        return bool(connection.in_transaction)

    @contextlib.contextmanager
    def transaction(self, connection: Any) -> Iterator[None]:
        """Everything in the block, or nothing of it if it raises."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Gone if somebody ends the transaction, also if another was begun after it.
            connection.execute("SAVEPOINT penstock")
            yield
            try:
                connection.execute("RELEASE penstock")
            except connection.OperationalError as error:
                cause = "something inside the transaction ended it"
                remedy = "leave commit and rollback to Penstock"
                raise UsageError("cannot commit to the database", cause, remedy) from error
            connection.commit()
        except BaseException:
            connection.rollback()
            raise


class Postgres:
    """The package psycopg (3), which itself refuses a commit inside the block."""

    mark = "%s"
    lock = " FOR UPDATE"
    create_first = f"SELECT pg_advisory_xact_lock({_LOCK})"

    def in_transaction(self, connection: Any) -> bool:
        """Whether a transaction is open."""
        return bool(connection.info.transaction_status.name != "IDLE")

    def transaction(self, connection: Any) -> AbstractContextManager[None]:
        """Everything in the block, or nothing of it if it raises."""
        block: AbstractContextManager[None] = connection.transaction()
        return block


_DATABASES: Final[dict[str, type[Database]]] = {"sqlite3": Sqlite, "psycopg": Postgres}


def database_of(connection: Any) -> Database:
    """What a connection is connected to, by the module it is from.

    Raises:
        UsageError: it is from no module that is known here, or in the middle of a transaction.
    """
    operation = "cannot use this connection"
    names = [kind.__module__.partition(".")[0] for kind in type(connection).__mro__]
    found = next((_DATABASES[name] for name in names if name in _DATABASES), None)
    if found is None:
        known = " or ".join(sorted(_DATABASES))
        raise UsageError(operation, f"it is from {names[0]}", f"use one of {known}")
    database = found()
    if database.in_transaction(connection):
        # Ours would be a part of it, and nothing be stored before somebody else ends it.
        raise UsageError(operation, "a transaction is open in it", "commit it first")
    return database
