"""One bucket of keyed state, as it was before a batch and as the batch leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import UsageError
from penstock.spark.state.container import BODY_CHECKSUM, DamagedStateError, encode, header_of
from penstock.spark.state.merging import (
    Slice,
    after,
    budget_of,
    merge_to_begin,
    next_slice,
    progressed,
)
from penstock.spark.state.opened import Opened
from penstock.spark.state.places import Place
from penstock.spark.state.runs import (
    DUE,
    GONE,
    TOUCHED,
    Run,
    due,
    earliest_due,
    find,
    newest,
    sorted_rows,
    with_due_order,
)
from penstock.spark.state.sorted_rows import DUE_ORDER, HASH, Hashes, SortedRows
from penstock.spark.state.versions import (
    SUFFIX,
    Version,
    batches,
    name_of,
    read_version,
    write_version,
)

# Spark runs at most the last batch again; the others are for people, who delete commits by hand.
VERSIONS_KEPT: Final = 10
INTERNAL: Final = (HASH, GONE, TOUCHED)
RESERVED: Final = frozenset({*INTERNAL, DUE_ORDER})


@dataclass(frozen=True, slots=True)
class Clock:
    """The times of a batch: `now_ms` for what is due, `touched_ms` for what expires."""

    now_ms: int | None = None
    touched_ms: int | None = None
    ttl_ms: int | None = None


@dataclass
class Bucket:
    """State at the version before a batch.

    Args:
        folder: where its files are.
        schema: key columns and the user's.
        by: names of the key columns.
        version: what was there before.
        opened: files that this process read before.
    """

    folder: Place
    schema: pa.Schema
    by: tuple[str, ...]
    version: Version
    opened: Opened
    clock: Clock = field(default_factory=Clock)

    def rows(self, run: Run) -> SortedRows:
        """The rows of a run's file.

        Raises:
            DamagedStateError: it is missing or damaged.
        """
        try:
            return self.opened.rows(self.folder, run)
        except FileNotFoundError:
            raise DamagedStateError(f"{self.folder.url}/{run.file}", "it is missing") from None

    def find(self, wanted: Hashes) -> pa.Table:
        """All rows of the keys with these hashes that are there, gone and expired ones left out."""
        found = find(self.version.runs, self.rows, wanted)
        return self.living(self.shaped(found))

    def all(self) -> pa.Table:
        """Every row there is: a look at everything that is stored."""
        every = [self.rows(run).hashes for run in self.version.runs]
        return self.find(np.unique(np.concatenate(every)) if every else np.empty(0, np.int64))

    def due(self) -> Hashes:
        """Hashes of rows that may be due; newer rows of the same key may say otherwise."""
        now = self.clock.now_ms
        if now is None or DUE not in self.schema.names:
            return np.empty(0, np.int64)
        waiting = [run for run in self.version.runs if _waits(run, now)]
        found = [due(run, self.rows(run).rows, now) for run in waiting]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def stored_schema(self) -> pa.Schema:
        """The columns of a file."""
        internal = [(HASH, pa.int64()), (GONE, pa.bool_()), (TOUCHED, pa.int64())]
        return pa.schema([*(pa.field(*column) for column in internal), *self.schema])

    def shaped(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Rows with all columns of the schema: those that older files do not have are null."""
        wanted = self.stored_schema()
        return pa.concat_tables([wanted.empty_table(), *(_shape(t, wanted) for t in tables)])

    def living(self, rows: pa.Table) -> pa.Table:
        """Rows without the gone and the expired."""
        rows = rows.filter(pc.invert(rows[GONE]))
        clock = self.clock
        if clock.ttl_ms is None or clock.touched_ms is None:
            return rows
        since = clock.touched_ms if self.version.epoch_ms is None else self.version.epoch_ms
        expires = pc.add(pc.fill_null(rows[TOUCHED], since), clock.ttl_ms)
        return rows.filter(pc.greater(expires, clock.touched_ms))

    def write(self, batch_id: int, rows: pa.Table) -> None:
        """Write the version of a batch: all rows of the keys that it changed."""
        before = self.version
        # Before the version that forgets them: a crash in between leaves nothing behind.
        old = {file for batch, file in before.dropped if batch <= batch_id - VERSIONS_KEPT}
        for file in sorted(old):
            self.folder.remove(file)
        version = self._merged(batch_id, len(rows))
        gone = sorted({run.file for run in before.runs} - {run.file for run in version.runs})
        dropped = [entry for entry in before.dropped if entry[1] not in old]
        dropped += [(batch_id, file) for file in gone]
        if not before.runs or name_of(before.batch_id) != before.runs[0].file:
            # It held no rows, so that no run is dropped with it.
            dropped += [(batch_id, name_of(before.batch_id))] if before.batch_id >= 0 else []
        epoch = before.epoch_ms if before.epoch_ms is not None else self.clock.touched_ms
        version = replace(version, dropped=tuple(dropped), epoch_ms=epoch)
        write_version(self.folder, version, sorted_rows(rows))

    def _merged(self, batch_id: int, written: int) -> Version:
        """The version before, with every merge one slice further and all that was due seen."""
        now, runs, merges = self.clock.now_ms, self.version.runs, self.version.merges
        if now is not None:
            runs = tuple(replace(run, due_seen=now) for run in runs)
        budget = budget_of(batch_id, runs, written)
        begun = merge_to_begin(runs, merges, batch_id) if budget else None
        left, least = [], budget // 4  # less would make many small files
        for number, merge in enumerate((begun, *merges) if begun else merges):
            if not budget or budget < least:
                left.append(merge)
                continue
            piece = next_slice(merge, runs, self.rows, budget)
            made = self._merge(piece, f"{batch_id}-{number}-merged{SUFFIX}")
            runs, budget = after(piece, made, runs), max(0, budget - piece.rows)
            left += [further] if (further := progressed(piece)) else []
        return Version(batch_id, self.by, runs, tuple(left), now_ms=now)

    def _merge(self, piece: Slice, file: str) -> Run | None:
        """Write what a slice makes; None if nothing is left of it."""
        wanted = self.stored_schema()
        parts = [_shape(table, wanted) for table in piece.parts(self.rows)]
        rows = newest(parts) if parts else wanted.empty_table()
        rows = with_due_order(self.living(rows) if piece.bottom else rows)
        if not len(rows):
            return None
        run = self._written(piece.merge.into, file, rows)
        seen = _seen_by_all(piece.members)
        return replace(run, low=piece.low, high=piece.high, due_seen=seen)

    def adopt(self, file: str, rows: pa.Table) -> None:
        """Begin with rows from elsewhere, sorted, under everything that comes."""
        run = self._written(file.removesuffix(SUFFIX), file, rows)
        self.version = replace(self.version, runs=(*self.version.runs, run))

    def _written(self, run: str, file: str, rows: pa.Table) -> Run:
        data = encode({"rows": len(rows)}, rows)
        self.folder.write(file, data)
        checksum = header_of(pa.py_buffer(data), file)[BODY_CHECKSUM]
        return Run(run, file, len(rows), checksum, due_first=earliest_due(rows))


