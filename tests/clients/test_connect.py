"""Kafka Connect: a worker in distributed mode that copies a file into a topic and back out."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from tests.clients import admin_requests as admin
from tests.clients.brokers import Broker
from tests.clients.contract import NewName, eventually
from tests.clients.test_transactions import committed
from tests.clients.wire import Wire
from tools.connect import FILE_SINK, FILE_SOURCE, Worker, running_worker
from tools.jars import PeerError

PATIENCE = 120.0


class Copying:
    """Two connectors: lines of a file become records of a topic, and records lines of another."""

    def __init__(self, worker: Worker, folder: Path, name: str) -> None:
        self.worker = worker
        self.topic = name
        # A sink's name is also that of its consumer group, so it must differ from test to test.
        self.names = f"{name}-source", f"{name}-sink"
        self.source, self.sink = folder / "source.txt", folder / "sink.txt"
        self.written: list[str] = []

    def write(self, count: int) -> None:
        lines = [f"line-{len(self.written) + number}" for number in range(count)]
        self.written += lines
        with self.source.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def connect(self, **settings: str) -> None:
        # A batch that is full leaves lines in the source's buffer until the file grows again.
        source = {"connector.class": FILE_SOURCE, "tasks.max": "1", "batch.size": "100000"}
        source |= {"file": str(self.source), "topic": self.topic}
        self.worker.connect(self.names[0], source | settings)
        sink = {"connector.class": FILE_SINK, "tasks.max": "1", "file": str(self.sink)}
        self.worker.connect(self.names[1], sink | {"topics": self.topic})

    def running(self) -> bool | None:
        with contextlib.suppress(PeerError):  # a worker that rebalances says 409
            states = [state for name in self.names for state in self.worker.states(name)]
            return states == ["RUNNING"] * 4 or None
        return None

    def copied(self) -> bool | None:
        """Whether every line has arrived; one that arrived twice is no loss."""
        return (self.sink.exists() and set(self.written) <= set(self.lines())) or None

    def lines(self) -> list[str]:
        return self.sink.read_text().splitlines()

    def wait(self) -> None:
        eventually(self.running, "the connectors run", PATIENCE)
        eventually(self.copied, "the lines are copied", PATIENCE)


def setting(wire: Wire, topic: str, name: str) -> str | None:
    ((found,),) = [
        one.configs for one in wire.call(admin.describe_configs(topic, keys=[name])).results
    ]
    value: str | None = found.value
    return value


def test_smoke(broker: Broker, wire: Wire, new_name: NewName, tmp_path: Path) -> None:
    """A worker makes its topics, copies, is killed, and goes on where it was."""
    group = new_name()
    with running_worker(tmp_path, broker.bootstrap, group) as worker:
        copying = Copying(worker, tmp_path, f"{group}-lines")
        copying.write(200)
        copying.connect()
        copying.wait()
        for kept in ("configs", "offsets", "status"):
            assert setting(wire, f"{group}-{kept}", "cleanup.policy") == "compact"
        assert copying.lines() == copying.written
        worker.kill()
        copying.write(200)
        worker.start()
        copying.wait()
        # A killed worker may have sent what it had not noted yet, so lines may come twice.
        assert list(dict.fromkeys(copying.lines())) == copying.written


@pytest.mark.compat
class TestWorker:
    def test_administration(
        self, broker: Broker, wire: Wire, new_name: NewName, tmp_path: Path
    ) -> None:
        """Offsets are shown, taken back and forgotten; a connector rests and goes on."""
        group = new_name()
        with running_worker(tmp_path, broker.bootstrap, group) as worker:
            copying = Copying(worker, tmp_path, f"{group}-lines")
            copying.write(100)
            copying.connect()
            copying.wait()
            source, sink = (f"/connectors/{name}" for name in copying.names)
            worker.call("PUT", f"{source}/pause")
            eventually(lambda: worker.states(copying.names[0])[1] == "PAUSED" or None, "it rests")
            worker.call("PUT", f"{source}/resume")
            copying.write(100)
            copying.wait()
            self.take_back(worker, copying, sink)
            worker.call("DELETE", source)
            worker.call("DELETE", sink)
            eventually(lambda: worker.call("GET", "/connectors") == [] or None, "both are gone")

    def take_back(self, worker: Worker, copying: Copying, sink: str) -> None:
        """The sink's offsets are those of a consumer group, which Connect changes for us."""

        def settled() -> bool | None:
            (offset,) = worker.call("GET", f"{sink}/offsets")["offsets"]
            return offset["offset"]["kafka_offset"] == 200 or None

        eventually(settled, "the sink has committed")
        worker.call("PUT", f"{sink}/stop")
        eventually(
            lambda: worker.states(copying.names[1]) == ["STOPPED"] or None, "it stands still"
        )
        place = {"kafka_topic": copying.topic, "kafka_partition": 0}
        wanted: dict[str, Any] = {"partition": place, "offset": {"kafka_offset": 150}}
        worker.call("PATCH", f"{sink}/offsets", {"offsets": [wanted]})
        worker.call("PUT", f"{sink}/resume")
        again = copying.written + copying.written[150:]
        eventually(lambda: copying.lines() == again or None, "what was taken back comes again")

    def test_exactly_once(
        self, broker: Broker, wire: Wire, new_name: NewName, tmp_path: Path
    ) -> None:
        """Killed in the middle of its work, a worker that writes in transactions repeats nothing."""
        group = new_name()
        settings = {"exactly.once.source.support": "enabled"}
        settings |= {"consumer.isolation.level": "read_committed"}  # of the sink
        with running_worker(tmp_path, broker.bootstrap, group, settings) as worker:
            copying = Copying(worker, tmp_path, f"{group}-lines")
            copying.connect(**{"exactly.once.support": "required"})
            for _ in range(3):
                copying.write(1000)
                eventually(copying.running, "the connectors run", PATIENCE)
                copying.write(1000)
                worker.kill()
                worker.start()
            copying.wait()
            assert committed(broker, copying.topic) == [line.encode() for line in copying.written]
