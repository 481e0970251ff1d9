"""Hostile and broken clients: each gets an error or a close, and everybody else goes on.

A real broker, and in every test a neighbour who writes and reads before, during and after.
"""

from __future__ import annotations

import gc
import logging
import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from tests.clients.contract import Code, Record, eventually
from tests.clients.wire import LATEST, Wire, build_batch, fetch_request, produce_request

from penstock.limits import (
    FETCH_SESSION_PARTITIONS_MAX,
    FRAME_BYTES_MAX,
    KIB,
    MIB,
    REQUEST_BYTES_MAX,
)
from penstock.server.memory import FrameMemory
from penstock.testing import RunningBroker, broker

NAMED = 12
NEIGHBOUR_SECONDS_MAX = 5.0


class Neighbour:
    """Somebody who does nothing wrong: writes a record, reads it back, and starts over."""

    def __init__(self, bootstrap: str) -> None:
        self._wire = Wire(bootstrap, timeout=NEIGHBOUR_SECONDS_MAX)
        self._wire.create_topic("neighbour")
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self.rounds = 0
        self._thread = threading.Thread(target=self._live, name="neighbour")
        self._thread.start()

    def _live(self) -> None:
        try:
            while not self._stop.is_set():
                self._round()
        except BaseException as error:
            self._error = error

    def _round(self) -> None:
        value = b"record %d" % self.rounds
        offset = self._wire.write("neighbour", [Record(value)])
        assert offset == self.rounds
        found = self._wire.fetch("neighbour", offset)
        assert found.error_code == Code.NONE
        assert value in bytes(found.records)
        self.rounds += 1
        time.sleep(0.002)

    def must_go_on(self, rounds: int = 5) -> None:
        """Wait until some more rounds are done."""
        goal = self.rounds + rounds

        def reached() -> bool | None:
            if self._error is not None:
                raise AssertionError("the neighbour is disturbed") from self._error
            return self.rounds >= goal or None

        eventually(reached, "the neighbour goes on", NEIGHBOUR_SECONDS_MAX)

    def leave(self) -> None:
        self._stop.set()
        self._thread.join()
        self._wire.socket.close()


@contextmanager
def neighbourhood() -> Iterator[tuple[RunningBroker, Neighbour]]:
    """A broker with somebody else on it, who must not be disturbed."""
    with broker() as running:
        neighbour = Neighbour(running.bootstrap)
        try:
            neighbour.must_go_on()
            yield running, neighbour
            neighbour.must_go_on()
        finally:
            neighbour.leave()


@pytest.fixture
def running(caplog: pytest.LogCaptureFixture) -> Iterator[RunningBroker]:
    caplog.set_level(logging.INFO, "penstock")
    with neighbourhood() as (running, _):
        yield running
    assert "unexpectedly" not in caplog.text


@pytest.fixture
def wire(running: RunningBroker) -> Iterator[Wire]:
    with Wire(running.bootstrap, timeout=10) as wire:
        yield wire


def connect(running: RunningBroker) -> socket.socket:
    host, _, port = running.bootstrap.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the broker ends the connection, and sends nothing before it does."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def frame_of(request: Any, version: int) -> bytes:
    """A request as it would be sent."""
    request.API_VERSION = version
    request.with_header(correlation_id=1, client_id="wire")
    return bytes(request.encode(header=True, framed=True))


