"""Writes the batches of a query to a topic, each of them exactly once.

One transaction for each batch, written to by all tasks:

    begin      the driver takes the transactional id over: stragglers of an earlier try are fenced,
               and what they wrote is aborted
    skip?      a marker in `penstock.commits` says that the batch was committed: nothing is written
    write      the rows are shared out by target partition, so that no two tasks write to the same
    mark       the driver writes the marker of the batch
    commit     rows and marker become visible at once

Whatever fails before the commit aborts all of it, and the batch is tried again from the start. After a
crash Spark runs its last batch again, and the marker decides.
"""

from __future__ import annotations

import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import BinaryType, StringType

from penstock.client.cluster import Cluster, Place
from penstock.client.connection import reach
from penstock.client.security import NAMES as SECURITY_NAMES
from penstock.client.security import Security
from penstock.client.transactional import BatchWriter, Ticket, Transaction
from penstock.errors import ConflictError, PenstockError, UsageError
from penstock.pipelines.terms import current_terms
from penstock.record.encode import NewRecord
from penstock.record.murmur2 import partition_of
from penstock.spark.options import parse_security
from penstock.spark.sinks import commit_markers
from penstock.spark.sinks.commit_markers import Markers
from penstock.spark.sinks.replays import was_written

if TYPE_CHECKING:
    from pyspark.sql import Column

_TRIES_MAX: Final = 3
_BATCH_BYTES_MAX: Final = 512 * 1024
_BATCH_ROWS_MAX: Final = 10_000
_RECORD_OVERHEAD: Final = 32
SETTINGS: Final = {"spark.speculation": "false", "spark.stage.maxConsecutiveAttempts": "1"}
"""A task that is tried again is told so, unless it is by one of these."""
_log = logging.getLogger(__name__)


class RetriedTaskError(PenstockError):
    """A task that has been tried before: what it wrote then cannot be told from what it would write."""


