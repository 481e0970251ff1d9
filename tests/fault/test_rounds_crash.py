"""The journal of rounds: crash at every operation of a history whose rounds go through it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tests.fault.findings import Findings, of_crashes_in_recovery
from tests.fault.histories import Life, crashes, ends_become_known
from tests.fault.machine import HOME, SETTINGS
from tests.fault.oracle import Broken

from penstock.log import earlier_rounds, recovery, round_journal
from penstock.log.round_journal import Piece, RoundJournal
from penstock.record.batch import BatchHeader
from penstock.testing.power_failure import POWER_FAILURES, Keep

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1800)]

ROOMY = replace(SETTINGS, segment_bytes=4000)


@pytest.fixture(autouse=True)
def journaled_rounds(monkeypatch: pytest.MonkeyPatch, small_limits: None) -> None:
    """Rounds of one file go through the journal too."""
    monkeypatch.setattr("penstock.log.commit.SYNC_ONE_BY_ONE_MAX", 0)
    monkeypatch.setattr("penstock.log.partition.CHECKPOINT_BATCHES", 12)
    monkeypatch.setattr("penstock.log.partition.ROOM_AHEAD_ROUND_BYTES_MIN", 1500)


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often what these tests are about has come to pass."""
    seen: Counter[str] = Counter()
    write, anew, find = RoundJournal.write, RoundJournal.begin_anew, earlier_rounds.continuation

    def counted_write(self: RoundJournal, changed: list[round_journal.Changed]) -> bool:
        seen["written"] += 1
        seen["shared"] += len(changed) > 1
        return write(self, changed)

    def counted_anew(self: RoundJournal) -> None:
        seen["begun anew"] += self._end > 4096
        anew(self)

    def counted_find(
        pieces: Sequence[Piece], position: int, follows: Callable[[BatchHeader], bool]
    ) -> bytes | None:
        found = find(pieces, position, follows)
        seen["brought back"] += found is not None
        return found

    monkeypatch.setattr(RoundJournal, "write", counted_write)
    monkeypatch.setattr(RoundJournal, "begin_anew", counted_anew)
    monkeypatch.setattr(recovery, "continuation", counted_find)
    return seen


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_crash_at_every_operation(seed: int, happened: Counter[str]) -> None:
    findings = Findings()
    for number, crashed in crashes(seed, settings=ROOMY):
        for policy in Keep:
            life = crashed.after_crash(policy, number)
            with findings.note(f"crash at {number}, {policy}, seed {seed}", life):
                life.start().check()
                life.go_on()
            last = life.after_crash(Keep.NOTHING, number)
            with findings.note(f"crash at {number}, {policy}, then off, seed {seed}", last):
                last.start().check()
    findings.must_be_none()
    assert min(happened[what] for what in ("written", "shared", "begun anew", "brought back")) > 20


@pytest.mark.parametrize("second", [Keep.NOTHING, Keep.PAGES_512, Keep.EVERYTHING])
@pytest.mark.parametrize("first", [Keep.NOTHING, Keep.PAGES_512, Keep.ZEROS, Keep.EVERYTHING])
def test_crash_at_every_operation_of_the_recovery(first: Keep, second: Keep) -> None:
    crashed = crashes(8, every=13, settings=ROOMY)
    of_crashes_in_recovery(crashed, first, second).must_be_none()


@pytest.mark.parametrize("policy", POWER_FAILURES)
def test_negative_control_with_a_journal_that_is_not_synced(policy: Keep) -> None:
    """The same records, with a sync of the journal that works and with one that does nothing."""
    for does_nothing in (False, True):
        lost = 0
        for seed in range(20):
            life = Life(seed, settings=ROOMY)
            machine = life.start()
            machine.create_topic("a", 3)
            machine.produce("a", 0, 1)
            machine.settle()
            life.files.sync_is_noop = does_nothing
            for number in range(3):
                machine.produce("a", number, 1, size=1500)
            machine.settle()
            try:
                life.after_crash(policy, seed).start().check()
            except Broken:
                lost += 1
        assert (lost > 0) == does_nothing


def test_a_partition_that_is_not_opened_keeps_its_pieces() -> None:
    """What stands in the journal of a damaged one is there when it has been put in order."""
    life = Life(1, settings=ROOMY)
    machine = life.start()
    machine.create_topic("a", 3)
    # The first round makes the journal, the second records the ends of the first.
    for _ in range(3):
        for number in range(3):
            machine.produce("a", number, 1, size=400)
        machine.settle()
        ends_become_known(machine)
    life = life.after_crash(Keep.NOTHING, 1)
    path = HOME / "topics" / "a-1" / "00000000000000000000.log"
    whole = life.files.read(path)
    assert len(whole) < 1000, "the second and third batch are in the journal only"
    life.files.write(path, b"x" * len(whole))
    machine = life.start()
    assert len(machine.damaged) == 1
    machine.produce("a", 0, 1)
    machine.settle()
    life = life.after_crash(Keep.NOTHING, 2)
    life.files.write(path, whole)
    life.start().check()
