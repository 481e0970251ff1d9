"""Writes the batches of a query to files of Parquet, each of them exactly once.

write      tasks write files to a folder of this try alone, and say which
commit     the driver makes the next version of the manifest: the files, and the marker of the batch
clean      what other tries of the batch have written is removed; after the commit, so that nobody can
           still commit it

Readers ask the manifest (parquet_manifest.py) and see whole batches only.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from penstock.errors import UsageError
from penstock.spark.durable_files import DurableFolder
from penstock.spark.sinks import parquet_manifest as manifest
from penstock.spark.sinks.parquet_manifest import Marker, PartFile, Version
from penstock.spark.sinks.replays import was_written
from penstock.spark.sinks.row_modes import numbered, row_mode

_SCRATCH: Final = "version.json"
_WRITTEN: Final = "path string, rows bigint, bytes bigint"


class ParquetSink:
    """See the module. Rows are added.

    Args:
        folder: a path, or the address of a folder in an object store as fsspec reads it.
        options: of its file system, as fsspec has them.
        name: what tells it from other sinks of the same query; by default by its folder.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        options: Mapping[str, Any] | None = None,
        name: str | None = None,
        token: Callable[[], str] = lambda: uuid.uuid4().hex[:12],
    ) -> None:
        self._folder = str(folder)
        self._options = dict(options or {})
        self._name = name or f"parquet:{folder}"
        self._token = token
        self._operation = f"cannot write to {folder}"
        self._mode = row_mode("append", (), self._operation)
        self._known = manifest.NOTHING

    @property
    def name(self) -> str:
        """What tells it from other sinks of the same query."""
        return self._name

    def prepare(self, frame: DataFrame) -> None:
        """Say before a query starts what would stop it.

        Raises:
            UsageError: there is a column that Parquet has no type for, or what is there has other
                columns.
        """
        self._mode.check(frame, nulls=False)
        self._check_schema(manifest.newest(self._store()), frame)

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Write one batch, or find that it has been written.

        Raises:
            ConflictError: a later batch has been written.
            UsageError: the columns are not those of the batches before.
        """
        store, key, attempt = self._store(), f"{query_id}/{self.name}", self._token()
        home = f"data/{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        last = self._known = manifest.newest(store, self._known)
        if not self._was_written(last, key, batch_id):
            self._check_schema(last, batch)
            own = f"{home}/{batch_id}/{attempt}"
            parts = _write_parts(batch, self._folder, self._options, own)
            if not parts:
                return  # a version without rows would tell nobody anything
            mark = {key: Marker(batch_id, attempt)}
            scratch = f"{own}/{_SCRATCH}"
            while not manifest.commit(store, _next(last, batch, mark, parts), scratch):
                last = manifest.newest(store, last)
                if self._was_written(last, key, batch_id):
                    break
        self._known = manifest.newest(store, last)
        manifest.make_durable(store, self._known)
        _clean(store, home, self._known.markers[key])

    def _was_written(self, last: Version, key: str, batch_id: int) -> bool:
        done = last.markers.get(key)
        return was_written(None if done is None else done.batch, batch_id, self._operation)

    def _check_schema(self, last: Version, frame: DataFrame) -> None:
        if not last.number:
            return
        there = StructType.fromJson(json.loads(last.schema))
        old = {field.name: field.dataType.simpleString() for field in there}
        new = {field.name: field.dataType.simpleString() for field in frame.schema}
        for name in {**old, **new}:
            if old.get(name) != new.get(name):
                cause = (
                    f"column {name} is {new.get(name, 'not')} in the query, and "
                    f"{old.get(name, 'not')} in what is there"
                )
                remedy = "make the columns the same, or write to another folder"
                raise UsageError(self._operation, cause, remedy)

    def _store(self) -> DurableFolder:
        return DurableFolder(self._folder, self._options)


def _next(
    last: Version, batch: DataFrame, mark: Mapping[str, Marker], parts: list[PartFile]
) -> Version:
    schema = last.schema if last.number else _nullable(batch.schema).json()
    return Version(last.number + 1, schema, {**last.markers, **mark}, tuple(parts), None)


def _write_parts(
    batch: DataFrame, folder: str, options: Mapping[str, Any], home: str
) -> list[PartFile]:
    write = _task_writer(folder, options, home, batch.columns)
    written = numbered(batch).mapInArrow(write, _WRITTEN).collect()
    return sorted(
        (PartFile(row.path, row.rows, row.bytes) for row in written), key=lambda one: one.path
    )


def _task_writer(
    folder: str, options: Mapping[str, Any], home: str, columns: list[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its rows: one file, or none if it has none."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store, task = DurableFolder(folder, options), TaskContext.get()
        path = f"{home}/{task.partitionId():05}-{task.taskAttemptId()}.parquet"
        rows, writer, file = 0, None, None
        for batch in (one.rename_columns(columns) for one in batches):
            if writer is None and batch.num_rows:
                store.files.makedirs(store.path(home), exist_ok=True)
                file = store.files.open(store.path(path), "wb")
                writer = pq.ParquetWriter(file, batch.schema)
            if writer is not None:
                writer.write_batch(batch)
                rows += batch.num_rows
        if writer is None or file is None:
            return
        writer.close()
        size = file.tell()
        file.close()
        store.make_durable(path)
        yield pa.RecordBatch.from_pydict({"path": [path], "rows": [rows], "bytes": [size]})

    return write


def _clean(store: DurableFolder, home: str, mark: Marker) -> None:
    """Remove what other tries of a batch that is committed have written."""
    for attempt in store.names(f"{home}/{mark.batch}"):
        if attempt != mark.attempt:
            store.remove(f"{home}/{mark.batch}/{attempt}")
    committed = f"{home}/{mark.batch}/{mark.attempt}"
    if _SCRATCH in store.names(committed):
        store.remove(f"{committed}/{_SCRATCH}")


def _nullable(kind: DataType) -> DataType:
    """A type that holds nulls everywhere: a later batch may have them."""
    if isinstance(kind, StructType):
        return StructType(
            [StructField(field.name, _nullable(field.dataType), True) for field in kind]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _nullable(kind.valueType), True)
    return kind
