"""What a pipeline tells its supervisor: one JSON object on a line, over a socket that both inherit.

A pipeline that nobody supervises tells nobody. The socket is also how a pipeline learns that its
supervisor is gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from penstock.pipelines.terms import LOCK, REPORTS

_KIND: Final = "report"


@dataclass(frozen=True, slots=True)
class Started:
    """A query has started."""

    query: str
    query_id: str
    checkpoint: str | None
    """None: it was not started by write_stream."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch of a query has ended."""

    query: str
    batch: int
    rows: int
    rows_per_second: float
    lag: int | None
    """Records that are there and not read; None: the source does not say."""
    watermark_ms: int | None
    state_rows: int | None
    """Rows in Spark's own state stores; None: there are none."""
    at_ms: int


class Cause(StrEnum):
    """Whose fault it is that a pipeline failed, as far as the pipeline can tell."""

    PROGRAM = "program"
    """The program's: it would fail again."""
    BATCH = "batch"
    """A batch failed: perhaps by what is in it, perhaps by what happened."""
    PEER = "peer"
    """Something that the pipeline needs is away: a broker, a database, Spark itself."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The pipeline ends with an error; nothing follows."""

    cause: Cause
    error: str
    """One line."""
    detail: str
    """A traceback, as far as it is the user's."""
    query: str | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The pipeline ends in order; nothing follows."""

    stopped: bool
    """It was asked to, before it was through."""


Report: TypeAlias = Started | Progress | Failed | Ended
_KINDS: Final[dict[str, type]] = {
    kind.__name__: kind for kind in (Started, Progress, Failed, Ended)
}


def to_line(report: Report) -> bytes:
    """As it is sent."""
    fields = dataclasses.asdict(report)
    return json.dumps({_KIND: type(report).__name__, **fields}).encode() + b"\n"


def from_line(line: bytes) -> Report:
    """As it was sent."""
    fields: dict[str, Any] = json.loads(line)
    kind = _KINDS[fields.pop(_KIND)]
    if kind is Failed:
        fields["cause"] = Cause(fields["cause"])
    report: Report = kind(**fields)
    return report


class Reporter:
    """The pipeline's end of the socket."""

    def __init__(self, connection: socket.socket | None) -> None:
        self._connection = connection
        # Batches are reported from threads of Spark's callbacks.
        self._lock = threading.Lock()

    @classmethod
    def inherited(cls, environ: Mapping[str, str] = os.environ) -> Reporter:
        """The one that the supervisor left open for this process, and for no child of it."""
        if LOCK in environ:
            os.set_inheritable(int(environ[LOCK]), False)
        if REPORTS not in environ:
            return cls(None)
        descriptor = int(environ[REPORTS])
        os.set_inheritable(descriptor, False)
        return cls(socket.socket(fileno=descriptor))

    def tell(self, report: Report) -> None:
        """Send a report, if anybody wants it."""
        if self._connection is not None:
            # Who is gone needs no report, and the thread in wait_for_the_end learns of it.
            with contextlib.suppress(OSError), self._lock:
                self._connection.sendall(to_line(report))

    @property
    def supervised(self) -> bool:
        """Whether there is somebody to tell."""
        return self._connection is not None

    def wait_for_the_end(self) -> None:
        """Return when the supervisor is gone."""
        assert self._connection is not None
        with contextlib.suppress(OSError):
            while self._connection.recv(1):
                pass
