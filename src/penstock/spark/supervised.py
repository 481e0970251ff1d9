"""What a pipeline's process does because it is supervised: it reports, and it ends between two batches.

`penstock run` makes one of these before the pipeline's file runs; session() and write_stream() use it.
In any other process there is none, and nothing changes.
"""

from __future__ import annotations

import json
import math
import threading
import time
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.pipelines.reports import Failed, Progress, Reporter, Started
from penstock.spark.batch import TIME, WATERMARK
from penstock.spark.failures import failed_query

_LOOK_SECONDS: Final = 0.02


class StoppingError(PenstockError):
    """The pipeline is asked to end: no batch is begun."""


class Supervised:
    """See the module."""

    def __init__(self, reporter: Reporter, clock: Clock) -> None:
        self._reporter = reporter
        self._clock = clock
        self._stopping = threading.Event()
        self._sessions: list[SparkSession] = []
        self._queries: list[StreamingQuery] = []
        self._checkpoints: dict[str, str] = {}
        self._batches: dict[str, int] = {}
        self._told: dict[str, str] = {}  # the time of the progress that was reported last
        self._failed: Failed | None = None

    @property
    def stopping(self) -> bool:
        """Whether the pipeline was asked to end."""
        return self._stopping.is_set()

    @property
    def has_queries(self) -> bool:
        """Whether a query was started."""
        return bool(self._queries)

    @property
    def failed(self) -> Failed | None:
        """The first query that failed, if one did."""
        return self._failed

    def attach(self, spark: SparkSession) -> None:
        """Report what the queries of a session do."""
        if spark not in self._sessions:
            self._sessions.append(spark)
            spark.streams.addListener(_Listener(self))

    def starting(self, name: str, checkpoint: str) -> None:
        """A query is about to be started."""
        self._checkpoints[name] = checkpoint

    def add(self, query: StreamingQuery) -> None:
        """A query was started."""
        self._queries.append(query)

    def begin(self, name: str, batch_id: int) -> None:
        """A query has planned a batch and wants to run it.

        Raises:
            StoppingError: it must not; Spark runs it after the next start.
        """
        if self._stopping.is_set():
            cause = f"batch {batch_id} is left to the next start"
            raise StoppingError("the pipeline is being stopped", cause)
        self._batches[name] = batch_id

    def stop(self) -> None:
        """End all queries, each of them after the batch it is at."""
        self._stopping.set()
        for query in self._queries:
            # A batch that is planned meanwhile does not begin: the query is never torn out of one.
            while query.isActive and query.status["isTriggerActive"]:
                time.sleep(_LOOK_SECONDS)
            query.stop()
            self._tell_last(query)

    def wait(self) -> None:
        """Return when all queries have ended; the first that fails ends all."""
        for query in self._queries:
            query.awaitTermination()
            self._tell_last(query)

    def failed_with(self, error: StreamingQueryException) -> Failed:
        """What a query that somebody waited for failed with, where Spark has not told it yet."""
        failed = [query.name for query in self._queries if query.exception() is not None]
        name = failed[0] if failed else "unknown"
        return failed_query(str(error), name, self._batches.get(name))

    # -- what Spark tells

    def on_started(self, name: str, query_id: str) -> None:
        """A query has started."""
        self._reporter.tell(Started(name, query_id, self._checkpoints.get(name)))

    def on_progress(self, name: str, progress: Any) -> None:
        """A batch has ended."""
        self._told[name] = progress.timestamp
        self._reporter.tell(to_report(name, progress, self._clock.wall_ms()))

    def _tell_last(self, query: StreamingQuery) -> None:
        """Report the last batch of a query that has ended: Spark may end before it tells."""
        progress, name = query.lastProgress, query.name or str(query.id)
        if progress is not None and progress.timestamp != self._told.get(name):
            self.on_progress(name, progress)

    def on_terminated(self, name: str, exception: str | None) -> None:
        """A query has ended. What is left of a pipeline of which one query failed is ended too."""
        if exception is None or self._stopping.is_set():
            return
        self._failed = failed_query(exception, name, self._batches.get(name))
        # Not on this thread, which Spark waits for.
        threading.Thread(target=self.stop, name="penstock-stop", daemon=True).start()


def to_report(name: str, progress: Any, now_ms: int) -> Progress:
    """What Spark says of a batch, as the supervisor wants it."""
    ends = [_offset(source.endOffset) for source in progress.sources]
    latest = [_offset(source.latestOffset) for source in progress.sources]
    states = progress.stateOperators
    return Progress(
        query=name,
        batch=progress.batchId,
        rows=progress.numInputRows,
        rows_per_second=_finite(progress.processedRowsPerSecond),
        lag=_lag(ends, latest),
        watermark_ms=_watermark(ends),
        state_rows=sum(state.numRowsTotal for state in states) if states else None,
        at_ms=now_ms,
    )


def _offset(text: str | None) -> dict[str, Any]:
    """An offset of a source: Penstock's and Kafka's are JSON objects."""
    if not text or text == "null":
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _lag(ends: list[dict[str, Any]], latest: list[dict[str, Any]]) -> int | None:
    """Records between what was read and the ends of the topics, where sources say both."""
    known = [(end, last) for end, last in zip(ends, latest, strict=True) if end and last]
    if not known:
        return None
    return sum(
        max(0, int(offset) - int(end.get(topic, {}).get(partition, 0)))
        for end, last in known
        for topic, partitions in last.items()
        if topic != TIME and isinstance(partitions, dict)  # others have other offsets
        for partition, offset in partitions.items()
    )


def _watermark(ends: list[dict[str, Any]]) -> int | None:
    """The smallest of the sources that have a time."""
    known: list[int | None] = [end[TIME].get(WATERMARK) for end in ends if TIME in end]
    times: list[int] = [time for time in known if time is not None]
    return min(times) if times and len(times) == len(known) else None


def _finite(number: float) -> float:
    """Spark says infinity, or nothing, where no time has passed."""
    return number if math.isfinite(number) else 0.0


class _Listener(StreamingQueryListener):
    """Hands over what Spark tells, by the name of the query."""

    def __init__(self, supervised: Supervised) -> None:
        self._supervised = supervised
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        name = event.name or str(event.id)
        self._names[str(event.runId)] = name
        self._supervised.on_started(name, str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        name = self._names.get(str(event.progress.runId), str(event.progress.id))
        self._supervised.on_progress(name, event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        name = self._names.pop(str(event.runId), str(event.id))
        self._supervised.on_terminated(name, event.exception)


_here: Supervised | None = None


def supervise(supervised: Supervised) -> None:
    """Make this process a supervised one, once and for good."""
    global _here  # noqa: PLW0603 -- it is about the whole process, as its signals are
    _here = supervised


def supervision() -> Supervised | None:
    """What supervises this process; None: nothing does."""
    return _here
