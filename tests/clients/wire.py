"""The Kafka protocol without a client: one connection, one request at a time, exact error codes.

Tests set the stage with it (topics with certain settings, batches with certain borders) and look
behind what a client reports (which codec arrived, which producer id).
"""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, cast

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords
from tests.clients.admin_requests import create_topics
from tests.clients.contract import CODECS, DEADLINE, Code, Record, Refused, Stored, eventually

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
NAMED_PRODUCE, NAMED_FETCH = 12, 12
"""The last versions that name topics; later ones use their ids."""


class Batch(NamedTuple):
    """A stored batch: its borders, what its header says, and its records."""

    base: int
    last: int
    codec: str
    producer_id: int
    records: list[Stored]


@dataclass
class Wire:
    """A connection to a broker."""

    address: str
    timeout: float = DEADLINE
    receive_buffer: int | None = None

    def __post_init__(self) -> None:
        host, _, port = self.address.rpartition(":")
        self.socket = socket.socket()
        if self.receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
        self.socket.settimeout(self.timeout)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sent = 0
        self._versions: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    # ---- requests ------------------------------------------------------------------------

    def versions(self) -> dict[int, tuple[int, int]]:
        """The range of versions the broker offers for each API key."""
        if not self._versions:
            answer = self.call(ApiVersionsRequest(), 0)
            self._versions = {
                api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
            }
        return self._versions

    def newest(self, request: Any) -> int:
        """The highest version of this request that both sides know."""
        return min(int(request.max_version), self.versions()[int(request.API_KEY)][1])

    def send(self, request: Any, version: int) -> int:
        """Send a request and do not wait; its correlation id."""
        self._sent += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._sent, client_id="wire")
        self.socket.sendall(request.encode(header=True, framed=True))
        return self._sent

    def receive(self, request: Any) -> Any:
        """The next response, which must be the one to this request."""
        (size,) = struct.unpack(">i", self.exactly(4))
        response_class = ResponseClassRegistry.get_response_class(request.header)
        response = response_class.decode(self.exactly(size), header=True)
        assert response.header.correlation_id == request.header.correlation_id
        return response

    def call(self, request: Any, version: int | None = None) -> Any:
        self.send(request, self.newest(request) if version is None else version)
        return self.receive(request)

    def closed_by_peer(self) -> bool:
        """Whether the broker ends the connection, and sends nothing before it does."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def exactly(self, size: int) -> bytes:
        """So many bytes of what the broker sends."""
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self.socket.recv_into(view)
            if not count:
                raise ConnectionError(f"closed with {len(view)} of {size} bytes missing")
            view = view[count:]
        return bytes(data)

    # ---- topics --------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str | None] | None = None
    ) -> None:
        """Create a topic and wait until every partition has a leader that answers."""
        answer = self.call(create_topics(name, partitions=partitions, configs=configs))
        assert [one.error_code for one in answer.topics] == [Code.NONE], answer
        eventually(lambda: self._led(name, partitions), f"{name} has leaders")

    def _led(self, name: str, partitions: int) -> bool | None:
        topic = self.metadata(name)
        if topic.error_code or len(topic.partitions) != partitions:
            return None
        if any(one.error_code or one.leader_id < 0 for one in topic.partitions):
            return None
        codes = self.list_offsets(name, dict.fromkeys(range(partitions), LATEST))
        return all(answer.error_code == Code.NONE for answer in codes.values()) or None

    def metadata(self, name: str, *, create: bool = False) -> Any:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(topic_id=uuid.UUID(int=0), name=name)],
            allow_auto_topic_creation=create,
        )
        (topic,) = self.call(request).topics
        return topic

    # ---- records -------------------------------------------------------------------------

    def append(
        self, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1, version: int = 12
    ) -> Any:
        """Produce one batch; the partition's part of the answer."""
        return (
            self.call(produce_request(topic, {partition: batch}, acks=acks), version)
            .responses[0]
            .partition_responses[0]
        )

    def write(self, topic: str, records: Sequence[Record], *, partition: int = 0) -> int:
        """Append the records as one batch; its base offset."""
        answer = self.append(topic, build_batch(records), partition=partition)
        if answer.error_code:
            raise Refused(answer.error_code)
        return int(answer.base_offset)

    def fetch(self, topic: str, offset: int, *, partition: int = 0, **options: Any) -> Any:
        """Fetch from one partition; its part of the answer."""
        request = fetch_request(topic, {partition: offset}, **options)
        return self.call(request, NAMED_FETCH).responses[0].partitions[0]

    def list_offsets(self, topic: str, timestamps: Mapping[int, int]) -> dict[int, Any]:
        """ListOffsets of several partitions, each with its timestamp or special value."""
        request = list_offsets_request(topic, timestamps)
        (answer,) = self.call(request).topics
        return {one.partition_index: one for one in answer.partitions}

    def offset(self, topic: str, timestamp: int, partition: int = 0) -> int:
        answer = self.list_offsets(topic, {partition: timestamp})[partition]
        if answer.error_code:
            raise Refused(answer.error_code)
        return int(answer.offset)

    def batches(self, topic: str, partition: int = 0) -> list[Batch]:
        """Everything that is stored, batch by batch."""
        position, end = (self.offset(topic, when, partition) for when in (EARLIEST, LATEST))
        found: list[Batch] = []
        while position < end:
            answer = self.fetch(topic, position, partition=partition)
            if answer.error_code:
                raise Refused(answer.error_code)
            found += read_batches(answer.records)
            position = found[-1].last + 1
        return found

    def stored(self, topic: str, partition: int = 0) -> list[Stored]:
        """Every stored record."""
        return [record for batch in self.batches(topic, partition) for record in batch.records]


