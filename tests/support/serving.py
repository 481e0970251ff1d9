"""`penstock serve` as a child process that a test can stop, kill, and start again."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

STOP_SECONDS_MAX = 30.0
# Below the ports that the system gives to outgoing connections (ip_local_port_range): a client that
# tries to reach a broker that is down could otherwise be given that very port, connect to itself,
# and keep the broker from coming back.
_PORTS = range(20_000, 30_000)


def steady_port() -> int:
    """A free port for a broker that is started more than once."""
    for port in random.Random().sample(_PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port found")


class Serving:
    """One process. Standard output is read by `wait_ready`, standard error goes to a file."""

    def __init__(self, data: Path, errors: Path, *options: str, kafka: str = "127.0.0.1:0") -> None:
        command = [sys.executable, "-m", "penstock", "serve"]
        # The default HTTP port may be taken or not: it would make tests depend on one another.
        command += ["--data", str(data), "--kafka", kafka, "--http", "off", *options]
        self._errors = errors
        self._errors_from = errors.stat().st_size if errors.exists() else 0
        with errors.open("ab") as stderr:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        self.began = time.monotonic()
        self.lines: list[str] = []

    @property
    def stderr(self) -> str:
        """What this process wrote to standard error so far."""
        return self._errors.read_bytes()[self._errors_from :].decode()

    @property
    def bootstrap(self) -> str:
        """Where it listens; known once it is ready."""
        (address,) = (line.split()[-1] for line in self.lines if "kafka listening" in line)
        return address

    @property
    def http(self) -> str:
        """The URL of its HTTP port; known once it is ready."""
        (address,) = (line.split()[-1] for line in self.lines if "http listening" in line)
        return f"http://{address}"

    def wait_ready(self) -> Serving:
        """Read what it prints until it says that it is ready."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if self.lines[-1] == "ready":
                return self
        raise AssertionError(f"it ended with {self.process.wait()}: {self.lines} {self.stderr}")

    def terminate(self) -> int:
        """Ask it to stop, and wait; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Read the rest of what it prints until it ends; its exit code."""
        assert self.process.stdout is not None
        self.lines += self.process.stdout.read().splitlines()
        code = self.process.wait(STOP_SECONDS_MAX)
        self.process.stdout.close()
        return code

    def kill(self) -> None:
        """kill -9. A process that has ended by itself has done so for a reason: that fails."""
        assert self.process.poll() is None, f"it ended by itself: {self.stderr}"
        self.process.kill()
        self.wait()


@contextlib.contextmanager
def serving(folder: Path, *options: str, kafka: str = "127.0.0.1:0") -> Iterator[Serving]:
    """A broker with its data in folder/data, ready; killed afterwards if it still runs."""
    folder.mkdir(parents=True, exist_ok=True)
    running = Serving(folder / "data", folder / "stderr.log", *options, kafka=kafka)
    try:
        yield running.wait_ready()
    finally:
        if running.process.poll() is None:
            running.kill()
