"""The requests that come most often, Produce (3-13), Fetch (4-18) and OffsetCommit (2-10), by hand.

Every read is checked against the bytes that are left, and every array count too, before anything is
allocated for it. Flexible versions write lengths as unsigned varints plus one, and end each structure
with tagged fields.

This module may run compiled (setup.py), with the C types that stand in requests.pxd; it is plain Python
either way.
"""

from __future__ import annotations

from struct import Struct
from uuid import UUID

import cython

from penstock.limits import TOPIC_KEYS_KEPT, TOPIC_NAME_CHARS_MAX
from penstock.wire.errors import MalformedRequestError

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.penstock.bigendian import load_int16, load_int32, load_int64
    from cython.cimports.penstock.buffers import bytes_of

PRODUCE_FLEXIBLE_FROM = 9
PRODUCE_TOPIC_ID_FROM = 13
FETCH_FLEXIBLE_FROM = 12
FETCH_TOPIC_ID_FROM = 13
OFFSET_COMMIT_FLEXIBLE_FROM = 8
OFFSET_COMMIT_TOPIC_ID_FROM = 10

NO_SESSION = 0
FINAL_EPOCH = -1
_READ_COMMITTED = 1

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


class TopicKey:
    """A topic as a request names it: by name, or by id in versions from 13 on."""

    def __init__(self, name: str, topic_id: UUID | None) -> None:
        self.name = name
        self.id = topic_id
        self.hash = hash((name, topic_id))

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, TopicKey) and self.name == other.name and self.id == other.id
        )


class PartitionKey:
    """A partition as a request names it."""

    def __init__(self, topic: TopicKey, partition: int) -> None:
        self.topic = topic
        self.partition = partition

    def __hash__(self) -> int:
        return self.topic.hash ^ self.partition

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PartitionKey)
            and self.partition == other.partition
            and self.topic == other.topic
        )


class ProduceRequest:
    """Batches by topic and partition; the batches are views of the request."""

    def __init__(self, acks: int) -> None:
        self.acks = acks
        self.topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]] = []


class FetchPartition:
    """What a client wants of a partition, and what it was last told."""

    def __init__(self, offset: int, max_bytes: int, leader_epoch: int) -> None:
        self.offset = offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.told_high_watermark = -1
        self.told_start_offset = -1


class FetchRequest:
    """What a client asks for."""

    def __init__(self, max_wait_ms: int, min_bytes: int, max_bytes: int) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.committed_only = False
        self.session_id = NO_SESSION
        self.session_epoch = FINAL_EPOCH
        self.partitions: dict[PartitionKey, FetchPartition] = {}
        self.forgotten: list[PartitionKey] = []


class OffsetCommit:
    """A position in a partition."""

    def __init__(self, number: int, offset: int, leader_epoch: int, metadata: str | None) -> None:
        self.number = number
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata


class OffsetCommitRequest:
    """Positions by topic, and for which group, by which of its members."""

    def __init__(self, group: str, generation: int, member: str) -> None:
        self.group = group
        self.generation = generation
        self.member = member
        self.instance: str | None = None
        self.topics: list[tuple[TopicKey, list[OffsetCommit]]] = []


# How topics were named lately, by the bytes of the name or id: nearly every request names one of few.
_topics_by_name: dict[bytes, TopicKey] = {}
_topics_by_id: dict[bytes, TopicKey] = {}


def _topic_key(data: bytes, by_id: bool) -> TopicKey:
    known = _topics_by_id if by_id else _topics_by_name
    if len(known) >= TOPIC_KEYS_KEPT:
        known.clear()
    try:
        key = TopicKey("", UUID(bytes=data)) if by_id else TopicKey(data.decode(), None)
    except UnicodeDecodeError:
        raise MalformedRequestError("text that is not UTF-8") from None
    if len(data) <= TOPIC_NAME_CHARS_MAX:  # a longer name is no topic's, and may be of any size
        known[data] = key
    return key


