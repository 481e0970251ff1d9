"""What differs between the databases that hold views, and one transaction in any of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from penstock.views.kinds import Kind


class Session:
    """A connection with a transaction. Every statement goes through here, its end included."""

    def __init__(self, connection: Any, mark: str) -> None:
        self._connection = connection
        self._mark = mark

    def execute(self, statement: str, *values: object) -> Any:
        """Run a statement, in which ? stands for a value; the cursor."""
        # Without values nothing in the text has a meaning of its own.
        given = (values,) if values else ()
        return self._connection.execute(statement.replace("?", self._mark), *given)

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row."""
        if rows:
            cursor = self._connection.cursor()
            cursor.executemany(statement.replace("?", self._mark), rows)

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a question."""
        return list(self.execute(statement, *values).fetchall())


class Database(Protocol):
    """One kind of database, and where it is."""

    name: str
    """Where it is, without a password."""
    errors: tuple[type[Exception], ...]
    """What its driver raises."""
    lock: str
    """Ends a SELECT, so that nobody else changes the row before our transaction ends."""
    create_first: str
    """A statement before our own tables are made; may be empty."""
    wait_briefly: str
    """A statement after which a transaction does not wait long for those who read; may be empty."""

    def exists(self) -> bool:
        """Whether there is something to read."""
        ...

    def writing(self) -> AbstractContextManager[Session]:
        """One transaction that writes: all of it is durable after the block, or nothing if it raises."""
        ...

    def reading(self, seconds_max: float) -> AbstractContextManager[Session]:
        """One transaction that cannot write and sees one state of everything, for so long at most."""
        ...

    def has(self, session: Session, name: str) -> bool:
        """Whether there is a table or view of that name."""
        ...

    def sql_type(self, kind: Kind) -> str:
        """The type of a column."""
        ...

    def comparable(self, column: str, kind: Kind) -> str:
        """A column in a comparison."""
        ...

    def stored(self, kind: Kind, value: Any) -> Any:
        """A value as the driver takes it."""
        ...

    def loaded(self, kind: Kind, value: Any) -> Any:
        """A value that the driver gave."""
        ...

    def point(
        self, session: Session, view: str, select: str, *, replace: bool, alike: bool
    ) -> None:
        """Let a name stand for a question; `replace` if it did for another, `alike` in columns."""
        ...

    def too_slow(self, error: Exception) -> bool:
        """Whether an error says that the time was up."""
        ...

    def is_gone(self, error: Exception) -> bool:
        """Whether an error says that a table was removed while it was to be read."""
        ...


def stored_rows(
    database: Database, kinds: Sequence[Kind], rows: Iterable[Sequence[Any]]
) -> list[tuple[Any, ...]]:
    """Rows as the driver takes them."""
    return [tuple(map(database.stored, kinds, row)) for row in rows]
