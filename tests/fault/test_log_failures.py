"""A disk that fails or fills up while the log runs: nothing acknowledged is lost, nothing hangs."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from tests.fault.findings import Findings
from tests.fault.histories import Life
from tests.fault.machine import FREE_BYTES_MIN, HOME, RESERVE_BYTES, Machine, tolerated

from penstock.errors import DiskFullError, OfflineError, UnsettledLogError
from penstock.testing.faulty import FaultyFiles
from penstock.testing.power_failure import Keep

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1200)]

TORN, ASIDE = HOME / "topics" / "a-0", HOME / "quarantine"
TEARING = (Keep.PAGES_512, Keep.PAGES_4096, Keep.TORN_512, Keep.TORN_4096, Keep.ZEROS)
AFTERWARDS = (Keep.NOTHING, Keep.PAGES_512, Keep.EVERYTHING)


def contents(life: Life, folder: Path) -> bytes:
    """Of all segments in a folder, or of what recovery has cut."""
    paths = [path for path in sorted(life.files.paths()) if path.parent == folder]
    return b"".join(life.files.read(path) for path in paths if path.suffix in (".log", ".0"))


def play_on(life: Life, findings: Findings, where: str) -> None:
    """The history on a failing disk; afterwards the disk is well again and the server restarted."""
    with findings.note(where, life), tolerated():
        life.play(tolerant=True)
    for policy in AFTERWARDS:
        after = life.after_crash(policy, 1)
        with findings.note(f"{where}, then {policy}", after):
            after.start().check()
            after.go_on()
        last = after.after_crash(Keep.NOTHING, 1)
        with findings.note(f"{where}, then {policy}, then off", last):
            last.start().check()


@pytest.mark.parametrize("sticky", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_fail_at_every_operation(code: int, sticky: bool) -> None:
    findings = Findings()
    whole = Life(1)
    whole.play(restart=False)
    for number in range(1, whole.files.operations + 1, 2):
        life = Life(1)
        life.files.fail("any", code, at=number, sticky=sticky)
        play_on(life, findings, f"{errno.errorcode[code]} at {number}, sticky {sticky}")
    findings.must_be_none()


@pytest.mark.parametrize("kind", ["sync", "sync_folder", "pwrite", "truncate", "create", "rename"])
def test_every_operation_of_a_kind_fails_in_turn(kind: str) -> None:
    findings = Findings()
    whole = Life(2)
    whole.play(restart=False)
    count = sum(line.split()[1] == kind for line in whole.files.trace)
    for number in range(1, count + 1):
        life = Life(2)
        life.files.fail(kind, errno.EIO, at=number)
        play_on(life, findings, f"{kind} number {number} fails")
    findings.must_be_none()


def test_a_failed_sync_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.commit.SYNC_ONE_BY_ONE_MAX", 0)
    findings = Findings()
    whole = Life(3)
    whole.play(restart=False)
    count = sum(line.split()[1] == "sync_all" for line in whole.files.trace)
    assert count > 5
    for number in range(1, count + 1):
        life = Life(3)
        life.files.fail("sync_all", errno.EIO, at=number)
        play_on(life, findings, f"sync_all number {number} fails")
    findings.must_be_none()


class TestFailedSync:
    def failed(self) -> tuple[Life, Machine]:
        life = Life(1)
        machine = life.start()
        machine.create_topic("a", 2)
        machine.produce("a", 0, 1)
        machine.produce("a", 1, 1)
        machine.settle()
        machine.produce("a", 0, 1)
        life.files.fail("sync", errno.EIO)
        machine.settle()
        return life, machine

    def test_nothing_is_acknowledged_and_the_partition_takes_no_more(self) -> None:
        life, machine = self.failed()
        spot = machine.spot("a", 0)
        assert len(life.oracle.unknown(spot)) == 1
        with pytest.raises(OfflineError):
            machine.produce("a", 0, 1)
        assert machine.partitions["a", 0].durable_offset == 2

    def test_other_partitions_go_on_and_readers_too(self) -> None:
        life, machine = self.failed()
        machine.produce("a", 1, 1)
        machine.settle()
        assert not life.oracle.unknown(machine.spot("a", 1))
        machine.look()

    @pytest.mark.parametrize("policy", Keep)
    def test_what_a_restarted_server_shows_is_on_the_disk(self, policy: Keep) -> None:
        """The page cache still holds what the disk refused: it must be written once more."""
        life, _ = self.failed()
        after = life.after_crash(policy, 1)
        after.start().check()
        after.after_crash(Keep.NOTHING, 1).start().check()

    def test_a_later_sync_that_succeeds_is_not_believed(self) -> None:
        life, machine = self.failed()
        with tolerated():
            machine.produce("a", 0, 1)
        machine.settle()
        assert life.oracle.unknown(machine.spot("a", 0))
        life.after_crash(Keep.NOTHING, 1).start().check()


class TestDiskFull:
    def full(self, policy_seed: int = 1) -> tuple[Life, Machine]:
        files = FaultyFiles(random.Random(policy_seed), capacity=FREE_BYTES_MIN + 40_000)
        life = Life(policy_seed, files)
        machine = life.start()
        machine.create_topic("a", 2)
        machine.settle()
        with pytest.raises(DiskFullError):
            for number in range(10_000):
                machine.clock.advance(0.3)
                machine.produce("a", number % 2, 1, size=400)
                machine.settle()
        return life, machine

    def test_writes_are_refused_while_readers_go_on(self) -> None:
        _, machine = self.full()
        with pytest.raises(DiskFullError):
            machine.produce("a", 0, 1)
        machine.settle()
        machine.look()

    def test_the_reserve_is_given_up(self) -> None:
        life, _ = self.full()
        assert life.files.free_bytes(life.files.paths()[0].parent) >= RESERVE_BYTES

    def test_deleting_records_makes_room_and_writes_go_on_by_themselves(self) -> None:
        life, machine = self.full()
        for number in (0, 1):
            machine.delete_records("a", number, machine.partitions["a", number].durable_offset)
        machine.settle()
        machine.retain()
        machine.settle()
        machine.clock.advance(1)
        machine.produce("a", 0, 1)
        machine.settle()
        machine.must_be_well()
        assert not machine.store.space.full
        assert not life.oracle.unknown(machine.spot("a", 0))

    def test_a_larger_disk_is_noticed(self) -> None:
        life, machine = self.full()
        assert life.files.capacity is not None
        life.files.capacity *= 2
        machine.clock.advance(1)
        machine.produce("a", 0, 1)
        machine.settle()
        machine.must_be_well()

    def test_topics_can_be_deleted(self) -> None:
        life, machine = self.full()
        machine.delete_topic("a")
        machine.settle()
        machine.clock.advance(1)
        machine.create_topic("a", 1)
        machine.produce("a", 0, 1)
        machine.settle()
        machine.must_be_well()
        life.after_crash(Keep.NOTHING, 1).start().check()

    @pytest.mark.parametrize("policy", Keep)
    def test_a_restart_on_a_full_disk(self, policy: Keep) -> None:
        life, _ = self.full()
        after = life.after_crash(policy, 1)
        machine = after.start()
        machine.check()
        with pytest.raises(DiskFullError):
            for number in range(10_000):
                machine.clock.advance(0.3)
                machine.produce("a", number % 2, 1, size=400)
                machine.settle()
        machine.look()

    @pytest.mark.parametrize("policy", Keep)
    def test_a_restart_without_any_room(self, policy: Keep) -> None:
        life, machine = self.full()
        machine.settle()
        life.files.capacity = sum(len(life.files.read(path)) for path in life.files.paths())
        after = life.after_crash(policy, 1)
        after.start().check()
        after = after.after_crash(Keep.EVERYTHING, 1)
        after.files.capacity = None
        after.start().check()
        after.go_on()

    @pytest.mark.parametrize("policy", Keep)
    def test_a_torn_tail_without_any_room_costs_its_partition_only(self, policy: Keep) -> None:
        refused = 0
        for seed in range(1, 15):
            life = self.killed_while_writing(policy, seed)
            found = contents(life, TORN)
            machine = life.start()
            assert contents(life, TORN) == found or not machine.damaged
            assert all(isinstance(error, UnsettledLogError) for error in machine.damaged)
            assert ("a", 1) in machine.partitions
            assert bool(machine.damaged) == (("a", 0) not in machine.partitions)
            machine.look()
            assert machine.damaged == [] or not contents(life, ASIDE)
            refused += len(machine.damaged)
            life = life.after_crash(Keep.EVERYTHING, seed)
            life.files.capacity = None
            life.start().check()
            assert contents(life, TORN) + contents(life, ASIDE) == found
            life.go_on()
        assert bool(refused) == (policy in TEARING)

    def killed_while_writing(self, policy: Keep, seed: int) -> Life:
        """One partition has much that is not synced, and others have taken the reserve as well."""
        life = Life(seed)
        machine = life.start()
        machine.create_topic("a", 2)
        for number in range(6):
            machine.produce("a", number % 2, 1)
            machine.settle()
        machine.produce("a", 0, 1, count=3, size=1500)
        life = life.after_crash(policy, seed)
        files = life.files
        if files.exists(HOME / "reserve"):
            files.remove(HOME / "reserve")
        files.capacity = sum(len(files.read(path)) for path in files.paths())
        return life

    @pytest.mark.parametrize("policy", Keep)
    def test_a_disk_that_fills_up_without_warning(self, policy: Keep) -> None:
        """Another process takes the space between two looks at it: writes meet ENOSPC half-way."""
        findings = Findings()
        for room in range(0, 3000, 37):
            life = Life(1)
            machine = life.start()
            machine.create_topic("a", 2)
            machine.produce("a", 0, 1)
            machine.produce("a", 1, 1)
            machine.settle()
            used = sum(len(life.files.read(path)) for path in life.files.paths())
            life.files.capacity = used + room
            with findings.note(f"room for {room}", life):
                for number in range(20):
                    with tolerated():
                        machine.produce("a", number % 2, 1, size=200)
                    machine.settle()
                life.files.capacity = None
                machine.clock.advance(1)
                if not machine.partitions["a", 0].offline:
                    machine.produce("a", 0, 1)
                machine.settle()
            after = life.after_crash(policy, room)
            with findings.note(f"room for {room}, then {policy}", after):
                after.start().check()
                after.go_on()
        findings.must_be_none()