def header(key: int, version: int) -> bytes:
    return struct.pack(">hhih4s", key, version, 7, 4, b"wire")


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def memory_mib() -> int:
    """Memory of this process, in which the broker runs."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // MIB


# ---- what takes long --------------------------------------------------------------------------


def many_names(count: int) -> Any:
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=[topic(name=f"topic-{number}") for number in range(count)],
        allow_auto_topic_creation=False,
    )


def test_others_are_answered_while_a_large_request_is_handled(
    running: RunningBroker, wire: Wire
) -> None:
    request = many_names(100_000)
    wire.send(request, 8)
    with Wire(running.bootstrap, timeout=10) as other:
        for _ in range(5):
            other.call(ApiVersionsRequest(), 0)
    before, _, _ = select.select([wire.socket], [], [], 0)
    assert not before, "the large one was answered first"
    wire.socket.settimeout(60)
    assert len(wire.receive(request).topics) == 100_000


def test_what_comes_behind_a_large_request_is_answered_after_it(wire: Wire) -> None:
    large, small = many_names(20_000), ApiVersionsRequest()
    wire.send(large, 8)
    wire.send(small, 0)
    wire.socket.settimeout(60)
    assert len(wire.receive(large).topics) == 20_000
    assert wire.receive(small).api_keys


def test_who_asks_for_much_and_goes_disturbs_nobody(running: RunningBroker) -> None:
    for _ in range(20):
        with Wire(running.bootstrap) as wire:
            wire.send(many_names(5_000), 8)
    with Wire(running.bootstrap, timeout=60) as wire:
        assert len(wire.call(many_names(5_000), 8).topics) == 5_000


# ---- what is no frame, and what is no request ------------------------------------------------


@pytest.mark.parametrize("size", [2**31 - 1, -1, -(2**31), 0, 7, FRAME_BYTES_MAX + 1])
def test_a_first_frame_that_cannot_be(running: RunningBroker, size: int) -> None:
    with connect(running) as connection:
        connection.sendall(struct.pack(">i", size) + bytes(min(max(size, 0), 100)))
        assert is_closed(connection)


def test_records_may_come_first(running: RunningBroker, wire: Wire) -> None:
    """Clients that know the version ask nothing before they produce, such as kafka-python 2.0."""
    wire.create_topic("t")
    with Wire(running.bootstrap) as newcomer:
        assert newcomer.write("t", [Record(bytes(900_000))]) == 0


@pytest.mark.parametrize("size", [2**31 - 1, -1, FRAME_BYTES_MAX + 1])
def test_a_later_frame_that_cannot_be(wire: Wire, size: int) -> None:
    wire.versions()
    wire.socket.sendall(struct.pack(">i", size))
    assert is_closed(wire.socket)


@pytest.mark.parametrize(
    ("first", "stranger"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "an HTTP request"),
        (b"POST /topics/x HTTP/1.1\r\n\r\n{}", "an HTTP request"),
        (bytes.fromhex("16030100c8010000c40303") + bytes(193), "a TLS handshake"),
        (b"AMQP\x00\x00\x09\x01", "an AMQP client"),
    ],
)
def test_a_stranger_is_named(
    running: RunningBroker, caplog: pytest.LogCaptureFixture, first: bytes, stranger: str
) -> None:
    with connect(running) as connection:
        connection.sendall(first)
        assert is_closed(connection)
        peer = "{}:{}".format(*connection.getsockname())
    assert f"{peer} closed: receive frame: this looks like {stranger}" in caplog.text


@pytest.mark.parametrize(
    "body",
    [
        header(999, 0),
        header(-1, 0),
        header(3, 99) + struct.pack(">i", -1),
        header(0, 2) + bytes(20),
        header(3, 12) + b"\xff" * 60_000,
        header(3, 4) + struct.pack(">i", 2**31 - 1),
        header(1, 12) + b"\x00" + b"\xff" * 50,
        struct.pack(">hhih", 3, 1, 7, 32_000),
    ],
    ids=["key", "negative", "version", "old", "varint", "array", "fetch", "client-id"],
)
def test_what_is_no_request_ends_the_connection(running: RunningBroker, body: bytes) -> None:
    with connect(running) as connection:
        connection.sendall(framed(body))
        assert is_closed(connection)


def test_only_produce_may_be_large(wire: Wire) -> None:
    """A request of this size that is read item by item would keep everybody waiting."""
    wire.versions()
    body = header(3, 4) + struct.pack(">i", 2**20) + b"\x00\x01x" * 2**20
    assert len(body) > REQUEST_BYTES_MAX
    wire.socket.sendall(framed(body))
    assert is_closed(wire.socket)


@pytest.mark.parametrize("version", [5, 99, 32_767])
def test_api_versions_of_the_future_is_told_those_of_today(wire: Wire, version: int) -> None:
    """KIP-511: in the form of version 0, with nothing else, so that the client asks again."""
    wire.socket.sendall(framed(header(18, version) + b"\x00\x05wire\x041.0\x00"))
    (size,) = struct.unpack(">i", wire.exactly(4))
    answer = wire.exactly(size)
    correlation, code, count = struct.unpack(">ihi", answer[:10])
    assert (correlation, code, size) == (7, Code.UNSUPPORTED_VERSION, 10 + 6 * count)
    listed = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10:])}
    assert listed == {18: wire.versions()[18]}


def test_produce_without_acks_that_fails_ends_the_connection(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    wire.create_topic("t")
    wire.send(produce_request("t", {0: build_batch([Record(b"kept")])}, acks=0), NAMED)
    eventually(lambda: wire.offset("t", LATEST) or None, "the record is durable")
    wire.send(produce_request("absent", {0: build_batch([Record(b"lost")])}, acks=0), NAMED)
    assert is_closed(wire.socket)
    assert "produce with acks=0 failed: it does not exist" in caplog.text


# ---- those who go away ----------------------------------------------------------------------


@pytest.mark.parametrize("rude", [False, True], ids=["closed", "reset"])
def test_a_produce_request_cut_at_every_byte_writes_nothing(wire: Wire, rude: bool) -> None:
    wire.create_topic("t")
    batch = build_batch([Record(b"value", b"key", (("header", b"x"),))])
    frame = frame_of(produce_request("t", {0: batch}), NAMED)
    hello = frame_of(ApiVersionsRequest(), 0)
    host, _, port = wire.address.rpartition(":")
    for cut in range(len(frame)):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(hello + frame[:cut])
            if rude:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert wire.offset("t", LATEST) == 0
    assert wire.write("t", [Record(b"first")]) == 0


def test_those_who_leave_before_they_are_greeted(running: RunningBroker) -> None:
    """Port scanners connect and reset at once; the address of such a peer is not known any more."""
    for _ in range(200):
        with connect(running) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_those_who_leave_while_their_fetch_waits(running: RunningBroker, wire: Wire) -> None:
    wire.create_topic("t")
    for _ in range(20):
        with Wire(running.bootstrap) as other:
            for _ in range(50):
                other.send(fetch_request("t", {0: 0}, max_wait_ms=60_000), NAMED)
    assert wire.write("t", [Record(b"wakes them all")]) == 0


# ---- the slow ------------------------------------------------------------------------------


def test_one_byte_at_a_time_is_slow_and_right(wire: Wire) -> None:
    wire.create_topic("t")
    request = produce_request("t", {0: build_batch([Record(b"patience")])})
    for byte in frame_of(request, NAMED):
        wire.socket.sendall(bytes([byte]))
    (size,) = struct.unpack(">i", wire.exactly(4))
    wire.exactly(size)
    assert wire.offset("t", LATEST) == 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes half a minute otherwise takes less than half a second."""
    monkeypatch.setattr("penstock.server.app._STALL_LOOK_SECONDS", 0.02)
    monkeypatch.setattr("penstock.server.connection.FRAME_SECONDS_MAX", 0.3)


