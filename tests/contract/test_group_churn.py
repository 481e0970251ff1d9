"""Fifty members that join, leave and die: nothing is left out, nothing has two owners, it settles.

A short while of it for each protocol here; `make fault-groups` for the long run.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient
from tests.clients.contract import eventually
from tests.clients.wire import Wire
from tests.support.serving import serving

from penstock.limits import CONSUMER_SESSION_SECONDS

PARTITIONS = 12
PROCESSES, MEMBERS_EACH = 10, 5
ACTIONS = ("join", "leave", "die", "rest")
SETTLE_SECONDS = {"classic": 60.0, "consumer": 60.0 + CONSUMER_SESSION_SECONDS}


class Records:
    """Written all the while; only what was acknowledged counts."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: set[bytes] = set()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        numbers = count()
        while not self._stop.wait(0.01):
            for number in islice(numbers, 3):
                value = b"%d" % number
                self._producer.produce("orders", value, value, on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, message: Any) -> None:
        assert error is None, error
        self.acknowledged.add(message.value())

    @contextmanager
    def flowing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
            assert self._producer.flush(30) == 0


@dataclass
class Crew:
    """The processes, and what the broker says of their group."""

    bootstrap: str
    protocol: str
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    leaving: list[subprocess.Popen[bytes]] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)
    started: int = 0

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})

    def join(self) -> None:
        self.started += 1
        journal = self.folder / f"journal-{self.started}"
        command = [sys.executable, "-m", "tests.support.group_members", self.bootstrap, "crew"]
        command += ["orders", self.protocol, str(MEMBERS_EACH), str(journal)]
        self.processes.append(subprocess.Popen(command))

    def leave(self, process: subprocess.Popen[bytes]) -> None:
        self.processes.remove(process)
        self.leaving.append(process)
        process.terminate()

    def die(self, process: subprocess.Popen[bytes]) -> None:
        self.processes.remove(process)
        process.kill()
        process.wait()

    def end(self) -> None:
        for process in self.processes + self.leaving:
            process.kill()
            process.wait()

    def look(self) -> tuple[int, int] | None:
        """Members and owned partitions of a stable group; nothing may be wrong in any other."""
        found = self.admin.describe_consumer_groups(["crew"])["crew"].result(30)
        owned = [p.partition for m in found.members for p in m.assignment.topic_partitions]
        assert len(owned) == len(set(owned)), f"two owners: {sorted(owned)}"
        self._look_at_offsets()
        if found.state is not ConsumerGroupState.STABLE:
            return None
        return len(found.members), len(owned)

    def _look_at_offsets(self) -> None:
        """Whoever has lost a partition can no longer commit: no offset goes back."""
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("crew")])
        for found in asked["crew"].result(30).topic_partitions:
            assert found.offset >= self.committed.get(found.partition, 0), found
            self.committed[found.partition] = found.offset

    def processed(self) -> set[bytes]:
        """What all that ever lived have got; a last line may be cut by a kill."""
        journals = [path.read_bytes() for path in self.folder.glob("journal-*")]
        return {value for journal in journals for value in journal.split(b"\n")[:-1]}


def churn(crew: Crew, seconds: float, actions: Sequence[str], rng: random.Random) -> None:
    """Members come and go, and are looked at, for so long."""
    end = time.monotonic() + seconds
    for _ in range(PROCESSES):
        crew.join()
    while time.monotonic() < end:
        action = rng.choice(actions)
        if action == "join" and len(crew.processes) < PROCESSES:
            crew.join()
        elif action in ("leave", "die") and len(crew.processes) > 1:
            getattr(crew, action)(rng.choice(crew.processes))
        crew.look()
        time.sleep(rng.uniform(0.1, 1.0))
    while len(crew.processes) < PROCESSES:
        crew.join()


def run(
    folder: Path, protocol: str, seconds: float, seed: int, actions: Sequence[str] = ACTIONS
) -> None:
    with serving(folder / "broker") as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic("orders", PARTITIONS)
        records = Records(broker.bootstrap)
        crew = Crew(broker.bootstrap, protocol, folder)
        try:
            with records.flowing():
                churn(crew, seconds, actions, random.Random(seed))
                settled = (PROCESSES * MEMBERS_EACH, PARTITIONS)
                eventually(
                    lambda: crew.look() == settled or None,
                    "a settled group",
                    SETTLE_SECONDS[protocol],
                )
            eventually(
                lambda: records.acknowledged <= crew.processed() or None, "every record", 60.0
            )
            assert records.acknowledged
            for process in crew.leaving:
                # By the signal itself, if it came before the process was ready for it.
                assert process.wait(30) in (0, -signal.SIGTERM)
        finally:
            crew.end()
        assert broker.terminate() == 0, broker.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("protocol", "actions"),
    [
        ("classic", ACTIONS),
        # The dead of this protocol are missed after 45 s only, which is for the long run.
        ("consumer", ("join", "leave", "rest")),
    ],
)
def test_a_short_while(tmp_path: Path, protocol: str, actions: Sequence[str]) -> None:
    run(tmp_path, protocol, seconds=8.0, seed=1, actions=actions)


@pytest.mark.fault
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_long_while(tmp_path: Path, protocol: str, seed: int) -> None:
    run(tmp_path, protocol, seconds=150.0, seed=seed)