class TopicSink:
    """See the module.

    Args:
        bootstrap: addresses of the cluster; None: those of the run, as for read_stream.
        topic: an existing topic.
        key: the column that becomes the key, if there is no column `key`.
        timeout_seconds: how long a batch may take; what a dead query left open is aborted after it.
        options: TLS and passwords, in the names that the source has for them, such as
            kafka.security.protocol.
        name: what tells it from other sinks of the same query; by default by its topic.

    Raises:
        UsageError: the options make no sense.
    """

    def __init__(
        self,
        bootstrap: str | None,
        topic: str,
        *,
        key: str | None = None,
        timeout_seconds: int = 300,
        options: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        self._bootstrap = bootstrap or current_terms().bootstrap
        self._topic = topic
        self._key = key
        self._timeout_ms = timeout_seconds * 1000
        self._name = name or f"topic:{topic}"
        self._operation = f"cannot write to {topic}"
        self._security = _security(options or {}, self._operation)
        self._markers: dict[str, Markers] = {}

    @property
    def name(self) -> str:
        """What tells it from other sinks of the same query."""
        return self._name

    def prepare(self, frame: DataFrame) -> None:
        """Say before a query starts what would stop it.

        Raises:
            PenstockError: the cluster cannot be reached, the topic does not exist, or Spark runs
                tasks twice on purpose.
        """
        reach(self._bootstrap)
        with self._connected() as cluster:
            cluster.partitions([self._topic])
        self._chosen(frame)
        for name, wanted in SETTINGS.items():
            if frame.sparkSession.conf.get(name, None) != wanted:
                cause = f"{name} is not {wanted}: two tries of a task could write the same rows"
                raise UsageError(self._operation, cause, "set it, or use penstock.spark.session()")
        commit_markers.create(self._bootstrap, self._security)

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Write one batch, or find that it has been written.

        Raises:
            ConflictError: another process runs the same query, or the checkpoint is an old copy.
            PenstockError: it could not be written.
        """
        key = f"{query_id}/{self.name}"
        for attempt in itertools.count(1):
            try:
                with self._connected() as cluster:
                    self._attempt(cluster, batch, batch_id, key)
            except ConflictError:
                raise  # another process runs the same query, or did: it shall have it
            except Exception as error:
                if attempt == _TRIES_MAX:
                    raise
                _log.warning("batch %d is tried again: %s", batch_id, error)
            else:
                return

    def _connected(self) -> Cluster:
        return _connect(self._bootstrap, self._operation, self._security)

    def _attempt(self, cluster: Cluster, batch: DataFrame, batch_id: int, key: str) -> None:
        transaction = Transaction(cluster, f"penstock-spark-{key}", self._operation)
        ticket = transaction.begin(self._timeout_ms)
        done = self._markers.setdefault(key, Markers(key)).last_batch(cluster)
        if was_written(done, batch_id, self._operation):
            return
        try:
            self._write_rows(batch, len(cluster.partitions([self._topic])), ticket)
            writer = BatchWriter(cluster, ticket, self._operation, _now_ms)
            writer.write(commit_markers.PLACE, [commit_markers.marker(key, batch_id)])
        except Exception:
            self._abort(transaction, ticket)
            raise
        # Not aborted if this fails: it may have been committed, which the next try looks up.
        transaction.end(ticket, commit=True)

    def _abort(self, transaction: Transaction, ticket: Ticket) -> None:
        try:
            transaction.end(ticket, commit=False)
        except PenstockError as error:
            _log.warning("%s; whoever begins next aborts it", error)

    def _write_rows(self, batch: DataFrame, partitions: int, ticket: Ticket) -> None:
        connect = functools.partial(_connect, self._bootstrap, self._operation, self._security)
        write = _task_writer(connect, self._topic, ticket, self._operation)
        rows = self._chosen(batch).mapInArrow(_target(partitions), _TARGETED)
        rows = rows.repartition(partitions, "target") if partitions > 1 else rows.coalesce(1)
        # In the order the tasks before had them: records of one key stay in theirs.
        rows = rows.sortWithinPartitions("target", "task", "row")
        rows.mapInArrow(write, "written bigint").agg(sql.sum("written")).collect()

    def _chosen(self, frame: DataFrame) -> DataFrame:
        """The columns of a record, as bytes where they are bytes in a record."""
        columns = set(frame.columns)
        if self._key is not None and self._key not in columns:
            cause = f"there is no column {self._key} for the key"
            raise UsageError(self._operation, cause, f"there are {', '.join(frame.columns)}")
        key = _as_bytes(frame, "key", self._operation) if "key" in columns else sql.lit(None)
        if self._key is not None:
            key = sql.col(self._key).cast("string")
        if "value" in columns:
            value = _as_bytes(frame, "value", self._operation)
        else:
            value = sql.to_json(sql.struct("*")).cast("binary")
        partition = sql.col("partition") if "partition" in columns else sql.lit(None)
        when = sql.lit(None)
        if "timestamp" in columns:
            when = sql.unix_millis(sql.col("timestamp").cast("timestamp"))
        return frame.select(
            key.cast("binary").alias("key"),
            value.alias("value"),
            partition.cast("int").alias("partition"),
            when.cast("bigint").alias("timestamp"),
        )


def _security(options: Mapping[str, str], operation: str) -> Security:
    strange = [name for name in options if name.removeprefix("kafka.") not in SECURITY_NAMES]
    if strange:
        remedy = f"there are {', '.join(f'kafka.{name}' for name in SECURITY_NAMES)}"
        raise UsageError(operation, f"there is no option {strange[0]}", remedy)
    return parse_security(options, operation)


def _connect(bootstrap: str, operation: str, security: Security) -> Cluster:
    return Cluster(bootstrap, operation, committed=False, security=security)


_TARGETED: Final = "key binary, value binary, timestamp bigint, target int, task int, row bigint"


def _as_bytes(frame: DataFrame, name: str, operation: str) -> Column:
    kind = frame.schema[name].dataType
    if not isinstance(kind, BinaryType | StringType):
        cause = f"{name} is {kind.simpleString()}"
        raise UsageError(operation, cause, "make it binary or string, with to_json for instance")
    return sql.col(name).cast("binary")


def _target(partitions: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Adds where each row goes, and its place among those of its task."""

    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get().partitionId()
        counted = 0
        for batch in batches:
            keys, chosen = batch.column("key").to_pylist(), batch.column("partition").to_pylist()
            targets = [
                one
                if one is not None
                # Rows without a key are dealt out, as the clients do.
                else (counted + at) % partitions
                if key is None
                else partition_of(key, partitions)
                for at, (key, one) in enumerate(zip(keys, chosen, strict=True))
            ]
            rows = len(targets)
            yield pa.RecordBatch.from_arrays(
                [
                    batch.column("key"),
                    batch.column("value"),
                    batch.column("timestamp"),
                    pa.array(targets, pa.int32()),
                    pa.array([task] * rows, pa.int32()),
                    pa.array(range(counted, counted + rows), pa.int64()),
                ],
                names=["key", "value", "timestamp", "target", "task", "row"],
            )
            counted += rows

    return add


def _task_writer(
    connect: Callable[[], Cluster], topic: str, ticket: Ticket, operation: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with the rows of its partitions."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if TaskContext.get().attemptNumber():
            raise RetriedTaskError(operation, "the first try of the task may have written")
        written = 0
        with connect() as cluster:
            writer = BatchWriter(cluster, ticket, operation, _now_ms)
            for target, records in _batched(batches):
                writer.write(Place(topic, target), records)
                written += len(records)
        yield pa.RecordBatch.from_pydict({"written": [written]})

    return write


def _batched(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, list[NewRecord]]]:
    """Records in batches for one partition each; they come sorted by it."""
    target = -1
    records: list[NewRecord] = []
    size = 0
    for batch in batches:
        columns = (
            batch.column(name).to_pylist() for name in ("target", "value", "key", "timestamp")
        )
        for where, value, key, timestamp in zip(*columns, strict=True):
            more = len(value or b"") + len(key or b"") + _RECORD_OVERHEAD
            full = size + more > _BATCH_BYTES_MAX or len(records) >= _BATCH_ROWS_MAX
            if records and (where != target or full):
                yield target, records
                records, size = [], 0
            target = where
            records.append(NewRecord(value, key, timestamp or 0))
            size += more
    if records:
        yield target, records


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
