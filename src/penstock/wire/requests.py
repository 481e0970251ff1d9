"""The two requests that carry records, Produce (3-13) and Fetch (4-18), parsed by hand.

Every read is checked against the bytes that are left, and every array count too, before anything is
allocated for it. Flexible versions write lengths as unsigned varints plus one, and end each structure
with tagged fields.

This module is written in Cython's pure-Python mode: it runs as it is, and compiled it is several
times as fast. Compiled, `Reader` is a C structure; the annotations say how.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

import cython

from penstock.wire.primitives import MalformedRequestError

PRODUCE_FLEXIBLE_FROM = 9
PRODUCE_TOPIC_ID_FROM = 13
FETCH_FLEXIBLE_FROM = 12
FETCH_TOPIC_ID_FROM = 13

NO_SESSION = 0
FINAL_EPOCH = -1

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


class TopicKey(NamedTuple):
    """A topic as a request names it: by name, or by id in versions from 13 on."""

    name: str
    id: UUID | None


class PartitionKey(NamedTuple):
    """A partition as a request names it."""

    topic: TopicKey
    partition: int


class ProduceRequest(NamedTuple):
    """Batches by topic and partition; the batches are views of the request."""

    acks: int
    topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]]


@dataclass(slots=True)
class FetchPartition:
    """What a client wants of a partition, and what it was last told."""

    offset: int
    max_bytes: int
    leader_epoch: int
    told_high_watermark: int = -1
    told_start_offset: int = -1


class FetchRequest(NamedTuple):
    """What a client asks for."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    partitions: dict[PartitionKey, FetchPartition]
    forgotten: list[PartitionKey]


@cython.final
@cython.cclass
class Reader:
    """A position in a request's body."""

    buffer: object
    data: cython.const[cython.uchar][::1]  # type: ignore[valid-type]
    position: cython.Py_ssize_t
    end: cython.Py_ssize_t
    flexible: cython.bint

    def __init__(self, buffer: Any, position: int, flexible: bool) -> None:
        self.buffer = buffer
        self.data = buffer
        self.position = position
        self.end = len(buffer)
        self.flexible = flexible

    @cython.ccall
    def number(self, layout: object, size: cython.Py_ssize_t) -> object:
        """A signed integer of fixed size."""
        if self.end - self.position < size:
            raise MalformedRequestError("it ends in the middle of a number")
        value = layout.unpack_from(self.buffer, self.position)[0]  # type: ignore[attr-defined]
        self.position += size
        return value

    @cython.ccall
    @cython.exceptval(check=True)
    def varint(self) -> cython.Py_ssize_t:
        """An unsigned varint of at most five bytes."""
        value: cython.Py_ssize_t = 0
        part: cython.Py_ssize_t
        shift: cython.int = 0
        while True:
            if self.position >= self.end or shift > 28:
                raise MalformedRequestError("a varint does not end")
            part = self.data[self.position]
            self.position += 1
            value |= (part & 0x7F) << shift
            if part < 0x80:
                return value
            shift += 7

    @cython.ccall
    def take(self, size: cython.Py_ssize_t) -> object:
        """The next size bytes, not copied."""
        start: cython.Py_ssize_t = self.position
        if size < 0 or size > self.end - start:
            raise MalformedRequestError(f"a field of {size} bytes does not fit")
        self.position = start + size
        return self.buffer[start : start + size]  # type: ignore[index]

    @cython.ccall
    def nullable_bytes(self) -> object:
        """Bytes, or None."""
        size: cython.Py_ssize_t
        size = self.varint() - 1 if self.flexible else self.number(_INT32, 4)
        return None if size == -1 else self.take(size)

    @cython.ccall
    def nullable_string(self) -> object:
        """Text, or None."""
        size: cython.Py_ssize_t
        size = self.varint() - 1 if self.flexible else self.number(_INT16, 2)
        if size == -1:
            return None
        try:
            return str(self.take(size), "utf-8")  # type: ignore[call-overload]
        except UnicodeDecodeError:
            raise MalformedRequestError("text that is not UTF-8") from None

    @cython.ccall
    def topic(self, by_id: cython.bint) -> object:
        """How a topic is named."""
        if by_id:
            return TopicKey("", UUID(bytes=bytes(self.take(16))))  # type: ignore[call-overload]
        name = self.nullable_string()
        if name is None:
            raise MalformedRequestError("null where a topic's name must be")
        return TopicKey(name, None)  # type: ignore[arg-type]

    @cython.ccall
    @cython.exceptval(check=True)
    def count(self) -> cython.Py_ssize_t:
        """The length of an array; null counts as empty. Every element takes a byte at least."""
        count: cython.Py_ssize_t
        count = self.varint() - 1 if self.flexible else self.number(_INT32, 4)
        if count > self.end - self.position:
            raise MalformedRequestError(f"an array of {count} elements does not fit")
        return max(count, 0)

    @cython.ccall
    def skip_tags(self) -> object:
        """Pass over the tagged fields at the end of a structure, if there can be any."""
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self.take(self.varint())
        return None


