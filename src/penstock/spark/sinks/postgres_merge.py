"""The statements that take staged rows to a table of PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from psycopg import sql
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
    TimestampType,
)

from penstock.spark.sinks.row_modes import CHANGE, NESTED, PUTS, TAKES, RowMode

_KINDS: Final[dict[type[DataType], str]] = {
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    BooleanType: "boolean",
    BinaryType: "bytea",
    DateType: "date",
    TimestampType: "timestamptz",
    TimestampNTZType: "timestamp",
}
# Of a staged row: who wrote it, and its place in the batch.
_PLACE: Final = ("_penstock_attempt", "_penstock_part", "_penstock_row")
# Two that start together must not make the same table at the same time.
LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('penstock_commits'))"


class Merge:
    """From one staging table to one table.

    Args:
        table: where rows go, also with its schema before a dot.
        staging: where they are; of one try of one batch.
        kinds: the columns of a row.
        mode: what rows do to the table.
    """

    def __init__(
        self, table: str, staging: str, kinds: Mapping[str, DataType], mode: RowMode
    ) -> None:
        self._table = sql.Identifier(*table.split("."))
        self._staging = sql.Identifier(staging)
        self._kinds = kinds
        self._mode = mode
        self._columns = mode.stored(list(kinds))
        copy = sql.SQL("COPY {} ({}) FROM STDIN").format(self._staging, _names([*_PLACE, *kinds]))
        self.copy = copy.as_string(None)

    def exists(self, database: Any) -> bool:
        """Whether the table is there."""
        name = self._table.as_string(None)
        return bool(database.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone()[0])

    def try_out(self, database: Any) -> None:
        """Have the database say whether the table takes such rows: names, types, unique keys."""
        nothing = [
            sql.SQL("CAST(NULL AS {})").format(sql.SQL(_kind(self._kinds[name])))
            for name in self._columns
        ]
        rows = sql.SQL("SELECT {}").format(sql.SQL(", ").join(nothing))
        database.execute(sql.SQL("EXPLAIN {}").format(self._put(rows)))

    def create(self, database: Any) -> None:
        """Make the staging table, and the other one if it is not there."""
        places = [sql.SQL("{} bigint").format(sql.Identifier(name)) for name in _PLACE]
        staged = sql.SQL("CREATE UNLOGGED TABLE {} ({})")
        columns = sql.SQL(", ").join([*places, *self._made(list(self._kinds))])
        database.execute(staged.format(self._staging, columns))
        if not self.exists(database):
            database.execute(LOCK)
            made = self._made(self._columns)
            if self._mode.key:
                made.append(sql.SQL("PRIMARY KEY ({})").format(_names(self._mode.key)))
            create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})")
            database.execute(create.format(self._table, sql.SQL(", ").join(made)))

    def drop(self, database: Any) -> None:
        """Take the staging table away."""
        database.execute(sql.SQL("DROP TABLE {}").format(self._staging))

    def count(self, database: Any, attempts: list[int]) -> int:
        """How many rows these attempts have staged."""
        return int(self._one(database, "SELECT count(*) FROM {staging} WHERE {own}", attempts)[0])

    def has_null(self, database: Any, attempts: list[int], name: str) -> bool:
        """Whether a row has no value in a column."""
        asked = "SELECT 1 FROM {staging} WHERE {own} AND {column} IS NULL LIMIT 1"
        return self._one(database, asked, attempts, column=sql.Identifier(name)) is not None

    def unknown_change(self, database: Any, attempts: list[int]) -> Any:
        """A row with a change that there is not, or None."""
        known = sql.SQL(", ").join(map(sql.Literal, (*PUTS, *TAKES)))
        asked = (
            "SELECT {change} FROM {staging} WHERE {own} "
            "AND ({change} IS NULL OR {change} NOT IN ({known})) LIMIT 1"
        )
        change = sql.Identifier(CHANGE)
        return self._one(database, asked, attempts, change=change, known=known)

    def run(self, database: Any, attempts: list[int]) -> None:
        """Change the table."""
        if self._mode.mode == "append":
            rows = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY _penstock_part, _penstock_row")
            database.execute(
                self._put(rows.format(_names(self._columns), self._staging, _own(attempts)))
            )
            return
        last = self._last(attempts)
        if self._mode.mode == "changelog":
            database.execute(self._taking(last))
            last = sql.SQL("SELECT * FROM ({}) AS last WHERE {} IN ({})").format(
                last, sql.Identifier(CHANGE), sql.SQL(", ").join(map(sql.Literal, PUTS))
            )
        rows = sql.SQL("SELECT {} FROM ({}) AS rows").format(_names(self._columns), last)
        database.execute(self._put(rows))

    def _last(self, attempts: list[int]) -> sql.Composed:
        """The last row of each key."""
        return sql.SQL(
            "SELECT DISTINCT ON ({key}) * FROM {staging} WHERE {own} "
            "ORDER BY {key}, _penstock_part DESC, _penstock_row DESC"
        ).format(key=_names(self._mode.key), staging=self._staging, own=_own(attempts))

    def _taking(self, last: sql.Composed) -> sql.Composed:
        same = [
            sql.SQL("{table}.{name} = last.{name}").format(
                table=sql.Identifier("kept"), name=sql.Identifier(name)
            )
            for name in self._mode.key
        ]
        return sql.SQL(
            "DELETE FROM {table} AS kept USING ({last}) AS last WHERE {same} AND {change} IN ({takes})"
        ).format(
            table=self._table,
            last=last,
            same=sql.SQL(" AND ").join(same),
            change=sql.Identifier("last", CHANGE),
            takes=sql.SQL(", ").join(map(sql.Literal, TAKES)),
        )

    def _put(self, rows: sql.Composable) -> sql.Composed:
        into = sql.SQL("INSERT INTO {} ({}) {}").format(self._table, _names(self._columns), rows)
        if not self._mode.key:
            return into
        rest = [name for name in self._columns if name not in self._mode.key]
        if not rest:
            return sql.SQL("{} ON CONFLICT ({}) DO NOTHING").format(into, _names(self._mode.key))
        new = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in rest]
        put = sql.SQL("{} ON CONFLICT ({}) DO UPDATE SET {}")
        return put.format(into, _names(self._mode.key), sql.SQL(", ").join(new))

    def _made(self, names: Sequence[str]) -> list[sql.Composable]:
        return [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(_kind(self._kinds[name])))
            for name in names
        ]

    def _one(self, database: Any, asked: str, attempts: list[int], **more: sql.Composable) -> Any:
        statement = sql.SQL(asked).format(staging=self._staging, own=_own(attempts), **more)
        return database.execute(statement).fetchone()


def _own(attempts: list[int]) -> sql.Composable:
    return sql.SQL("_penstock_attempt = ANY({})").format(sql.Literal(attempts))


def _names(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _kind(kind: DataType) -> str:
    """The type of PostgreSQL for a type of Spark: text where there is no closer one."""
    if isinstance(kind, NESTED):
        return "jsonb"
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision}, {kind.scale})"
    return next((name for known, name in _KINDS.items() if isinstance(kind, known)), "text")
