"""Topics whose owner chose less than fsync: each keeps what it promises, and always opens again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.fault.findings import Findings
from tests.fault.histories import Life
from tests.fault.machine import SETTINGS, Machine

from penstock.log.settings import Durability
from penstock.testing.power_failure import POWER_FAILURES, Keep

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1200)]

OS = replace(SETTINGS, durability=Durability.OS)
MEMORY = replace(SETTINGS, durability=Durability.MEMORY)


@pytest.fixture(autouse=True)
def few_checkpoints(small_limits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that next to nothing is synced: each checkpoint would sync all before it."""
    monkeypatch.setattr("penstock.log.partition.CHECKPOINT_BATCHES", 1000)


@pytest.mark.parametrize("policy", POWER_FAILURES)
def test_os_a_durable_start_above_the_end_that_was_lost(policy: Keep) -> None:
    life = Life(1, settings=OS)
    machine = life.start()
    machine.create_topic("a", 1)
    machine.settle()
    for _ in range(5):
        machine.produce("a", 0, 1)
    machine.settle()
    machine.delete_records("a", 0, 4)
    machine.settle()
    life = life.after_crash(policy, 1)
    life.oracle.forget_records()
    machine = life.start()
    machine.check()
    partition = machine.partitions["a", 0]
    assert partition.start_offset <= partition.durable_offset <= partition.end_offset
    machine.produce("a", 0, 2)
    machine.settle()


@pytest.mark.parametrize("seed", [1, 2])
def test_os_survives_a_kill_at_every_operation(seed: int) -> None:
    findings = Findings()
    whole = Life(seed, settings=OS)
    whole.play()
    for number in range(1, whole.files.operations + 2):
        life = Life(seed, settings=OS)
        life.files.crash_at = number
        life.play()
        life = life.after_crash(Keep.EVERYTHING, number)
        with findings.note(f"kill at {number}, seed {seed}", life):
            life.start().check()
            life.go_on()
    findings.must_be_none()


@pytest.mark.parametrize("policy", POWER_FAILURES)
def test_os_opens_after_a_power_failure_at_every_operation(policy: Keep) -> None:
    """Records may be gone, but only from the end, and the partition serves and takes more."""
    findings = Findings()
    whole = Life(3, settings=OS)
    whole.play()
    for number in range(1, whole.files.operations + 2):
        life = Life(3, settings=OS)
        life.files.crash_at = number
        life.play()
        life = life.after_crash(policy, number)
        life.oracle.forget_records()
        with findings.note(f"crash at {number}, {policy}", life):
            life.start().check()
            life.go_on()
    findings.must_be_none()


def played(machine: Machine) -> None:
    machine.create_topic("a", 2)
    for number in range(20):
        machine.produce("a", number % 2, 1)
    machine.settle()
    machine.clock.advance(90)
    machine.retain()
    machine.settle()
    machine.produce("a", 0, 1)
    machine.settle()


@pytest.mark.parametrize("policy", Keep)
def test_memory_is_empty_after_a_restart_and_serves_again(policy: Keep) -> None:
    life = Life(1, settings=MEMORY)
    machine = life.start()
    played(machine)
    life = life.after_crash(policy, 1)
    life.oracle.forget_records()
    machine = life.start()
    machine.check()
    assert all(partition.end_offset == 0 for partition in machine.partitions.values())
    machine.produce("a", 0, 2)
    machine.settle()
    machine.close()
    life = life.after_crash(policy, 1)
    life.oracle.forget_records()
    life.start().check()


def test_memory_writes_no_record_to_the_disk() -> None:
    life = Life(1, settings=MEMORY)
    played(life.start())
    assert not [path for path in life.files.paths() if path.suffix == ".log"]
