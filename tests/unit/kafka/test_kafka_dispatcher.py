"""What is refused before a handler sees it, and what is kept of a request while its answer waits."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.clients.wire import fetch_request, produce_request
from tests.unit.kafka.exchange import NOW, PEER, Exchange, Slot

from penstock.limits import REQUEST_BYTES_MAX
from penstock.record.encode import NewRecord, encode
from penstock.wire.errors import MalformedRequestError

METADATA = 3


def frame_of(request: Any, version: int) -> bytearray:
    request.API_VERSION = version
    request.with_header(correlation_id=1, client_id="unit")
    return bytearray(request.encode(header=True))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        struct.pack(">hhi", METADATA, 1, 7),
        struct.pack(">hhih", METADATA, 1, 7, -2),
        struct.pack(">hhih", METADATA, 1, 7, 1),
        struct.pack(">hhih", 999, 1, 7, -1),
        struct.pack(">hhih", METADATA, -1, 7, -1),
        struct.pack(">hhih", METADATA, 99, 7, -1),
        struct.pack(">hhih", METADATA, 12, 7, -1),
        struct.pack(">hhih", METADATA, 12, 7, -1) + b"\x01\x00\xff",
    ],
    ids=["empty", "short", "id-2", "id", "key", "negative", "version", "no-tags", "tags"],
)
def test_a_header_that_is_not_one(exchange: Exchange, frame: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        exchange.dispatcher.handle(memoryview(frame), PEER, Slot())


def test_only_produce_may_be_large(exchange: Exchange) -> None:
    topic = exchange.topic(config={"max.message.bytes": "5000000"})
    batch = bytes(encode([NewRecord(bytes(3_000_000), timestamp=NOW)]))
    frame = frame_of(produce_request(topic.name, {0: batch}), 12)
    exchange.dispatcher.handle(memoryview(frame), PEER, Slot())
    exchange.drain()
    assert topic.partition(0).durable_offset == 1
    body = struct.pack(">hhih", METADATA, 1, 7, -1) + bytes(REQUEST_BYTES_MAX)
    with pytest.raises(MalformedRequestError, match="too many"):
        exchange.dispatcher.handle(memoryview(body), PEER, Slot())


@pytest.mark.parametrize("kind", ["produce", "fetch"])
def test_a_request_that_waits_does_not_keep_its_frame(exchange: Exchange, kind: str) -> None:
    """It may be a hundred megabytes, and the budget for such frames has been given back."""
    name = exchange.topic().name
    batch = bytes(encode([NewRecord(b"v", timestamp=NOW)]))
    requests = {
        "produce": produce_request(name, {0: batch}),
        "fetch": fetch_request(name, {0: 0}, max_wait_ms=1000),
    }
    frame = frame_of(requests[kind], 12)
    slot = Slot()
    exchange.dispatcher.handle(memoryview(frame), PEER, slot)
    assert slot.data is None, "it waits"
    frame.append(0)  # raises BufferError while somebody still looks at it
