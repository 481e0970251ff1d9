"""Applies a function of the user's to one bucket: to the stored rows of the keys at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import UsageError
from penstock.spark.batch import Times
from penstock.spark.state.bucket import Bucket
from penstock.spark.state.runs import DUE, GONE, TOUCHED
from penstock.spark.state.sorted_rows import HASH, Hashes

Function = Callable[[pa.Table, pa.Table, Times], tuple[pa.Table, pa.Table]]
_ROW: Final = "_row"


@dataclass(frozen=True, slots=True)
class Operator:
    """What `keyed` was told."""

    name: str
    by: tuple[str, ...]
    function: Function
    state: pa.Schema  # with the key columns first
    output: pa.Schema

    def apply(self, bucket: Bucket, batch_id: int, rows: pa.Table, times: Times) -> pa.Table:
        """Run a batch on a bucket, write its version, and return its output.

        Args:
            bucket: the state before the batch.
            batch_id: what the new version is called.
            rows: the batch's rows of this bucket, with the hashes of their keys.
            times: for the function.
        """
        touched = np.unique(rows[HASH].to_numpy())
        found = bucket.find(np.union1d(touched, bucket.due()))
        if DUE in self.state.names and times.now_ms is not None:
            due = found.filter(pc.less_equal(found[DUE], times.now_ms))[HASH].to_numpy()
            touched = np.union1d(touched, due)
        found = found.filter(pc.is_in(found[HASH], pa.array(touched)))
        if not len(touched):
            bucket.write(batch_id, bucket.stored_schema().empty_table())
            return self.output.empty_table()
        keys = self._keys(found, rows, times)
        found, strangers = self._apart(found, keys)
        state, output = self._call(found, rows, times)
        bucket.write(batch_id, self._changes(bucket, state, keys, found, strangers))
        return output

    def _keys(self, found: pa.Table, rows: pa.Table, times: Times) -> pl.DataFrame:
        """The keys at hand: those of the rows, and those that are due."""
        names = [HASH, *self.by]
        kinds = [pa.field(HASH, pa.int64()), *(self.state.field(column) for column in self.by)]
        tables = [rows.select(names).cast(pa.schema(kinds))]
        if DUE in self.state.names and times.now_ms is not None:
            due = found.filter(pc.less_equal(found[DUE], times.now_ms))
            tables.append(due.select(names))
        return _polars(pa.concat_tables(tables)).unique(maintain_order=True)

    def _apart(self, found: pa.Table, keys: pl.DataFrame) -> tuple[pa.Table, pa.Table]:
        """The rows of the keys at hand, and those of others that have the same hash by chance."""
        stored = _polars(found.select([HASH, *self.by]))
        if stored[HASH].n_unique() == stored.n_unique() and keys[HASH].is_unique().all():
            both = pl.concat([stored, keys])
            if both[HASH].n_unique() == both.n_unique():
                return found, found.slice(0, 0)
        numbered = stored.with_row_index(_ROW)
        same = numbered.join(keys, on=[HASH, *self.by], how="semi", nulls_equal=True)
        mask = np.zeros(len(found), bool)
        mask[same[_ROW].to_numpy()] = True
        return found.filter(pa.array(mask)), found.filter(pa.array(~mask))

    def _call(self, found: pa.Table, rows: pa.Table, times: Times) -> tuple[pa.Table, pa.Table]:
        """What the function makes of it, in the promised columns."""
        own = rows.drop_columns(HASH)
        state, output = self.function(found.select(self.state.names), own, times)
        operation = f"cannot use what the function of {self.name} returned"
        return (
            fitted(state, self.state, operation, "state"),
            fitted(output, self.output, operation, "output"),
        )

    def _changes(
        self,
        bucket: Bucket,
        state: pa.Table,
        keys: pl.DataFrame,
        found: pa.Table,
        strangers: pa.Table,
    ) -> pa.Table:
        """The new run: rows of the keys at hand, and which of them are gone."""
        hashes = self._hashes(state, keys)
        gone = np.setdiff1d(found[HASH].to_numpy(), np.union1d(hashes, strangers[HASH].to_numpy()))
        stored = bucket.stored_schema()
        touched = pa.array(np.full(len(state), bucket.clock.touched_ms or 0))
        if bucket.clock.touched_ms is None:
            touched = pa.nulls(len(state), pa.int64())
        columns = {HASH: pa.array(hashes), GONE: _all(len(state), value=False), TOUCHED: touched}
        new = pa.table([*columns.values(), *state.columns], schema=stored)
        ended = bucket.shaped([pa.table({HASH: gone, GONE: _all(len(gone), value=True)})])
        return pa.concat_tables([new, strangers, ended])

    def _hashes(self, state: pa.Table, keys: pl.DataFrame) -> Hashes:
        """The hash of each returned row's key, which is known from the keys at hand."""
        wanted = _polars(state.select(list(self.by))).with_row_index(_ROW)
        joined = wanted.join(keys, on=list(self.by), how="left", nulls_equal=True).sort(_ROW)
        if joined[HASH].null_count():
            strange = joined.filter(pl.col(HASH).is_null()).select(self.by).row(0)
            operation = f"cannot use what the function of {self.name} returned"
            cause = f"its state has the key {strange}, which is not among those it was called for"
            raise UsageError(operation, cause, "return rows of the keys in state and rows only")
        hashes: Hashes = joined[HASH].to_numpy()
        return hashes


def fitted(rows: pa.Table, schema: pa.Schema, operation: str, what: str) -> pa.Table:
    """A table in the columns of a schema, whatever their order was.

    Raises:
        UsageError: a column is missing, is one too many, or cannot be converted.
    """
    if sorted(rows.column_names) != sorted(schema.names):
        cause = f"the columns of its {what} are {', '.join(rows.column_names)}"
        raise UsageError(operation, cause, f"return {', '.join(schema.names)}")
    try:
        return rows.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        cause = f"its {what} is not of the type {schema.to_string()!r}: {error}"
        raise UsageError(operation, cause, "return columns of these types") from error


def _polars(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _all(count: int, *, value: bool) -> pa.Array:
    return pa.array(np.full(count, value, bool))
