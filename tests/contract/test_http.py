"""The HTTP port: where it listens, and what it makes of clients that do not play by the rules."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.registry import Rest
from tests.support.serving import serving

from penstock.limits import HTTP_BODY_BYTES_MAX, HTTP_CONNECTIONS_MAX
from penstock.testing import RunningBroker, broker

CONFLICT, USAGE = 5, 2


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(http=True) as started:
        yield started


class Raw:
    """A connection that sends what it likes."""

    def __init__(self, running: RunningBroker) -> None:
        assert running.http is not None
        host, port = running.http.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), 10)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> tuple[int, dict[str, str], bytes]:
        """One answer: status, headers and body."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = self.socket.recv(65536)
            assert more, f"closed after {data!r}"
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            body += self.socket.recv(65536)
        return int(status.split()[1]), headers, body

    def closed(self) -> bool:
        with contextlib.suppress(ConnectionResetError):
            return self.socket.recv(1) == b""
        return True


@pytest.fixture
def raw(running: RunningBroker) -> Iterator[Raw]:
    connection = Raw(running)
    yield connection
    connection.socket.close()


GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


def test_a_connection_is_used_again(raw: Raw) -> None:
    for _ in range(3):
        raw.send(GET)
        status, headers, body = raw.receive()
        assert (status, json.loads(body)) == (200, {"status": "alive"})
        assert headers["x-content-type-options"] == "nosniff"


def test_requests_that_do_not_wait_for_answers(raw: Raw) -> None:
    raw.send(GET * 3)
    data = b""
    while data.count(b'{"status":"alive"}') < 3:
        data += raw.socket.recv(65536)
    assert data.count(b"HTTP/1.1 200") == 3


def test_a_client_that_does_not_take_its_answers(running: RunningBroker, raw: Raw) -> None:
    """It is read no further, and gets everything once it reads."""
    assert running.http is not None
    doc = "x" * 500_000
    Rest(running.http).register("large", {"type": "fixed", "name": "F", "size": 1, "doc": doc})
    asked = 40
    raw.send(b"GET /schemas/ids/1 HTTP/1.1\r\nHost: x\r\n\r\n" * asked)
    time.sleep(0.2)
    assert Rest(running.http).get("/livez").status == 200
    size, got = 0, b""
    while got.count(b"HTTP/1.1 200") < asked or size < asked * len(doc):
        more = raw.socket.recv(1 << 20)
        assert more
        size += len(more)
        # Only the heads are kept.
        got += more.replace(b"x" * 100, b"")
    raw.send(GET)
    assert raw.receive()[0] == 200


def test_a_request_in_pieces(raw: Raw) -> None:
    for byte in GET:
        raw.send(bytes([byte]))
    assert raw.receive()[0] == 200


def test_a_client_that_asks_before_it_sends_its_body(raw: Raw) -> None:
    raw.send(
        b"PUT /config HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 28\r\nExpect: 100-continue\r\n\r\n"
    )
    assert raw.receive()[0] == 100
    raw.send(b'{"compatibility":"BACKWARD"}')
    assert raw.receive()[0] == 200


def test_a_client_that_closes_its_side_is_answered(raw: Raw) -> None:
    raw.send(GET)
    raw.socket.shutdown(socket.SHUT_WR)
    assert raw.receive()[0] == 200
    assert raw.closed()


def test_http_1_0(raw: Raw) -> None:
    raw.send(b"GET /livez HTTP/1.0\r\n\r\n")
    assert raw.receive()[0] == 200
    assert raw.closed()


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",  # without a host
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET /" + b"x" * 20_000,  # without an end
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS
    ],
    ids=["nonsense", "no-host", "negative", "long", "tls"],
)
def test_what_is_not_http(raw: Raw, data: bytes) -> None:
    raw.send(data)
    assert raw.receive()[0] in (400, 431)
    assert raw.closed()


def test_a_body_that_is_too_large(raw: Raw) -> None:
    size = HTTP_BODY_BYTES_MAX + 1
    raw.send(b"PUT /config HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
    with contextlib.suppress(OSError):
        raw.send(b" " * size)
    assert raw.receive()[0] == 413


def test_connections_beyond_the_limit_are_closed(running: RunningBroker) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(HTTP_CONNECTIONS_MAX):
            stack.enter_context(Raw(running).socket)
        last = Raw(running)
        stack.enter_context(last.socket)
        with contextlib.suppress(OSError):
            last.send(GET)
        assert last.closed()
    connection = Raw(running)
    with connection.socket:
        connection.send(GET)
        assert connection.receive()[0] == 200


# -- where it listens


def test_it_says_where(tmp_path: Path) -> None:
    with serving(tmp_path, "--http", "127.0.0.1:0") as server:
        kafka, http, ready = server.lines
        assert kafka.startswith("kafka listening on 127.0.0.1:")
        assert http.startswith("http listening on 127.0.0.1:")
        assert ready == "ready"
        assert Rest(server.http).get("/readyz").status == 200
        assert server.terminate() == 0
        assert server.stderr == ""


def test_off(tmp_path: Path) -> None:
    with serving(tmp_path, "--http", "off") as server:
        assert not any("http" in line for line in server.lines)


def refused(folder: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "penstock", "serve", "--data", str(folder)]
    command += ["--kafka", "127.0.0.1:0", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_an_address_that_was_asked_for_and_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, told = refused(tmp_path, "--http", address)
    assert code == CONFLICT
    assert f"cannot listen on {address}: another program does" in told
    assert "--http" in told


def test_the_default_address_is_done_without_if_it_is_taken(tmp_path: Path) -> None:
    """Whoever has it, this test or another program: a second server cannot have it as well."""
    command = [sys.executable, "-m", "penstock", "serve", "--data", str(tmp_path / "data")]
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", 8080)))
        server = stack.enter_context(
            subprocess.Popen(
                [*command, "--kafka", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
            )
        )
        assert server.stdout is not None
        lines = [server.stdout.readline() for _ in range(3)]
        server.kill()
    assert (
        lines[1] == "http off: another program listens on 127.0.0.1:8080; choose one with --http\n"
    )
    assert lines[2] == "ready\n"


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "[::]:8080", "example.org:8080"])
def test_an_address_that_others_can_reach(tmp_path: Path, address: str) -> None:
    code, told = refused(tmp_path, "--http", address)
    assert code == USAGE
    assert f"cannot listen on {address}" in told
    assert "--insecure" in told


def test_a_port_without_a_host(tmp_path: Path) -> None:
    code, told = refused(tmp_path, "--http", "8080")
    assert (code, "write 127.0.0.1:8080" in told) == (USAGE, True)
