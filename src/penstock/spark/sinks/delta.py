"""Writes the batches of a query to a Delta table, each of them exactly once. Needs the extra `delta`.

The driver writes a batch in one commit of the table, which carries Delta's own note of a transaction:
the query and sink as its application, the batch as its version. A batch that Spark runs again finds it
in the table and writes nothing. Of two processes that write the same batch at once one can commit.
No jar is needed, and any reader of Delta sees whole batches, one version for each.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.errors import ConflictError, UsageError
from penstock.files import OsFiles
from penstock.spark.sinks.replays import was_written
from penstock.spark.sinks.row_modes import CHANGE, PUTS, TAKES, Mode, row_mode

_TRIES_MAX: Final = 10
_PLACE: Final = "_penstock_row"

_log = logging.getLogger(__name__)


class DeltaSink:
    """See the module.

    Args:
        table: a path, or an address as deltalake reads it; made with the first batch if not there.
        key: columns that name a row.
        mode: append, upsert or changelog (row_modes.py); by default upsert with a key, otherwise append.
        options: of its storage, as deltalake has them.
        name: what tells it from other sinks of the same query; by default by its address.

    Raises:
        UsageError: the mode does not fit the key.
    """

    def __init__(
        self,
        table: str | Path,
        *,
        key: str | Sequence[str] = (),
        mode: Mode | None = None,
        options: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        self._table = str(table)
        self._options = dict(options or {})
        self._name = name or f"delta:{table}"
        self._operation = f"cannot write to {table}"
        self._mode = row_mode(mode, key, self._operation)

    @property
    def name(self) -> str:
        """What tells it from other sinks of the same query."""
        return self._name

    def prepare(self, frame: DataFrame) -> None:
        """Say before a query starts what would stop it.

        Raises:
            UsageError: there is a column that Delta has no type for, or the table has other columns.
        """
        self._mode.check(frame, nulls=False)
        table = self._open()
        if table is not None:
            self._check_schema(table, to_arrow_schema(frame.schema))

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Write one batch, or find that it has been written.

        Raises:
            ConflictError: a later batch has been written, or another process writes this one.
            UsageError: a row has no key, is no change, or does not fit the table.
        """
        rows: pa.Table | None = None
        application = f"penstock/{query_id}/{self.name}"
        for attempt in range(_TRIES_MAX):
            table = self._open()
            done = None if table is None else table.transaction_version(application)
            if was_written(done, batch_id, self._operation):
                return self._make_durable()
            rows = batch.toArrow() if rows is None else rows
            if not rows.num_rows:
                return  # a version without rows would tell nobody anything
            try:
                self._commit(table, rows, Transaction(application, batch_id))
                return self._make_durable()
            except CommitFailedError as error:
                _log.warning("%s at try %d: %s", self._operation, attempt + 1, error)
            except DeltaError as error:
                if table is None and self._open() is not None:
                    continue  # somebody else made it meanwhile, perhaps with this batch
                raise UsageError(self._operation, str(error)) from error
        cause = f"others changed the table {_TRIES_MAX} times before this could be committed"
        raise ConflictError(self._operation, cause, "let fewer write to it")

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._table, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _commit(self, table: DeltaTable | None, rows: pa.Table, note: Transaction) -> None:
        if table is not None:
            self._check_schema(table, rows.schema)
        # Tried again by Delta itself it could be there twice: every try looks for its note first.
        properties = CommitProperties(app_transactions=[note], max_commit_retries=0)
        if self._mode.mode == "append":
            write_deltalake(
                self._table if table is None else table,
                rows,
                mode="error" if table is None else "append",
                storage_options=self._options,
                commit_properties=properties,
            )
        else:
            self._merge(table, self._last_of_each_key(rows), properties)

    def _make_durable(self) -> None:
        """Delta does not sync what it writes to a local disk, and Spark forgets the batch after this."""
        if "://" not in self._table:
            OsFiles().sync_all(Path(self._table))

    def _last_of_each_key(self, rows: pa.Table) -> pa.Table:
        """The last row of each key, checked."""
        for name in self._mode.key:
            if rows.column(name).null_count:
                raise self._mode.refuse_null(name)
        if self._mode.mode == "changelog":
            known = pc.is_in(rows.column(CHANGE), pa.array([*PUTS, *TAKES]))
            unknown = rows.filter(pc.invert(known))
            if unknown.num_rows:
                raise self._mode.refuse_change(unknown.column(CHANGE)[0].as_py())
        keys = rows.select(list(self._mode.key))
        numbered = keys.append_column(_PLACE, pa.array(range(rows.num_rows), pa.int64()))
        last = numbered.group_by(list(self._mode.key)).aggregate([(_PLACE, "max")])
        return rows.take(last.column(f"{_PLACE}_max").sort())

    def _merge(
        self, table: DeltaTable | None, rows: pa.Table, properties: CommitProperties
    ) -> None:
        if table is None:
            stored = pa.schema([rows.schema.field(n) for n in self._mode.stored(rows.column_names)])
            table = DeltaTable.create(self._table, stored, storage_options=self._options)
        same = " AND ".join(
            f"kept.{_quoted(name)} = new.{_quoted(name)}" for name in self._mode.key
        )
        merging = table.merge(
            rows, same, source_alias="new", target_alias="kept", commit_properties=properties
        )
        columns = self._mode.stored(rows.column_names)
        values = {_quoted(name): f"new.{_quoted(name)}" for name in columns}
        puts = takes = None
        if self._mode.mode == "changelog":
            puts, takes = _one_of(PUTS), _one_of(TAKES)
            merging = merging.when_matched_delete(predicate=takes)
        merging = merging.when_matched_update(values, predicate=puts)
        merging.when_not_matched_insert(values, predicate=puts).execute()

    def _check_schema(self, table: DeltaTable, new: pa.Schema) -> None:
        kept = pa.schema(table.schema().to_arrow())
        for name in self._mode.stored(new.names):
            wanted = new.field(name).type
            if name not in kept.names:
                cause = f"the table has no column {name}"
                raise UsageError(self._operation, cause, f"it has {', '.join(kept.names)}")
            if not _same(kept.field(name).type, wanted):
                there = kept.field(name).type
                cause = f"column {name} is {there} in the table, and {wanted} in the query"
                raise UsageError(self._operation, cause, "cast it, or write to another table")


def _same(kept: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two types are one in Delta, whose types do not say which nulls are allowed."""
    return bool(_bare(kept) == _bare(wanted))


def _bare(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return [(field.name, _bare(field.type)) for field in kind]
    if pa.types.is_map(kind):
        return ("map", _bare(kind.key_type), _bare(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ("list", _bare(kind.value_type))
    return str(kind).replace("large_", "").replace("_view", "")


def _one_of(changes: Sequence[str]) -> str:
    return f"new.{_quoted(CHANGE)} IN ({', '.join(repr(one) for one in changes)})"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
