"""Sending records and counting what the cluster acknowledged.

Every record is sent by an idempotent producer with acks=all. What was handed over but not yet
acknowledged is bounded here: kafka-python itself would keep all of a fast input in memory.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from penstock.client.connection import connect, library, translate, translated
from penstock.client.refusals import Refusals
from penstock.client.topics import out_of_service, topic_partitions
from penstock.errors import NotFoundError, PenstockError, UnavailableError, UsageError

UNACKNOWLEDGED_BYTES_MAX: Final = 64 * 1024 * 1024
UNACKNOWLEDGED_RECORDS_MAX: Final = 100_000
# Large enough for any record: the broker knows better than we what it takes (max.message.bytes).
REQUEST_BYTES_MAX: Final = 100 * 1024 * 1024
# Short enough to go unnoticed by somebody typing, long enough to fill batches from a file.
LINGER_MS: Final = 5
BATCH_BYTES: Final = 256 * 1024
SETTLE_SECONDS: Final = 5.0
# Stands for no value: without a key either, kafka-python refuses None, but not what becomes None.
_NO_VALUE: Final = object()


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    """None for the one its key belongs to, or any."""
    timestamp_ms: int | None = None
    """None for now."""

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        return size + sum(len(name.encode()) + len(value) for name, value in self.headers)


class RecordSender:
    """Sends records to one topic; use it in a `with` block and call `finish` in the end."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        compression: str | None = None,
        delivery_seconds: float = 30.0,
    ) -> None:
        """Connect.

        Args:
            bootstrap: Addresses of the cluster.
            topic: An existing topic.
            compression: gzip, snappy, lz4 or zstd; None for none.
            delivery_seconds: How long a record may wait for its acknowledgement.

        Raises:
            NotFoundError: there is no such topic.
            PenstockError: the cluster could not be asked.
        """
        self._bootstrap = bootstrap
        self._topic = topic
        self._operation = f"cannot produce to {topic}"
        self._delivery_seconds = delivery_seconds
        self._partitions = topic_partitions(
            bootstrap, topic, self._operation, f"create it with `penstock topics create {topic}`"
        )
        self._changed = threading.Condition()
        self._sent = 0
        self._sent_bytes = 0
        self._acknowledged = 0
        self._acknowledged_bytes = 0
        self._failed = 0
        self._failure: Exception | None = None
        self._problem: PenstockError | None = None
        self._refusals = Refusals()
        delivery_ms = int(delivery_seconds * 1000)
        self._producer = connect(
            "KafkaProducer",
            bootstrap,
            self._operation,
            kafka_client=self._refusals.client,
            acks="all",
            enable_idempotence=True,
            value_serializer=library("kafka.serializer").SerializeWrapper(_as_sent),
            compression_type=compression,
            batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
            max_request_size=REQUEST_BYTES_MAX,
            # It insists that a request and the linger together are shorter than the delivery.
            request_timeout_ms=delivery_ms - 2 * LINGER_MS,
            delivery_timeout_ms=delivery_ms,
            max_block_ms=delivery_ms,
        )

    def __enter__(self) -> RecordSender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Whoever wants to wait has called finish(); what is then left cannot be saved by waiting,
        # and must not hide the error that is on its way.
        with contextlib.suppress(library("kafka.errors").KafkaError):
            self._producer.close(timeout=0)

    @property
    def sent(self) -> int:
        """Records handed over so far."""
        return self._sent

    @property
    def acknowledged(self) -> int:
        """Records that the cluster has acknowledged so far."""
        return self._acknowledged

    @property
    def acknowledged_bytes(self) -> int:
        """Keys, values and headers of the acknowledged records."""
        return self._acknowledged_bytes

    def send(self, record: OutgoingRecord) -> None:
        """Hand over a record; waits while too much is unacknowledged.

        Raises:
            NotFoundError: the topic has no such partition.
            PenstockError: an earlier record failed, so nothing more is sent.
        """
        if record.partition is not None and record.partition not in self._partitions:
            raise self._no_partition(record.partition)
        size = record.size
        self._make_room(size)
        with translated(self._operation):
            future = self._producer.send(
                self._topic,
                value=_NO_VALUE if record.value is None else record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
        self._sent += 1
        self._sent_bytes += size
        future.add_callback(self._on_acknowledged, size)
        future.add_errback(self._on_failed, size)

    def finish(self) -> None:
        """Wait until every record is acknowledged.

        Raises:
            PenstockError: one or more were not.
        """
        # Not the producer's own flush(): it gives up on a batch that is split in two meanwhile.
        # Each record settles within its delivery time; the margin is for the thread that says so.
        limit = self._delivery_seconds + SETTLE_SECONDS
        with self._changed:
            settled = self._changed.wait_for(lambda: self._unsettled == 0, limit)
        self._raise_failure()
        if not settled:
            cause = f"{self._unsettled} records were not acknowledged within {limit:g} s"
            raise UnavailableError(self._operation, cause, "check that the broker runs")

    @property
    def _unsettled(self) -> int:
        return self._sent - self._acknowledged - self._failed

    def _make_room(self, size: int) -> None:
        with self._changed:
            while not self._failure and self._unsettled and self._is_full(size):
                self._changed.wait()
        self._raise_failure()

    def _is_full(self, size: int) -> bool:
        waiting = self._sent_bytes - self._acknowledged_bytes
        return (
            self._unsettled >= UNACKNOWLEDGED_RECORDS_MAX
            or waiting + size > UNACKNOWLEDGED_BYTES_MAX
        )

    # Both run on the producer's own thread.

    def _on_acknowledged(self, size: int, _metadata: Any) -> None:
        with self._changed:
            self._acknowledged += 1
            self._acknowledged_bytes += size
            self._changed.notify()

    def _on_failed(self, size: int, error: Exception) -> None:
        with self._changed:
            self._failed += 1
            self._sent_bytes -= size
            self._failure = self._failure or error
            self._changed.notify()

    def _raise_failure(self) -> None:
        error = self._failure
        if error is None:
            return
        if self._problem is None:
            self._problem = self._explained(error)
        raise self._problem from error

    def _explained(self, error: Exception) -> PenstockError:
        errors = library("kafka.errors")
        if isinstance(error, errors.MessageSizeTooLargeError):
            command = f"penstock topics configure {self._topic} --set max.message.bytes=BYTES"
            cause = "a record is larger than the topic takes"
            return UsageError(self._operation, cause, f"allow it with `{command}`")
        expired = isinstance(error, errors.KafkaTimeoutError)
        reason = self._reason_for_delay() if expired else None
        return reason or translate(self._operation, error)

    def _reason_for_delay(self) -> PenstockError | None:
        """Why records were not taken in time; None if the cluster has not said, nor says it now."""
        refusal = self._refusals.first()
        if refusal is not None:
            return refusal.error(self._operation)
        return out_of_service(self._bootstrap, self._topic, self._operation)

    def _no_partition(self, partition: int) -> PenstockError:
        count = len(self._partitions)
        cause = f"it has no partition {partition}"
        return NotFoundError(self._operation, cause, f"use one from 0 to {count - 1}")


def _as_sent(value: Any) -> Any:
    return None if value is _NO_VALUE else value
