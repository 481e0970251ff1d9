"""Offset commits at a steady rate from ever more groups, as frames on plain connections.

A thousand librdkafka consumers would be a measure of librdkafka. The broker sees what it would see of
them: OffsetCommit requests of many groups, on several connections, without waiting for answers.
"""

from __future__ import annotations

import selectors
import socket
import time
from struct import Struct, pack

from benchmarks.workload import STALL_LIMIT, Numbers, WorkloadError, main, percentile

_LENGTH = Struct(">i")
_CONNECTIONS = 8
_PARTITIONS_EACH = 4
_STEP_SECONDS = 0.01
_OFFSET_COMMIT, _VERSION = 8, 2
# An answer in that version: correlation id, one topic with its name, partitions with error codes.
_ERROR_BYTES = 6


def _text(value: str) -> bytes:
    return pack(">h", len(value)) + value.encode()


def _request(correlation: int, group: str, topic: str, first: int, offset: int) -> bytes:
    """A commit of a consumer that is nobody's member, for a few partitions."""
    partitions = b"".join(
        pack(">iqh", first + number, offset, -1) for number in range(_PARTITIONS_EACH)
    )
    body = (
        pack(">hhi", _OFFSET_COMMIT, _VERSION, correlation)
        + _text("benchmark")
        + _text(group)
        + pack(">i", -1)
        + _text("")
        + pack(">qi", -1, 1)
        + _text(topic)
        + pack(">i", _PARTITIONS_EACH)
        + partitions
    )
    return _LENGTH.pack(len(body)) + body


class _Connection:
    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent: dict[int, float] = {}
        self._received = b""

    def send(self, frames: list[tuple[int, bytes]]) -> None:
        now = time.perf_counter()
        self.sent.update((correlation, now) for correlation, _ in frames)
        self.socket.sendall(b"".join(frame for _, frame in frames))

    def receive(self) -> list[float]:
        """The delays of the answers that are there, in milliseconds."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise WorkloadError("the broker has closed a connection")
        now = time.perf_counter()
        data = self._received + data
        delays: list[float] = []
        at = 0
        while len(data) - at >= 4:
            (size,) = _LENGTH.unpack_from(data, at)
            if len(data) - at < 4 + size:
                break
            (correlation,) = _LENGTH.unpack_from(data, at + 4)
            end = at + 4 + size
            for partition in range(1, _PARTITIONS_EACH + 1):
                error = data[
                    end - _ERROR_BYTES * partition + 4 : end - _ERROR_BYTES * partition + 6
                ]
                if error != b"\0\0":
                    raise WorkloadError(f"a commit was refused with {error!r}")
            delays.append((now - self.sent.pop(correlation)) * 1000)
            at = end
        self._received = data[at:]
        return delays


def commits(bootstrap: str, topic: str, partitions: int, rate: int, seconds: float) -> Numbers:
    """So many commits a second, for so long; every second there are a hundred groups more."""
    connections = [_Connection(bootstrap) for _ in range(_CONNECTIONS)]
    selector = selectors.DefaultSelector()
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    delays: list[float] = []
    total = round(rate * seconds)
    sent = 0
    started = time.perf_counter()
    while len(delays) < total:
        now = time.perf_counter() - started
        if now > seconds + STALL_LIMIT:
            raise WorkloadError(f"only {len(delays)} of {total} commits are answered")
        due = min(total, int(now * rate))
        frames: list[list[tuple[int, bytes]]] = [[] for _ in connections]
        groups = 100 * (int(now) + 1)
        for number in range(sent, due):
            first = number // groups % (partitions // _PARTITIONS_EACH) * _PARTITIONS_EACH
            frame = _request(number, f"sustained-{number % groups}", topic, first, number)
            frames[number % _CONNECTIONS].append((number, frame))
        sent = due
        for connection, ready in zip(connections, frames, strict=True):
            if ready:
                connection.send(ready)
        for key, _ in selector.select(_STEP_SECONDS):
            delays += key.data.receive()
    took = time.perf_counter() - started
    delays.sort()
    return {
        "rate": total / took,
        "p50": percentile(delays, 0.5),
        "p99": percentile(delays, 0.99),
        "groups": 100.0 * int(seconds),
    }


if __name__ == "__main__":
    main({"commits": commits})
