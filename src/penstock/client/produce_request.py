"""The request that appends a batch to a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.client.connection import library

if TYPE_CHECKING:
    from penstock.client.cluster import Place

PRODUCE: Final = 12  # the first that opens transactions, the last that names topics
_TIMEOUT_MS: Final = 30_000


def produce_request(place: Place, batch: bytes, transactional_id: str | None) -> Any:
    """Answered when the batch is durable everywhere it should be."""
    messages = library("kafka.protocol.producer")
    data = messages.ProduceRequest.TopicProduceData
    partition = data.PartitionProduceData(index=place.partition, records=batch)
    return messages.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[data(name=place.topic, partition_data=[partition])],
    )
