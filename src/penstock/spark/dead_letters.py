"""Records whose values do not fit, written to a topic where somebody can look at them.

They are written by the task that reads them, before its rows go on. A task that is tried again writes
them again: the headers name topic, partition and offset, by which each can be told from its twin. Who
needs every one exactly once takes them as rows (`_error`) and sends those to a `TopicSink`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.client.batches import OpenBatch
from penstock.client.cluster import Cluster, Place
from penstock.errors import UsageError
from penstock.record.decode import records_of
from penstock.record.encode import NewRecord, encode
from penstock.spark.columns import BadRecord

WRITE: Final = "cannot write malformed records"
TOPIC, PARTITION, OFFSET = "penstock.topic", "penstock.partition", "penstock.offset"
TIMESTAMP, ERROR = "penstock.timestamp", "penstock.error"
# A record that fitted into its own topic fits into a batch of its own here.
_BATCH_BYTES_MAX: Final = 512 * 1024
_RECORD_OVERHEAD: Final = 512  # its headers


def check_dead_letters(cluster: Cluster, topic: str, read: Sequence[Place]) -> None:
    """Say before a query starts what would stop it.

    Raises:
        NotFoundError: there is no such topic.
        UsageError: it is one of those that are read: what is written there would come back.
    """
    cluster.partitions([topic])
    if any(place.topic == topic for place in read):
        cause = f"malformed records of {topic} would be written to {topic} itself"
        raise UsageError(WRITE, cause, "name another topic in malformed")


def write_dead_letters(
    cluster: Cluster,
    topic: str,
    place: Place,
    batches: Sequence[OpenBatch],
    malformed: Sequence[BadRecord],
) -> None:
    """Write records of a partition that do not fit, and wait until they are acknowledged.

    Raises:
        PenstockError: the cluster refused, or could not be asked.
    """
    # Those of one partition stay together, and in their order.
    target = Place(topic, place.partition % len(cluster.partitions([topic])))
    reasons = {one.offset: one.reason for one in malformed}
    for records in _batched(_letters(place, batches, reasons)):
        cluster.append(target, bytes(encode(records)))


def _letters(
    place: Place, batches: Sequence[OpenBatch], reasons: dict[int, str]
) -> Iterator[NewRecord]:
    now = time.time_ns() // 1_000_000  # retention shall begin now, however old the record is
    for header, body in batches:
        for record in records_of(header, body):
            if record.offset in reasons:
                about = {
                    TOPIC: place.topic,
                    PARTITION: str(place.partition),
                    OFFSET: str(record.offset),
                    TIMESTAMP: str(record.timestamp),
                    ERROR: reasons[record.offset],
                }
                said = [(name, text.encode()) for name, text in about.items()]
                yield NewRecord(record.value, record.key, now, [*record.headers, *said])


def _batched(records: Iterable[NewRecord]) -> Iterator[list[NewRecord]]:
    waiting: list[NewRecord] = []
    size = 0
    for record in records:
        more = len(record.value or b"") + len(record.key or b"") + _RECORD_OVERHEAD
        if waiting and size + more > _BATCH_BYTES_MAX:
            yield waiting
            waiting, size = [], 0
        waiting.append(record)
        size += more
    if waiting:
        yield waiting
