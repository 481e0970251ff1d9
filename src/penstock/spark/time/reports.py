"""Tasks tell the planner the largest event time of what they read.

The planner listens where it reaches the cluster from: on loopback if that is where the brokers are,
and otherwise on the one address that also leads to them. Who reports has to know a random word that
travels with the ranges. A report that does not come costs time, never correctness: the planner then
reads the range itself.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import socketserver
import threading
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from penstock.client.cluster import Place
from penstock.client.connection import CONNECT_SECONDS_MAX, parse_bootstrap
from penstock.errors import UnavailableError
from penstock.spark.options import READ

_SECONDS_MAX: Final = 2.0
_LINE_BYTES_MAX: Final = 4096  # a topic's name has 249 at most
_THANKS: Final = b"\n"
_log = logging.getLogger(__name__)


class Report(NamedTuple):
    """Of the offsets from start up to, but not including, end; None: no row has a time."""

    place: Place
    start: int
    end: int
    newest_ms: int | None


class ReportTo(NamedTuple):
    """Where a task reports."""

    host: str
    port: int
    word: str

    def send(self, report: Report) -> None:
        """Report, and wait until it has arrived; a failure is logged and nothing else."""
        place, *rest = report
        line = json.dumps([self.word, *place, *rest]).encode() + b"\n"
        try:
            with socket.create_connection((self.host, self.port), _SECONDS_MAX) as connection:
                connection.sendall(line)
                connection.recv(len(_THANKS))
        except OSError as error:
            _log.warning("%s: its event time was not reported: %s", report.place, error)


class Reports:
    """What is known of ranges; for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Place, dict[int, Report]] = {}

    def add(self, report: Report) -> None:
        """Keep one; each try of a task says the same."""
        with self._lock:
            self._known.setdefault(report.place, {})[report.start] = report

    def of(self, place: Place, start: int, end: int) -> Report | None:
        """One report made of all those that together are this range; None: some are missing."""
        with self._lock:
            pieces = dict(self._known.get(place, {}))
        times: list[int] = []
        at = start
        while at < end:
            piece = pieces.get(at)
            if piece is None or not at < piece.end <= end:
                return None
            at = piece.end
            times += [piece.newest_ms] if piece.newest_ms is not None else []
        return Report(place, start, end, max(times, default=None))

    def forget_before(self, starts: Mapping[Place, int]) -> None:
        """Drop what lies before these offsets: its time is in the checkpoint."""
        with self._lock:
            for place, start in starts.items():
                known = self._known.get(place, {})
                self._known[place] = {at: one for at, one in known.items() if one.end > start}


def listen(reports: Reports, bootstrap: str) -> ReportTo:
    """Take reports until the process ends."""
    family, host = _own_address(bootstrap)
    server = _Server(family, host, reports)
    threading.Thread(target=server.serve_forever, name="reports of time", daemon=True).start()
    return ReportTo(host, server.server_address[1], server.word)


def _own_address(bootstrap: str) -> tuple[socket.AddressFamily, str]:
    """The address of this machine that is used to reach the cluster."""
    cause: OSError | None = None
    for address in parse_bootstrap(bootstrap):
        try:
            with socket.create_connection(
                (address.host, address.port), CONNECT_SECONDS_MAX
            ) as connection:
                return connection.family, connection.getsockname()[0]
        except OSError as error:
            cause = error
    raise UnavailableError(READ, f"{bootstrap}: {cause}", "check that the broker is up")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, family: socket.AddressFamily, host: str, reports: Reports) -> None:
        self.address_family = family
        self.word = secrets.token_hex(16)
        self.reports = reports
        super().__init__((host, 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Somebody hung up, or wrote something else."""
        _log.warning("a report of time could not be read", exc_info=True)


class _Handler(socketserver.StreamRequestHandler):
    timeout = _SECONDS_MAX
    server: _Server

    def handle(self) -> None:
        """Read one report."""
        word, topic, partition, start, end, newest = json.loads(
            self.rfile.readline(_LINE_BYTES_MAX)
        )
        if not hmac.compare_digest(str(word).encode(), self.server.word.encode()):
            _log.warning("%s reports a time without the word for it", self.client_address[0])
            return
        time_ms = None if newest is None else int(newest)
        self.server.reports.add(
            Report(Place(str(topic), int(partition)), int(start), int(end), time_ms)
        )
        self.wfile.write(_THANKS)
