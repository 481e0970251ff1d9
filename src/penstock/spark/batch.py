"""What a task knows of the batch it works for: where its query keeps things, and what time it is there.

The time of a batch is the watermark that the source wrote into the offset of that batch. Spark keeps
offsets in its checkpoint before a batch begins, so every try of a batch reads the same time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import fsspec
from pyspark import SparkContext, TaskContext

from penstock.errors import UsageError

# Where a source's offset has its time, and where its batch begins. No topic can have such names.
TIME: Final = "$time"
FROM: Final = "$from"
WATERMARK: Final = "watermark"
_CHECKPOINT: Final = "penstock.checkpoint"
_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"
_SETTLED: Final = "penstock.settled"


@dataclass(frozen=True, slots=True)
class Times:
    """The watermark at a batch and the one before it, in milliseconds since 1970; None: unknown."""

    before_ms: int | None
    now_ms: int | None


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of one query."""

    checkpoint: str
    query_id: str
    batch_id: int
    settled: bool = False
    """Whether its results are out: state that is there stays as it is."""

    def times(self) -> Times:
        """What time it is, by the sources that know."""
        before = watermark_at(self.checkpoint, self.batch_id - 1) if self.batch_id else None
        return Times(before, watermark_at(self.checkpoint, self.batch_id))

    def started_ms(self) -> int:
        """When Spark began it by the clock; a batch that runs again began when it did first."""
        _, metadata, *_ = _plan(self.checkpoint, self.batch_id)
        started: int = json.loads(metadata)["batchTimestampMs"]
        return started


def announce(context: SparkContext, checkpoint: str) -> None:
    """Let the tasks of queries started by this thread know their checkpoint."""
    context.setLocalProperty(_CHECKPOINT, checkpoint)


@contextmanager
def settled(context: SparkContext) -> Iterator[None]:
    """Let tasks that run now know that the results of their batch are out already."""
    context.setLocalProperty(_SETTLED, "true")
    try:
        yield
    finally:
        context.setLocalProperty(_SETTLED, None)


def batch_properties(checkpoint: str, query: str, batch_id: int) -> dict[str, str]:
    """What a task of a batch is told, as local properties: for tests that run without a query."""
    return {_CHECKPOINT: checkpoint, _QUERY_ID: query, _BATCH_ID: str(batch_id)}


def query_id(context: SparkContext) -> str:
    """The query whose batch the driver handles now."""
    found: str = context.getLocalProperty(_QUERY_ID)
    return found


def announced(context: SparkContext) -> str:
    """The checkpoint of the query whose batch the driver handles now."""
    found: str = context.getLocalProperty(_CHECKPOINT)
    return found


def current_batch() -> Batch:
    """The batch that this task works for.

    Raises:
        UsageError: the task belongs to no query that write_stream started.
    """
    task = TaskContext.get()
    found = {
        name: None if task is None else task.getLocalProperty(name)
        for name in (_CHECKPOINT, _QUERY_ID, _BATCH_ID, _SETTLED)
    }
    checkpoint, query, batch, settled = found.values()
    if checkpoint is None or query is None or batch is None:
        operation = "cannot keep state or time of a query"
        cause = "the query was not started by penstock.spark.write_stream"
        raise UsageError(operation, cause, "start it with write_stream")
    return Batch(checkpoint, query, int(batch), bool(settled))


def watermark_at(checkpoint: str, batch_id: int) -> int | None:
    """The watermark that the sources wrote into the offsets of a batch: the smallest of them.

    None if none of them has a time, or one does not know it yet.
    """
    offsets = offsets_at(checkpoint, batch_id)
    known = [offset[TIME][WATERMARK] for offset in offsets if TIME in offset]
    return None if None in known else min(known, default=None)


def is_timed(checkpoint: str, batch_id: int) -> bool:
    """Whether a source of the batch has a watermark, be it known or not."""
    return any(TIME in offset for offset in offsets_at(checkpoint, batch_id))


def position_at(checkpoint: str, batch_id: int) -> dict[str, dict[str, int]]:
    """The ends of a batch in all topics: {"topic": {"partition": offset}}.

    Where several sources read the same partition, what all of them have read.
    """
    position: dict[str, dict[str, int]] = {}
    for offset in offsets_at(checkpoint, batch_id):
        for topic, partitions in offset.items():
            if topic.startswith("$") or not isinstance(partitions, dict):
                continue
            merged = position.setdefault(topic, {})
            for number, end in partitions.items():
                merged[number] = min(end, merged.get(number, end))
    return position


def offsets_at(checkpoint: str, batch_id: int) -> list[dict[str, Any]]:
    """Where the sources end in a batch, as Spark keeps it; of sources of other kinds nothing."""
    _, _, *lines = _plan(checkpoint, batch_id)
    return [json.loads(line) for line in lines if line.startswith("{")]


def _plan(checkpoint: str, batch_id: int) -> list[str]:
    """Spark's plan of a batch: its version, Spark's own metadata, and a line for each source."""
    with fsspec.open(f"{checkpoint}/offsets/{batch_id}", "rt", encoding="utf-8") as file:
        text: str = file.read()
    return text.split("\n")
