"""A database and the log, written to as one.

The token of the transaction on the broker is stored by the database's own transaction: if that commits,
the other one will, now or when the writer starts again; if not, it is aborted. The table also says who
may store: the one that has started last. Otherwise one that was slow could store its token after another
has found it missing, and aborted.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final

from penstock.client.fencing import FencedError
from penstock.databases import database_of
from penstock.errors import ConflictError, PenstockError
from penstock.twophase.producer import TwoPhaseProducer

_log = logging.getLogger(__name__)

TABLE: Final = "penstock_prepared"
_CREATE: Final = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} "
    "(writer TEXT PRIMARY KEY, token TEXT NOT NULL, holder TEXT NOT NULL)"
)


class Writer:
    """See the module; use it in a `with` block."""

    def __init__(self, connection: Any, *, name: str, bootstrap: str) -> None:
        """Take over a name, and end what its last user could not.

        Args:
            connection: Of sqlite3 or psycopg; nobody else may use it meanwhile.
            name: Of this writer, one for each program that runs at a time.
            bootstrap: Address of a broker with two-phase transactions.

        Raises:
            UsageError: the connection, or the broker, does not fit.
            PenstockError: the broker refused, or could not be reached.
        """
        self._connection = connection
        self._name = name
        self._database = database_of(connection)
        with self._database.transaction(connection):
            if self._database.create_first:
                self._execute(self._database.create_first)
            self._execute(_CREATE)
        self._producer = TwoPhaseProducer(bootstrap, name)
        try:
            self._recover()
        except BaseException:
            self._producer.close()
            raise

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection to the broker; the one to the database is not ours."""
        self._producer.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything in the block, in the database and in the log, or nothing of it if it raises.

        Raises:
            FencedError: another writer with this name has started; nothing was done.
            UnavailableError: if it comes from the broker after the database has committed, the records
                are committed when the writer starts again.
            PenstockError: nothing was done.
        """
        stored = False
        try:
            with self._database.transaction(self._connection):
                yield
                if token := self._producer.prepare():
                    self._store(token)
                    stored = True
        except BaseException:
            self._undo(stored=stored)
            raise
        try:
            self._producer.commit()
        except FencedError as error:
            if self._holds():
                raise ConflictError(
                    f"cannot commit the records of {self._name}",
                    "the database has its part, but somebody else has ended theirs",
                    "start again; if they were aborted by hand, send them once more",
                ) from error
            # Who has taken over since then finds our token, and commits.
            _log.info("%s: committed by another with this name", self._name)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Write a record, inside `transaction`; see TwoPhaseProducer.send.

        Raises:
            PenstockError: it was not taken.
        """
        self._producer.send(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
        )

    def _recover(self) -> None:
        """Keep the last user from storing any more, and only then look at what it has stored."""
        with self._database.transaction(self._connection):
            # The names are constants of this module, here and below; values are never in the text.
            self._execute(
                f"INSERT INTO {TABLE} (writer, token, holder) VALUES (?, '', '') "  # noqa: S608
                "ON CONFLICT DO NOTHING",
                self._name,
            )
            row = self._execute(
                f"SELECT token FROM {TABLE} WHERE writer = ?" + self._database.lock,  # noqa: S608
                self._name,
            ).fetchone()
            self._execute(
                f"UPDATE {TABLE} SET holder = ? WHERE writer = ?",  # noqa: S608
                *(self._producer.holder, self._name),
            )
        self._holder = self._producer.holder
        result = self._producer.recover(str(row[0]))
        if result != "nothing":
            _log.info("%s: %s what was left open", self._name, result)
        # It has served; on a broker that starts from nothing another transaction could get the same.
        with self._database.transaction(self._connection):
            self._store("")

    def _store(self, token: str) -> None:
        cursor = self._execute(
            f"UPDATE {TABLE} SET token = ? WHERE writer = ? AND holder = ?",  # noqa: S608
            *(token, self._name, self._holder),
        )
        if cursor.rowcount != 1:
            cause = f"another with this name has started, by {TABLE}"
            raise FencedError(f"cannot write as {self._name}", cause, "let one at a time use it")

    def _holds(self) -> bool:
        """Whether nobody with the same name has started since."""
        with self._database.transaction(self._connection):
            row = self._execute(
                f"SELECT holder FROM {TABLE} WHERE writer = ?",  # noqa: S608
                self._name,
            ).fetchone()
        return row is not None and str(row[0]) == self._holder

    def _undo(self, *, stored: bool) -> None:
        if stored:
            # The database was asked to commit, and may have done so or not: the table knows.
            self._producer.leave()
            return
        try:
            self._producer.abort()
        except PenstockError as error:
            _log.warning("%s: not aborted before the name is used again: %s", self._name, error)

    def _execute(self, statement: str, *values: object) -> Any:
        return self._connection.execute(statement.replace("?", self._database.mark), values)
