"""Reads one range of offsets in a task: fetch, unpack, make columns. The next fetch runs meanwhile."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from penstock.client.batches import Batches, OpenBatch
from penstock.client.cluster import EARLIEST, Cluster, Fetched, OutOfRangeError, Place
from penstock.client.security import Security
from penstock.errors import NotFoundError, UnavailableError
from penstock.spark.columns import RowPlan
from penstock.spark.dead_letters import WRITE, write_dead_letters
from penstock.spark.options import READ, SourceOptions
from penstock.spark.positions import lost

if TYPE_CHECKING:
    import pyarrow as pa

_FETCH_BYTES: Final = 8 << 20
_WAIT_MS: Final = 500
_SILENCE_SECONDS_MAX: Final = 30.0
# How long a log may end before what was read of it once: a new leader does not know its end at once.
_SHORT_SECONDS_MAX: Final = 5.0
_log = logging.getLogger(__name__)


@functools.cache
def _cluster(bootstrap: str, committed: bool, security: Security) -> Cluster:
    """One for the whole life of a worker, which Spark uses for many tasks one after the other."""
    return Cluster(bootstrap, READ, committed=committed, security=security)


def _writing(options: SourceOptions) -> Cluster:
    """For dead letters: the other one belongs to the thread that fetches."""
    return _writing_cluster(options.bootstrap, options.security)


@functools.cache
def _writing_cluster(bootstrap: str, security: Security) -> Cluster:
    return Cluster(bootstrap, WRITE, committed=False, security=security)


def read_range(
    options: SourceOptions, rows: RowPlan, place: Place, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """The records of a partition from start up to, but not including, end.

    Raises:
        DataLossError: some of them are gone, and the user does not want to go on.
        UnavailableError: the cluster stopped to answer.
        MalformedRecordError: a value does not fit the schema, and the user wants to stop then.
    """
    malformed = 0
    for batches in _opened(options, place, start, end):
        made = rows.record_batch(place, batches, start, end)
        if made.malformed and options.dead_letters:
            write_dead_letters(
                _writing(options), options.dead_letters, place, batches, made.malformed
            )
            malformed += len(made.malformed)
        if made.rows.num_rows:
            yield made.rows
    if malformed:
        _log.warning(
            "%s, offsets %d to %d: %d records do not fit the schema and were written to %s",
            *(place, start, end - 1, malformed, options.dead_letters),
        )


def _opened(
    options: SourceOptions, place: Place, start: int, end: int
) -> Iterator[list[OpenBatch]]:
    """The batches of each fetch. Fetching is one step ahead, by the one thread that uses the cluster."""
    cluster = _cluster(options.bootstrap, options.committed, options.security)
    position = start
    heard = time.monotonic()
    with ThreadPoolExecutor(1) as thread:
        fetch = functools.partial(_fetch, options, cluster, place, end)
        coming = thread.submit(fetch, position)
        while position < end:
            position, fetched = coming.result()
            batches = Batches(fetched, position)
            found = list(batches)
            if batches.next_offset > position:
                heard = time.monotonic()
            elif fetched.readable <= position and time.monotonic() - heard > _SHORT_SECONDS_MAX:
                lost(options, f"{place} ends at {position}, and was to be read up to {end}")
                return
            elif time.monotonic() - heard > _SILENCE_SECONDS_MAX:
                cause = f"{place} gives nothing at {position}, although it goes on to {end}"
                raise UnavailableError(READ, cause, "check the broker's log")
            position = batches.next_offset
            if position < end:
                coming = thread.submit(fetch, position)
            yield found


def _fetch(
    options: SourceOptions, cluster: Cluster, place: Place, end: int, offset: int
) -> tuple[int, Fetched]:
    """What stands at an offset, or at the first that is still there."""
    try:
        return offset, cluster.fetch(place, offset, bytes_max=_FETCH_BYTES, wait_ms=_WAIT_MS)
    except NotFoundError:
        lost(options, f"{place} is gone; it was to be read up to {end}")
        return end, Fetched(b"", end, [])
    except OutOfRangeError:
        begin = cluster.offsets({place: EARLIEST})[place]
        known = f"begins at {begin}" if offset < begin else f"ends before {offset}"
        lost(options, f"{place} {known}, and {offset} was next")
        if not offset < begin < end:
            return end, Fetched(b"", end, [])
        return begin, cluster.fetch(place, begin, bytes_max=_FETCH_BYTES, wait_ms=_WAIT_MS)
