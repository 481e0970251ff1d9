"""Where a consumer stands, in a table beside what it has written: `penstock_positions`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from penstock.databases import database_of
from penstock.errors import PenstockError

TABLE: Final = "penstock_positions"
_CREATE: Final = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (consumer TEXT NOT NULL, topic TEXT NOT NULL, "
    "partition_id INTEGER NOT NULL, next_offset BIGINT NOT NULL, "
    "PRIMARY KEY (consumer, topic, partition_id))"
)

Place = tuple[str, int]


class RecordsGoneError(PenstockError):
    """Records that were not applied yet are no longer there, or never were in this topic."""


class Positions:
    """The table, for one consumer."""

    def __init__(self, connection: Any, consumer: str) -> None:
        self._connection = connection
        self._consumer = consumer
        self._database = database_of(connection)
        with self._database.transaction(connection):
            if self._database.create_first:
                self._execute(self._database.create_first)
            self._execute(_CREATE)

    def enter(self, place: Place, start: int) -> int:
        """Where to go on in a partition; `start` if it was never read, which is then kept."""
        with self._database.transaction(self._connection):
            # The names are constants of this module, here and below; values are never in the text.
            self._execute(
                f"INSERT INTO {TABLE} (consumer, topic, partition_id, next_offset) "  # noqa: S608
                "VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                *(self._consumer, *place, start),
            )
            return self._read(place)

    @contextlib.contextmanager
    def transaction(self, place: Place) -> Iterator[int]:
        """One transaction; gives the stored position, which nobody else can change meanwhile."""
        with self._database.transaction(self._connection):
            yield self._read(place)

    def move(self, place: Place, offset: int) -> None:
        """Store a position; inside `transaction`."""
        self._execute(
            f"UPDATE {TABLE} SET next_offset = ? "  # noqa: S608
            "WHERE consumer = ? AND topic = ? AND partition_id = ?",
            *(offset, self._consumer, *place),
        )

    def _read(self, place: Place) -> int:
        cursor = self._execute(
            f"SELECT next_offset FROM {TABLE} "  # noqa: S608
            "WHERE consumer = ? AND topic = ? AND partition_id = ?" + self._database.lock,
            *(self._consumer, *place),
        )
        row = cursor.fetchone()
        if row is None:
            operation = f"cannot go on with {place[0]} partition {place[1]}"
            cause = f"the position of {self._consumer} was deleted from {TABLE} while it ran"
            raise PenstockError(operation, cause, "start it again")
        return int(row[0])

    def _execute(self, statement: str, *values: object) -> Any:
        return self._connection.execute(statement.replace("?", self._database.mark), values)