class _Reader:
    """A position in a request."""

    def __init__(self, buffer: memoryview, position: int, flexible: bool) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer)
        if cython.compiled:
            # An address and no more: every read below checks that what it reads is there.
            self.data = bytes_of(buffer, cython.address(self.end))
        else:
            self.data = buffer
        self.flexible = flexible

    def need(self, size: int) -> bool:
        """Check that so many bytes are left."""
        if self.end - self.position < size:
            raise MalformedRequestError("it ends in the middle of a number")
        return True

    def int8(self) -> int:
        """A signed byte."""
        self.need(1)
        value = self.data[self.position]
        self.position += 1
        return value - 256 if value > 127 else value

    def int16(self) -> int:
        """A signed integer of two bytes."""
        self.need(2)
        self.position += 2
        if cython.compiled:
            return load_int16(cython.address(self.data[self.position - 2]))
        return int(_INT16.unpack_from(self.buffer, self.position - 2)[0])

    def int32(self) -> int:
        """A signed integer of four bytes."""
        self.need(4)
        self.position += 4
        if cython.compiled:
            return load_int32(cython.address(self.data[self.position - 4]))
        return int(_INT32.unpack_from(self.buffer, self.position - 4)[0])

    def int64(self) -> int:
        """A signed integer of eight bytes."""
        self.need(8)
        self.position += 8
        if cython.compiled:
            return load_int64(cython.address(self.data[self.position - 8]))
        return int(_INT64.unpack_from(self.buffer, self.position - 8)[0])

    def varint(self) -> int:
        """An unsigned varint of at most five bytes."""
        value = 0
        shift = 0
        while True:
            if self.position >= self.end or shift > 28:
                raise MalformedRequestError("a varint does not end")
            part = self.data[self.position]
            self.position += 1
            value |= (part & 0x7F) << shift
            if part < 0x80:
                return value
            shift += 7

    def skip(self, size: int) -> int:
        """Pass over size bytes; returns where they begin."""
        start = self.position
        if size < 0 or size > self.end - start:
            raise MalformedRequestError(f"a field of {size} bytes does not fit")
        self.position = start + size
        return start

    def take(self, size: int) -> memoryview:
        """The next size bytes, not copied."""
        start = self.skip(size)
        return self.buffer[start : start + size]

    def copy(self, size: int) -> bytes:
        """The next size bytes."""
        start = self.skip(size)
        if cython.compiled:
            if size == 0:
                return b""
            first = cython.cast(cython.p_char, cython.address(self.data[start]))
            return PyBytes_FromStringAndSize(first, size)
        return bytes(self.buffer[start : start + size])

    def nullable_bytes(self) -> memoryview | None:
        """Bytes, or None."""
        size = self.varint() - 1 if self.flexible else self.int32()
        return None if size == -1 else self.take(size)

    def string_bytes(self) -> int:
        """The length of a text in bytes, or -1 for null."""
        return self.varint() - 1 if self.flexible else self.int16()

    def nullable_string(self) -> str | None:
        """A text, or None."""
        size = self.string_bytes()
        if size == -1:
            return None
        try:
            return self.copy(size).decode()
        except UnicodeDecodeError:
            raise MalformedRequestError("text that is not UTF-8") from None

    def string(self) -> str:
        """A text."""
        text = self.nullable_string()
        if text is None:
            raise MalformedRequestError("null where a text must be")
        return text

    def topic(self, by_id: bool) -> TopicKey:
        """How a topic is named."""
        size = 16 if by_id else self.string_bytes()
        if size == -1:
            raise MalformedRequestError("null where a topic's name must be")
        raw = self.copy(size)
        return (_topics_by_id if by_id else _topics_by_name).get(raw) or _topic_key(raw, by_id)

    def count(self) -> int:
        """The length of an array; null counts as empty. Every element takes a byte at least."""
        count = self.varint() - 1 if self.flexible else self.int32()
        if count > self.end - self.position:
            raise MalformedRequestError(f"an array of {count} elements does not fit")
        return max(count, 0)

    def skip_tags(self) -> None:
        """Pass over the tagged fields at the end of a structure, if there can be any."""
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self.skip(self.varint())


def skip_header_tags(frame: memoryview, position: int) -> int:
    """The position after the tagged fields that end a flexible request's header."""
    reader = _Reader(frame, position, True)
    reader.skip_tags()
    return reader.position