# ---- building and reading messages -----------------------------------------------------------


def produce_request(
    topic: str,
    batches: Mapping[int, bytes],
    *,
    acks: int = -1,
    topic_id: uuid.UUID | None = None,
) -> Any:
    data = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            data(
                name=topic,
                topic_id=topic_id or uuid.UUID(int=0),
                partition_data=[
                    data.PartitionProduceData(index=index, records=batch)
                    for index, batch in batches.items()
                ],
            )
        ],
    )


def fetch_request(
    topic: str,
    offsets: Mapping[int, int],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 64 * 1024 * 1024,
    partition_max_bytes: int = 16 * 1024 * 1024,
    session_id: int = 0,
    session_epoch: int = -1,
    leader_epoch: int = -1,
    topic_id: uuid.UUID | None = None,
    forgotten: Mapping[str, Sequence[int]] | None = None,
) -> Any:
    fetched = FetchRequest.FetchTopic
    partitions = [
        fetched.FetchPartition(
            partition=partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=partition_max_bytes,
        )
        for partition, offset in offsets.items()
    ]
    identity = topic_id or uuid.UUID(int=0)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[fetched(topic=topic, topic_id=identity, partitions=partitions)] if offsets else [],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(topic=name, topic_id=identity, partitions=list(indexes))
            for name, indexes in (forgotten or {}).items()
        ],
        rack_id="",
    )


def list_offsets_request(topic: str, timestamps: Mapping[int, int]) -> Any:
    listed = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            listed(
                name=topic,
                partitions=[
                    listed.ListOffsetsPartition(
                        partition_index=partition, current_leader_epoch=-1, timestamp=timestamp
                    )
                    for partition, timestamp in timestamps.items()
                ],
            )
        ],
        timeout_ms=30_000,
    )


def build_batch(
    records: Iterable[Record],
    *,
    codec: str = "none",
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """One record batch; producer is (producer id, epoch, first sequence number)."""
    builder = DefaultRecordBatchBuilder(2, CODECS.index(codec), False, *producer, 1 << 31)
    for delta, record in enumerate(records):
        timestamp = int(time.time() * 1000) if record.timestamp is None else record.timestamp
        builder.append(delta, timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def read_batches(data: bytes) -> list[Batch]:
    """The whole batches in what a Fetch returned, their checksums checked."""
    found: list[Batch] = []
    batches = MemoryRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc(), f"checksum of the batch at {batch.base_offset}"
        found.append(
            Batch(
                batch.base_offset,
                batch.last_offset,
                CODECS[batch.compression_type],
                batch.producer_id,
                [_stored(record) for record in batch],
            )
        )
    return found


def _stored(record: Any) -> Stored:
    headers = cast("list[tuple[str, bytes | None]]", record.headers)
    return Stored(record.offset, record.value, record.key, tuple(headers), record.timestamp)