def skip_header_tags(frame: memoryview, position: int) -> int:
    """The position after the tagged fields that end a flexible request's header."""
    reader: Reader = Reader(frame, position, True)
    reader.skip_tags()
    return reader.position  # type: ignore[no-any-return]


def parse_produce(body: memoryview, version: int) -> ProduceRequest:
    """Read a Produce request.

    Transactional id (nullable string), int16 acks, int32 timeout, topics [name or id; partitions
    [int32 number, records (nullable bytes)]].
    """
    reader: Reader = Reader(body, 0, version >= PRODUCE_FLEXIBLE_FROM)
    by_id: cython.bint = version >= PRODUCE_TOPIC_ID_FROM
    reader.nullable_string()  # transactional id: batches that need it are refused one by one
    acks = reader.number(_INT16, 2)
    reader.number(_INT32, 4)  # timeout: a commit round takes milliseconds or fails
    topics: list[Any] = []
    for _ in range(reader.count()):
        key = reader.topic(by_id)
        partitions: list[Any] = []
        for _ in range(reader.count()):
            number = reader.number(_INT32, 4)
            partitions.append((number, reader.nullable_bytes()))
            reader.skip_tags()
        reader.skip_tags()
        topics.append((key, partitions))
    return ProduceRequest(acks, topics)  # type: ignore[arg-type]


def parse_fetch(body: memoryview, version: int) -> FetchRequest:
    """Read a Fetch request.

    Int32 replica id (until v14), int32 max wait, int32 min bytes, int32 max bytes, int8 isolation,
    from v7 int32 session id and int32 session epoch, topics [name or id; partitions], from v7
    forgotten topics [name or id, [int32 number]], from v11 rack id (not read).
    """
    reader: Reader = Reader(body, 0, version >= FETCH_FLEXIBLE_FROM)
    by_id: cython.bint = version >= FETCH_TOPIC_ID_FROM
    if version <= 14:
        reader.number(_INT32, 4)
    limits = (reader.number(_INT32, 4), reader.number(_INT32, 4), reader.number(_INT32, 4))
    reader.number(_INT8, 1)  # isolation: without transactions both levels read to the same end
    session_id: Any = NO_SESSION
    session_epoch: Any = FINAL_EPOCH
    if version >= 7:
        session_id, session_epoch = reader.number(_INT32, 4), reader.number(_INT32, 4)
    partitions: dict[Any, Any] = {}
    for _ in range(reader.count()):
        key = reader.topic(by_id)
        for _ in range(reader.count()):
            number = reader.number(_INT32, 4)
            partitions[PartitionKey(key, number)] = _fetch_partition(reader, version)  # type: ignore[arg-type]
        reader.skip_tags()
    forgotten: list[Any] = []
    if version >= 7:
        for _ in range(reader.count()):
            key = reader.topic(by_id)
            for _ in range(reader.count()):
                forgotten.append(PartitionKey(key, reader.number(_INT32, 4)))  # type: ignore[arg-type]
            reader.skip_tags()
    return FetchRequest(*limits, session_id, session_epoch, partitions, forgotten)  # type: ignore[arg-type]


def _fetch_partition(reader: Reader, version: int) -> FetchPartition:
    """Leader epoch (v9), int64 offset, last fetched epoch (v12), int64 start (v5), max bytes."""
    leader_epoch = reader.number(_INT32, 4) if version >= 9 else -1
    offset = reader.number(_INT64, 8)
    if version >= 12:
        reader.number(_INT32, 4)  # last fetched epoch: one leader never diverges
    if version >= 5:
        reader.number(_INT64, 8)  # a follower's start offset
    max_bytes = reader.number(_INT32, 4)
    reader.skip_tags()
    return FetchPartition(offset, max_bytes, leader_epoch)  # type: ignore[arg-type]
