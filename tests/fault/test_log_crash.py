"""Crash at every file-system operation of a history, under every policy, and open again."""

from __future__ import annotations

import contextlib

import pytest
from tests.fault.findings import Findings, of_crashes_in_recovery
from tests.fault.histories import Life, crashes
from tests.fault.oracle import Broken

from penstock.testing.faulty import CHANGES
from penstock.testing.power_failure import POWER_FAILURES, Keep

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1200)]


def test_the_history_is_long_and_touches_everything() -> None:
    life = Life(1)
    life.play()
    assert {line.split()[1] for line in life.files.trace} == CHANGES
    acked = [s for f in life.oracle.partitions.values() for s in f.sent.values()]
    assert sum(sent.acked_at is not None for sent in acked) > 40


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_crash_at_every_operation(seed: int) -> None:
    """What the next life finds, and whether what that one adds outlives a power failure."""
    findings = Findings()
    for number, crashed in crashes(seed):
        for policy in Keep:
            life = crashed.after_crash(policy, number)
            with findings.note(f"crash at {number}, {policy}, seed {seed}", life):
                life.start().check()
            if life.machine is None or life.machine.damaged:
                continue
            with findings.note(f"crash at {number}, {policy}, seed {seed}, going on", life):
                life.go_on()
            last = life.after_crash(Keep.NOTHING, number)
            with findings.note(f"crash at {number}, {policy}, then off, seed {seed}", last):
                last.start().check()
    findings.must_be_none()


@pytest.mark.parametrize("seed", [5, 6])
def test_with_one_sync_for_many_files(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.commit.SYNC_ONE_BY_ONE_MAX", 0)
    monkeypatch.setattr("penstock.log.commit.ROUND_JOURNALED_PARTITIONS_MAX", 0)
    findings = Findings()
    for number, crashed in crashes(seed):
        for policy in (Keep.NOTHING, Keep.PAGES_512, Keep.EVERYTHING):
            life = crashed.after_crash(policy, number)
            with findings.note(f"crash at {number}, {policy}, seed {seed}", life):
                life.start().check()
                life.go_on()
    findings.must_be_none()


@pytest.mark.parametrize("second", [Keep.NOTHING, Keep.PAGES_512, Keep.EVERYTHING])
@pytest.mark.parametrize("first", [Keep.PAGES_512, Keep.TORN_4096, Keep.ZEROS, Keep.EVERYTHING])
def test_crash_at_every_operation_of_the_recovery(first: Keep, second: Keep) -> None:
    of_crashes_in_recovery(crashes(7, every=13), first, second).must_be_none()


LOST = "acknowledged at"  # what the oracle says of a record, and of nothing else
# In a history the very last write is hardly ever a record: see the single record below for TORN.
LOSES_RECORDS = [p for p in POWER_FAILURES if p not in (Keep.TORN_512, Keep.TORN_4096)]


@pytest.mark.parametrize("policy", LOSES_RECORDS)
def test_negative_control_with_syncs_that_do_nothing_records_are_lost(policy: Keep) -> None:
    """Otherwise the tests above would test nothing. Only records are looked at, not topics."""
    lost = 0
    for number, crashed in crashes(1, every=3, unsafe=True):
        life = crashed.after_crash(policy, number)
        with contextlib.suppress(Exception):
            machine = life.start()
            try:
                machine.look()
            except Broken as error:
                lost += LOST in str(error)
    assert lost > 10


@pytest.mark.parametrize("sync_is_noop", [False, True], ids=["synced", "not synced"])
@pytest.mark.parametrize("policy", POWER_FAILURES)
def test_negative_control_of_one_record(policy: Keep, sync_is_noop: bool) -> None:
    """The same acknowledged record, with a sync that works and with one that does not."""
    lost = 0
    for seed in range(20):
        life = Life(seed)
        machine = life.start()
        machine.create_topic("a", 1)
        machine.settle()
        life.files.sync_is_noop = sync_is_noop
        machine.produce("a", 0, 1, size=5000)  # more than a page, so that it can be torn
        machine.settle()
        assert not life.oracle.unknown(machine.spot("a", 0)), "it was acknowledged"
        try:
            life.after_crash(policy, seed).start().check()
        except Broken as error:
            assert LOST in str(error)
            lost += 1
    assert (lost > 0) == sync_is_noop


def test_a_killed_process_needs_no_sync() -> None:
    """Why the power failures are needed: kill -9 alone would never notice a missing sync."""
    findings = Findings()
    for number, crashed in crashes(1, every=3, unsafe=True):
        life = crashed.after_crash(Keep.EVERYTHING, number)
        with findings.note(f"crash at {number}", life):
            life.start().check()
    findings.must_be_none()
