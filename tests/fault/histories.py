"""The scripted history that the crash tests cut off at every operation."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.fault.machine import HOME, SETTINGS, Machine, tolerated
from tests.fault.oracle import Broken, Oracle

from penstock.limits import POSITIONS_SYNC_SECONDS
from penstock.log.settings import LogSettings
from penstock.testing.clock import ManualClock
from penstock.testing.faulty import Crash, FaultyFiles
from penstock.testing.power_failure import Keep

Step = Callable[[Machine], None]


def ends_become_known(machine: Machine) -> None:
    """The next round writes the journal of positions."""
    machine.clock.advance(POSITIONS_SYNC_SECONDS)


def steps() -> Iterator[Step]:
    """Everything a log does: create, append, roll, retain, delete records and topics, reopen."""
    yield lambda m: m.create_topic("a", 2)
    for number in range(8):
        yield lambda m, n=number: m.produce("a", n % 2, 1 + n % 3)  # type: ignore[misc]
    yield lambda m: m.produce("a", 0, 1, count=3, size=2500)  # longer than any page
    yield ends_become_known
    for number in range(8):
        yield lambda m, n=number: m.produce("a", 0, 1 + n % 3)  # type: ignore[misc]
    yield lambda m: m.change_topic("a")
    yield lambda m: m.create_topic("b", 1)
    yield lambda m: m.change_topic("a")
    yield lambda m: m.delete_records("a", 0, 7)
    yield ends_become_known
    for number in range(6):
        yield lambda m, n=number: m.produce("b", 0, 1 + n % 2)  # type: ignore[misc]
    yield lambda m: m.clock.advance(90)
    yield lambda m: m.retain()
    yield lambda m: m.produce("a", 0, 2)
    yield lambda m: m.produce("a", 1, 2)
    yield lambda m: m.delete_topic("b")
    yield lambda m: m.create_topic("b", 1)
    for number in range(6):
        yield lambda m, n=number: m.produce("b", 0, 1 + n % 2)  # type: ignore[misc]
    yield ends_become_known
    yield lambda m: m.change_topic("a", partitions=3)
    for number in range(6):
        yield lambda m, n=number: m.produce("a", n % 3, 3)  # type: ignore[misc]
    yield lambda m: m.delete_records("a", 0, 10**6)
    yield lambda m: m.retain()


class Life:
    """A log from its first start on, with the oracle that watches all of its lives."""

    def __init__(
        self, seed: int, files: FaultyFiles | None = None, settings: LogSettings = SETTINGS
    ) -> None:
        self.seed = seed
        self.files = files or FaultyFiles(random.Random(seed))
        self.files.write(HOME / ".keep", b"")
        self.oracle = Oracle()
        self.clock = ManualClock()
        self.settings = settings
        self.machine: Machine | None = None
        self.unsafe = False
        self.past: list[str] = []

    def after_crash(self, policy: Keep, seed: int) -> Life:
        """The same log at its next start; several may be made from one crash."""
        after = copy.copy(self)
        after.files = self.files.after_crash(policy, random.Random(seed))
        after.oracle = copy.deepcopy(self.oracle)
        after.clock = copy.deepcopy(self.clock)
        after.machine = None
        after.past = [*self.past, *self.files.trace[-15:], "..."]
        return after

    def story(self) -> str:
        """The end of what happened."""
        return "\n".join((*self.past, *self.files.trace[-15:]))

    def start(self) -> Machine:
        """Start the server."""
        self.machine = Machine(self.files, self.oracle, self.clock, self.settings)
        return self.machine

    def play(self, *, tolerant: bool = False, restart: bool = True) -> None:
        """The whole history, with the threads interleaved as the seed has it; stops at a crash.

        Appends also fall into the middle of syncs, as they do when the commit thread runs.
        """
        interleave = random.Random(self.seed)
        with contextlib.suppress(Crash):
            self._play(interleave, tolerant=tolerant, restart=restart)
        self.files.during_sync = None

    def _play(self, interleave: random.Random, *, tolerant: bool, restart: bool) -> None:
        machine = self.start()

        def append_during_sync(path: Path) -> None:
            if machine.topics.get("a") and interleave.random() < 0.2:
                self.files.during_sync = None
                with tolerated():
                    machine.produce("a", 0, 9)
                self.files.during_sync = append_during_sync

        self.files.during_sync = append_during_sync
        for step in steps():
            with tolerated() if tolerant else contextlib.nullcontext():
                step(machine)
            if self.unsafe and not self.files.sync_is_noop:
                # The negative control: the first topic is in order, so that what goes missing are
                # records; from here on nothing reaches the disk.
                machine.settle()
                self.files.sync_is_noop = True
            # Whatever fails, the machinery of commit rounds has to hold.
            machine.shake(interleave)
        self.files.during_sync = None
        machine.settle()
        if tolerant:
            return
        machine.must_be_well()
        if restart:
            machine.close()
            machine = self.start()
            machine.check()
            for number in range(3):
                machine.produce("a", 0, 1 + number)
                machine.shake(interleave)
            machine.settle()

    def go_on(self) -> None:
        """After a start: missing topics are made, producers repeat what they are not sure of."""
        machine = self.machine
        assert machine is not None
        for name in ("a", "b"):
            if name not in machine.topics:
                machine.create_topic(name, 1)
        machine.retry_unknown()
        for name, number in list(machine.partitions):
            for producer in (1, 2):
                machine.produce(name, number, producer)
        machine.settle()
        machine.must_be_well()
        for name, number in machine.partitions:
            left = self.oracle.unknown(machine.spot(name, number))
            if left:
                raise Broken(f"{name}-{number}: {left} were never acknowledged")


def crashes(
    seed: int, *, every: int = 1, unsafe: bool = False, settings: LogSettings = SETTINGS
) -> Iterator[tuple[int, Life]]:
    """The history, cut off at every operation; the last one is not cut off."""
    whole = Life(seed, settings=settings)
    whole.play()
    for number in range(1, whole.files.operations + 2, every):
        life = Life(seed, settings=settings)
        life.unsafe = unsafe
        life.files.crash_at = number
        life.play()
        yield number, life