@pytest.mark.parametrize("sent", [b"\x00", b"\x00\x00\x00\x20", b"\x00\x00\x00\x20half of it"])
def test_a_stalled_frame_ends_the_connection(
    impatient: None, running: RunningBroker, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    with connect(running) as stalled, connect(running) as silent:
        stalled.sendall(sent)
        assert is_closed(stalled)
        # One that has not begun a frame owes nothing.
        silent.settimeout(0.1)
        with pytest.raises(TimeoutError):
            silent.recv(1)
    assert "stalled in the middle of a frame" in caplog.text


def test_a_frame_that_never_ends_ends_the_connection(
    impatient: None, running: RunningBroker
) -> None:
    """A byte now and then is not progress; otherwise it would hold its place for days."""
    with connect(running) as slow:
        slow.sendall(struct.pack(">i", 1000))
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() - began < 5:
                slow.sendall(b"x")
                time.sleep(0.02)
        assert time.monotonic() - began < 3


def test_a_half_open_connection_ends(
    impatient: None, monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    monkeypatch.setattr("penstock.server.connection.IDLE_SECONDS_MAX", 0.3)
    with connect(running) as idle:
        idle.sendall(framed(header(18, 0)))
        (size,) = struct.unpack(">i", idle.recv(4))
        while size:
            size -= len(idle.recv(size))
        assert is_closed(idle)


# ---- the greedy ----------------------------------------------------------------------------


@pytest.fixture
def wide(wire: Wire) -> list[int]:
    """A topic with much in memory for one answer: many partitions with a small batch in each."""
    wire.create_topic("wide", 60)
    batch = build_batch([Record(b"x" * 14_000)])
    wire.call(produce_request("wide", dict.fromkeys(range(60), batch)), NAMED)
    return list(range(60))


def test_a_reader_that_never_reads_costs_little(
    running: RunningBroker, wire: Wire, wide: list[int]
) -> None:
    """Thousands of fetches are pipelined, each of which is answered with a megabyte."""
    before = memory_mib()
    with Wire(running.bootstrap, receive_buffer=4096) as deaf:
        request = fetch_request("wide", dict.fromkeys(wide, 0), min_bytes=0, max_wait_ms=0)
        pump(deaf.socket, frame_of(request, NAMED) * 3000)
        wire.offset("wide", LATEST)
        assert memory_mib() - before < 40


def test_answers_behind_a_slow_one_cost_little(
    running: RunningBroker, wire: Wire, wide: list[int]
) -> None:
    """The first fetch waits for a minute; those behind it have their data, and must wait with it."""
    wire.create_topic("empty")
    before = memory_mib()
    with Wire(running.bootstrap) as greedy:
        greedy.send(fetch_request("empty", {0: 0}, max_wait_ms=60_000), NAMED)
        request = fetch_request("wide", dict.fromkeys(wide, 0), min_bytes=0, max_wait_ms=0)
        pump(greedy.socket, frame_of(request, NAMED) * 3000)
        wire.offset("wide", LATEST)
        assert memory_mib() - before < 40


def pump(connection: socket.socket, data: bytes) -> None:
    """Send until the broker takes no more for a while."""
    connection.settimeout(0.5)
    try:
        connection.sendall(data)
    except TimeoutError:
        return


def test_many_large_frames_at_once_share_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thirty clients send eight megabytes each, and the broker has room for three of them."""
    monkeypatch.setattr("penstock.server.connection.FrameMemory", lambda: FrameMemory(24 * MIB))
    with neighbourhood() as (running, neighbour), Wire(running.bootstrap) as wire:
        wire.create_topic("large", configs={"max.message.bytes": str(10 * MIB)})
        body = build_batch([Record(bytes(8 * MIB))])
        frame = frame_of(produce_request("large", {0: body}), NAMED)
        before = memory_mib()
        peak = 0
        with ExitStack() as stack:
            clients = [stack.enter_context(Wire(running.bootstrap)) for _ in range(30)]
            for client in clients:
                client.versions()
                # Everybody has announced a frame, and most cannot have their share.
                client.socket.sendall(frame[: 64 * KIB])
            neighbour.must_go_on()
            peak = max(peak, memory_mib())
            rest = memoryview(frame)[64 * KIB :]
            senders = [in_thread(partial(client.socket.sendall, rest)) for client in clients]
            for client in clients:
                (size,) = struct.unpack(">i", client.exactly(4))
                client.exactly(size)
                peak = max(peak, memory_mib())
            for sender in senders:
                sender.join()
        assert wire.offset("large", LATEST) == 30
        assert peak - before < 100


def test_a_fetch_session_does_not_grow_without_end(wire: Wire) -> None:
    """A fetch of a few bytes looks at every partition of its session, and all others wait for it."""
    step = FETCH_SESSION_PARTITIONS_MAX // 4
    opening = fetch_request("none", {0: 0}, session_epoch=0, max_wait_ms=0)
    session = {"session_id": wire.call(opening, NAMED).session_id, "max_wait_ms": 0}
    sizes = []
    for epoch in range(1, 6):
        made_up = dict.fromkeys(range(epoch * step, (epoch + 1) * step), 0)
        answer = wire.call(fetch_request("none", made_up, session_epoch=epoch, **session), NAMED)
        if answer.error_code != Code.NONE:
            break
        sizes.append(len(answer.responses[0].partitions))
    assert answer.error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert sizes == [1 + step, 1 + 2 * step, 1 + 3 * step]


def in_thread(job: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=job)
    thread.start()
    return thread


def test_announced_frames_cost_nothing_until_they_come(running: RunningBroker, wire: Wire) -> None:
    before = memory_mib()
    with ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(Wire(running.bootstrap))
            client.versions()
            client.socket.sendall(struct.pack(">i", FRAME_BYTES_MAX) + b"x")
        wire.versions()
        time.sleep(0.05)
        assert memory_mib() - before < 60


def test_those_who_sent_much_and_are_silent_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.app.RECEIVE_BUFFER_LOOK_SECONDS", 0.1)
    with neighbourhood() as (running, _), ExitStack() as stack:
        clients = [stack.enter_context(Wire(running.bootstrap)) for _ in range(50)]
        before = memory_mib()
        request = produce_request("absent", {0: bytes(2 * MIB - KIB)})
        for client in clients:
            client.versions()
            client.call(request, NAMED)
        eventually(lambda: memory_mib() - before < 30 or None, "100 MiB are given back", 5)


def test_more_connections_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.server.app.CONNECTIONS_MAX", 10)
    with neighbourhood() as (running, _), ExitStack() as stack:
        connections = [stack.enter_context(connect(running)) for _ in range(30)]
        for connection in connections:
            connection.settimeout(0.2)
        refused = [c for c in connections if tells_the_end(c)]
        assert len(refused) == 30 - 9, "the neighbour is the tenth"
        assert caplog.text.count("too many connections") == len(refused)
        for connection in connections:
            connection.close()

        def welcome() -> bool | None:
            with connect(running) as newcomer:
                newcomer.sendall(framed(header(18, 0)))
                return not is_closed(newcomer) or None

        eventually(welcome, "there is room again", 5)


def tells_the_end(connection: socket.socket) -> bool:
    try:
        return is_closed(connection)
    except TimeoutError:
        return False


def test_a_thousand_connections_come_and_go(running: RunningBroker, wire: Wire) -> None:
    for _ in range(10):
        with ExitStack() as stack:
            for _ in range(100):
                connection = stack.enter_context(connect(running))
                connection.sendall(framed(header(18, 0))[:10])
    assert wire.versions()
