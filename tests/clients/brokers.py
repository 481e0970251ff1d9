"""The two brokers that every client test runs on: Penstock as a process, and a real Kafka."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.clients.wire import Wire
from tools.kafka import running_kafka

STOP_TIMEOUT = 30.0


@dataclass(frozen=True)
class Broker:
    """A running broker."""

    name: str
    bootstrap: str
    folder: Path
    pid: int

    def wire(self) -> Wire:
        """A new connection that speaks the bare protocol."""
        return Wire(self.bootstrap)

    def segments(self, topic: str, partition: int = 0) -> list[Path]:
        """The segment files of a partition, oldest first."""
        return sorted(self.folder.rglob(f"{topic}-{partition}/*.log"))


@contextlib.contextmanager
def running_penstock(folder: Path) -> Iterator[Broker]:
    """`penstock serve` on a free port; it must stop cleanly when asked to."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "penstock", "serve"]
    command += ["--data", str(folder / "data"), "--kafka", "127.0.0.1:0", "--http", "off"]
    errors = folder / "stderr.log"
    with errors.open("wb") as output:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True)
    try:
        bootstrap = _listening(process, errors)
        yield Broker("penstock", bootstrap, folder / "data", process.pid)
        process.send_signal(signal.SIGTERM)
        status = process.wait(STOP_TIMEOUT)
        assert status == 0, f"penstock ended with status {status}:\n{errors.read_text()}"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _listening(process: subprocess.Popen[str], errors: Path) -> str:
    """Read what the process prints until it is ready; the address of its Kafka listener."""
    assert process.stdout is not None
    bootstrap = ""
    for line in process.stdout:
        if line.startswith("kafka listening on "):
            bootstrap = line.split()[-1]
        if line.strip() == "ready":
            assert bootstrap, "ready before the Kafka listener was printed"
            return bootstrap
    raise AssertionError(f"penstock ended before it was ready:\n{errors.read_text()}")


@contextlib.contextmanager
def running_peer(folder: Path) -> Iterator[Broker]:
    """A real Kafka with its default settings."""
    with running_kafka(folder) as kafka:
        yield Broker("kafka", kafka.bootstrap, folder / "data", kafka.pid)


RUNNERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Broker]]] = {
    "penstock": running_penstock,
    "kafka": running_peer,
}
