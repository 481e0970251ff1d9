"""Kafka Connect for the tests: a worker in distributed mode, as Kafka's scripts start one.

The worker keeps what it knows in three topics of the broker it is pointed at, and is told what to
do over HTTP on a loopback port. It can be killed and started again.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.jars import Jars, PeerError
from tools.kafka import SLF4J, VERSION, end_process, free_ports, tail

START_TIMEOUT = 120.0
JARS = Jars(
    f"connect-{VERSION}",
    (
        ("org.apache.kafka", "connect-runtime", VERSION),
        ("org.apache.kafka", "connect-file", VERSION),
        SLF4J,
    ),
)
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


def worker_settings(bootstrap: str, group: str, port: int) -> dict[str, str]:
    """A worker of one node; what is not about that, or about waiting, stays Connect's default."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "config.storage.topic": f"{group}-configs",
        "config.storage.replication.factor": "1",
        "offset.storage.topic": f"{group}-offsets",
        "offset.storage.replication.factor": "1",
        "status.storage.topic": f"{group}-status",
        "status.storage.replication.factor": "1",
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": "500",
        # A worker that was killed is missed after this, as are the consumers of its sinks, and its
        # work is then shared out at once.
        "session.timeout.ms": "6000",
        "consumer.session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "0",
    }


class Worker:
    """A worker that can be started more than once, always at the same address."""

    def __init__(
        self, folder: Path, bootstrap: str, group: str, settings: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "worker.log"
        self._config = folder / "worker.properties"
        every = worker_settings(bootstrap, group, port) | dict(settings or {})
        self._config.write_text("".join(f"{name}={value}\n" for name, value in every.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it has joined its group and answers.

        Raises:
            PeerError: it ended or did not answer in time; the message ends with its log.
        """
        command = ["java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += ["-cp", f"{JARS.install()}/*", "org.apache.kafka.connect.cli.ConnectDistributed"]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        end = time.monotonic() + START_TIMEOUT
        while True:
            with contextlib.suppress(PeerError, OSError):
                self.call("GET", "/connectors")
                return
            if self._process.poll() is not None or time.monotonic() > end:
                raise PeerError(f"the Connect worker did not start:\n{tail(self._log, 60)}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End it as kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Ask it to stop."""
        if self._process is not None:
            end_process(self._process)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """A request to its REST interface; the JSON of the answer.

        Raises:
            PeerError: it answered with an error, which is in the message.
        """
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise PeerError(f"{method} {path}: {error.code} {error.read().decode()}") from error
        return json.loads(text) if text else None

    def connect(self, name: str, settings: Mapping[str, str]) -> None:
        """Create a connector, or change one."""
        self.call("PUT", f"/connectors/{name}/config", settings)

    def states(self, name: str) -> list[str]:
        """The state of a connector and of its tasks, such as RUNNING."""
        status = self.call("GET", f"/connectors/{name}/status")
        return [one["state"] for one in (status["connector"], *status["tasks"])]


@contextlib.contextmanager
def running_worker(
    folder: Path, bootstrap: str, group: str, settings: Mapping[str, str] | None = None
) -> Iterator[Worker]:
    """A started worker that ends with the block, always."""
    worker = Worker(folder, bootstrap, group, settings)
    try:
        worker.start()
        yield worker
    finally:
        worker.stop()