def _seen_by_all(members: Sequence[Run]) -> int | None:
    seen = [run.due_seen for run in members]
    known = [moment for moment in seen if moment is not None]
    return min(known) if len(known) == len(seen) else None


def _waits(run: Run, now_ms: int) -> bool:
    """Whether a run may have rows that are due, without opening it."""
    return run.due_first is not None and run.due_first <= now_ms


def _shape(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    if rows.schema.equals(wanted):
        return rows
    columns = [
        rows[column.name].cast(column.type)
        if column.name in rows.column_names
        else pa.nulls(len(rows), column.type)
        for column in wanted
    ]
    return pa.table(columns, schema=wanted)


def bucket_name(bucket: int, buckets: int) -> str:
    """The folder of a bucket."""
    return f"bucket-{bucket}-of-{buckets}"


def has_version(root: Place, bucket: int, buckets: int, batch_id: int) -> bool:
    """Whether a batch has been written to a bucket."""
    return batch_id in batches(root.below(bucket_name(bucket, buckets)).names())


def open_bucket(
    root: Place,
    bucket: int,
    buckets: int,
    schema: pa.Schema,
    by: tuple[str, ...],
    batch_id: int,
    opened: Opened,
) -> Bucket:
    """A bucket as it was before a batch; empty if no bucket of its operator was written before.

    Raises:
        DamagedStateError: files are missing or damaged.
        UsageError: what is stored does not fit the schema or the number of buckets.
    """
    folder = root.below(bucket_name(bucket, buckets))
    try:
        version, stored = read_version(folder, batch_id - 1)
    except FileNotFoundError:
        _check_new(root, buckets, batch_id, f"{folder.url}/{name_of(batch_id - 1)}")
        return Bucket(folder, schema, by, Version(-1, by), opened)
    check_schema(folder.url, stored, version.by, schema, by)
    opened.keep(folder, version.runs)
    return Bucket(folder, schema, by, version, opened)


def _check_new(root: Place, buckets: int, batch_id: int, missing: str) -> None:
    """Every batch writes every bucket: one may be absent only if all are, before and after."""
    for name in root.names():
        written = [batch for batch in batches(root.below(name).names()) if batch < batch_id]
        if written and not name.endswith(f"-of-{buckets}"):
            cause = f"it has {name.rpartition('-')[2]} buckets, not {buckets}"
            remedy = "keep their number, or start from a savepoint with a new checkpoint"
            raise UsageError(f"cannot go on with the state in {root.url}", cause, remedy)
        if written:
            raise DamagedStateError(missing, "it is missing")


def check_schema(
    where: str,
    stored: pa.Schema,
    stored_by: tuple[str, ...],
    wanted: pa.Schema,
    by: tuple[str, ...],
) -> None:
    """What is stored must be part of what is wanted; new columns are null in old rows.

    Raises:
        UsageError: a column is missing or of another type, or the key is another.
    """
    operation, remedy = f"cannot go on with the state in {where}", "give it another name"
    if stored_by != by:
        cause = f"its key is ({', '.join(stored_by)}), not ({', '.join(by)})"
        raise UsageError(operation, cause, remedy)
    for column in stored:
        if column.name in (*INTERNAL, DUE_ORDER):
            continue
        if column.name not in wanted.names:
            cause = f"the column {column.name} is gone"
            raise UsageError(operation, cause, f"keep the column, or {remedy}")
        if wanted.field(column.name).type != column.type:
            cause = f"the column {column.name} was {column.type}, not "
            cause += str(wanted.field(column.name).type)
            raise UsageError(operation, cause, f"add a column of a new name, or {remedy}")