def parse_produce(frame: memoryview, version: int, position: int = 0) -> ProduceRequest:
    """Read a Produce request whose body begins at position.

    Transactional id (nullable string), int16 acks, int32 timeout, topics [name or id; partitions
    [int32 number, records (nullable bytes)]].
    """
    reader = _Reader(frame, position, version >= PRODUCE_FLEXIBLE_FROM)
    by_id = version >= PRODUCE_TOPIC_ID_FROM
    # A transactional id is passed over: batches name their producer, and that has one transaction.
    reader.skip(max(reader.string_bytes(), 0))
    request = ProduceRequest(reader.int16())
    reader.int32()  # timeout: a commit round takes milliseconds or fails
    for _ in range(reader.count()):
        key = reader.topic(by_id)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(reader.count()):
            number = reader.int32()
            partitions.append((number, reader.nullable_bytes()))
            reader.skip_tags()
        reader.skip_tags()
        request.topics.append((key, partitions))
    return request


def parse_fetch(frame: memoryview, version: int, position: int = 0) -> FetchRequest:
    """Read a Fetch request whose body begins at position.

    Int32 replica id (until v14), int32 max wait, int32 min bytes, int32 max bytes, int8 isolation,
    from v7 int32 session id and int32 session epoch, topics [name or id; partitions], from v7
    forgotten topics [name or id, [int32 number]], from v11 rack id (not read).
    """
    reader = _Reader(frame, position, version >= FETCH_FLEXIBLE_FROM)
    by_id = version >= FETCH_TOPIC_ID_FROM
    if version <= 14:
        reader.int32()
    request = FetchRequest(reader.int32(), reader.int32(), reader.int32())
    request.committed_only = reader.int8() == _READ_COMMITTED
    if version >= 7:
        request.session_id = reader.int32()
        request.session_epoch = reader.int32()
    for _ in range(reader.count()):
        key = reader.topic(by_id)
        for _ in range(reader.count()):
            number = reader.int32()
            request.partitions[PartitionKey(key, number)] = _fetch_partition(reader, version)
        reader.skip_tags()
    if version >= 7:
        for _ in range(reader.count()):
            key = reader.topic(by_id)
            for _ in range(reader.count()):
                request.forgotten.append(PartitionKey(key, reader.int32()))
            reader.skip_tags()
    return request


def _fetch_partition(reader: _Reader, version: int) -> FetchPartition:
    """Leader epoch (v9), int64 offset, last fetched epoch (v12), int64 start (v5), max bytes."""
    leader_epoch = reader.int32() if version >= 9 else -1
    offset = reader.int64()
    if version >= 12:
        reader.int32()  # last fetched epoch: one leader never diverges
    if version >= 5:
        reader.int64()  # a follower's start offset
    max_bytes = reader.int32()
    reader.skip_tags()
    return FetchPartition(offset, max_bytes, leader_epoch)


def parse_offset_commit(frame: memoryview, version: int, position: int = 0) -> OffsetCommitRequest:
    """Read an OffsetCommit request whose body begins at position.

    Group, int32 generation, member, from v7 instance (nullable string), until v4 int64 retention, topics
    [name or id; partitions [int32 number, int64 offset, from v6 int32 leader epoch, metadata (nullable
    string)]].
    """
    reader = _Reader(frame, position, version >= OFFSET_COMMIT_FLEXIBLE_FROM)
    by_id = version >= OFFSET_COMMIT_TOPIC_ID_FROM
    group = reader.string()
    generation = reader.int32()
    request = OffsetCommitRequest(group, generation, reader.string())
    if version >= 7:
        request.instance = reader.nullable_string()
    if version <= 4:
        reader.int64()  # how long to keep it: the broker decides, as Kafka does
    for _ in range(reader.count()):
        key = reader.topic(by_id)
        commits: list[OffsetCommit] = []
        for _ in range(reader.count()):
            number = reader.int32()
            offset = reader.int64()
            leader_epoch = reader.int32() if version >= 6 else -1
            commits.append(OffsetCommit(number, offset, leader_epoch, reader.nullable_string()))
            reader.skip_tags()
        reader.skip_tags()
        request.topics.append((key, commits))
    reader.skip_tags()
    return request
