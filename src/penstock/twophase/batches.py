"""The records of one transaction on their way to the broker: a batch for each partition at a time.

Nothing is sent twice: if an answer is missing, the transaction is aborted as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.client.connection import library
from penstock.client.direct import Direct
from penstock.client.fencing import check
from penstock.client.two_phase import Identity
from penstock.errors import NotFoundError
from penstock.record.batch import TRANSACTIONAL_FLAG
from penstock.record.encode import NewRecord, encode
from penstock.record.murmur2 import partition_of

# Well below what a topic takes by default (max.message.bytes, 1 MiB), large enough to be cheap.
_BYTES_MAX: Final = 512 * 1024
_RECORD_OVERHEAD: Final = 32
_METADATA_VERSION: Final = 12
_PRODUCE_VERSION: Final = 12  # the first that opens transactions, the last with names of topics
_TIMEOUT_MS: Final = 30_000

Place = tuple[str, int]


class Batches:
    """See the module."""

    def __init__(self, direct: Direct, name: str, identity: Identity) -> None:
        self._direct = direct
        self._name = name
        self._partitions: dict[str, int] = {}
        self._keyless = 0
        self.reset(identity)

    def reset(self, identity: Identity) -> None:
        """Begin the next transaction; partitions of topics are asked for again."""
        self._identity = identity
        self._waiting: dict[Place, list[NewRecord]] = {}
        self._bytes = 0
        self._sequences: dict[Place, int] = {}
        self._partitions.clear()
        self.began = False
        """Whether the broker may have something of this transaction."""

    def add(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int,
    ) -> None:
        """Take a record, and send what has come together if it is enough.

        Raises:
            PenstockError: there is no such topic or partition, or the broker took something not.
        """
        number = self._choose(topic, key, partition)
        size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(text or b"") for name, text in headers)
        if self._bytes and self._bytes + size > _BYTES_MAX:
            self.flush()
        record = NewRecord(value, key, timestamp_ms, headers)
        self._waiting.setdefault((topic, number), []).append(record)
        self._bytes += size

    def flush(self) -> None:
        """Send all that waits; done when the broker has it on disk.

        Raises:
            PenstockError: it did not take all of it.
        """
        if not self._waiting:
            return
        self.began = True
        answer = self._direct.ask(self._request(), _PRODUCE_VERSION)
        for topic in answer.responses:
            for one in topic.partition_responses:
                check(f"cannot produce to {topic.name}", one.error_code, one.error_message)
        for place, records in self._waiting.items():
            self._sequences[place] = self._sequences.get(place, 0) + len(records)
        self._waiting, self._bytes = {}, 0

    def _request(self) -> Any:
        produce = library("kafka.protocol.producer").ProduceRequest
        topic_data = produce.TopicProduceData
        topics: dict[str, list[Any]] = {}
        for (topic, number), records in self._waiting.items():
            batch = encode(
                records,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                base_sequence=self._sequences.get((topic, number), 0),
                attributes=TRANSACTIONAL_FLAG,
            )
            data = topic_data.PartitionProduceData(index=number, records=bytes(batch))
            topics.setdefault(topic, []).append(data)
        return produce(
            transactional_id=self._name,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[topic_data(name=name, partition_data=all) for name, all in topics.items()],
        )

    def _choose(self, topic: str, key: bytes | None, partition: int | None) -> int:
        count = self._partition_count(topic)
        if partition is not None:
            if not 0 <= partition < count:
                cause = f"it has no partition {partition}"
                raise NotFoundError(
                    f"cannot produce to {topic}", cause, f"use one from 0 to {count - 1}"
                )
            return partition
        if key is None:
            self._keyless += 1
            return self._keyless % count
        return partition_of(key, count)

    def _partition_count(self, topic: str) -> int:
        if topic not in self._partitions:
            metadata = library("kafka.protocol.metadata").MetadataRequest
            request = metadata(
                topics=[metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
            )
            (found,) = self._direct.ask(request, _METADATA_VERSION).topics
            check(f"cannot produce to {topic}", found.error_code)
            self._partitions[topic] = len(found.partitions)
        return self._partitions[topic]
