"""Which batches of which queries have been written: one record for each query and sink, in a topic.

The record of a batch is written in the same transaction as the batch, so both are there or neither is.
The topic is compacted: only the newest record of each key matters.
"""

from __future__ import annotations

import contextlib
import json
from typing import Final

from penstock.client.batches import opened, whole_batches
from penstock.client.cluster import EARLIEST, LATEST, Cluster, Place
from penstock.client.security import OPEN, Security
from penstock.client.topics import create_topic
from penstock.errors import ConflictError
from penstock.record.batch import CONTROL_FLAG, BatchHeader
from penstock.record.decode import records_of
from penstock.record.encode import NewRecord
from penstock.record.marker import commits

TOPIC: Final = "penstock.commits"
PLACE: Final = Place(TOPIC, 0)
_SETTINGS: Final = {"cleanup.policy": "compact"}
_FETCH_BYTES: Final = 4 << 20
_WAIT_MS: Final = 500


def create(bootstrap: str, security: Security = OPEN) -> None:
    """Make sure that the topic is there."""
    with contextlib.suppress(ConflictError):
        create_topic(bootstrap, TOPIC, partitions=1, configs=_SETTINGS, security=security)


def marker(key: str, batch_id: int) -> NewRecord:
    """The record that says that a batch has been written."""
    return NewRecord(json.dumps({"batch": batch_id}).encode(), key.encode())


class Markers:
    """The markers of one query and sink, read as far as they went when last asked for."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._position: int | None = None
        self._open: dict[int, int] = {}
        self._last: int | None = None

    def last_batch(self, cluster: Cluster) -> int | None:
        """The last batch that was committed, by whomever; None if there is none.

        Everything is read up to the very end, and how each transaction ended is taken from its
        marker: a reader of committed records would be held up by what other queries have open, and
        miss what this one has committed behind it. Whoever asks has ended their own first.
        """
        end = cluster.offsets({PLACE: LATEST})[PLACE]
        if self._position is None:
            self._position = cluster.offsets({PLACE: EARLIEST})[PLACE]
        while self._position < end:
            fetched = cluster.fetch(PLACE, self._position, bytes_max=_FETCH_BYTES, wait_ms=_WAIT_MS)
            for header, batch in whole_batches(fetched.batches):
                following = header.base_offset + header.last_offset_delta + 1
                if following > self._position:
                    self._follow(header, batch)
                    self._position = following
        return self._last

    def _follow(self, header: BatchHeader, batch: memoryview) -> None:
        if not header.attributes & CONTROL_FLAG:
            for record in records_of(*opened(header, batch)):
                if record.key == self._key and record.value is not None:
                    self._open[header.producer_id] = int(json.loads(record.value)["batch"])
        elif header.producer_id in self._open:
            ended = self._open.pop(header.producer_id)
            self._last = ended if commits(batch) else self._last
