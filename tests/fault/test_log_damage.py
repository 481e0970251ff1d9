"""Bits that flip, files that shrink or go missing: cut, refused or rebuilt, but never believed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.fault.findings import Findings
from tests.fault.histories import Life
from tests.fault.machine import HOME, Machine
from tests.fault.oracle import Broken, Found

from penstock.errors import DamagedLogError, FormatError
from penstock.log import repair, verify
from penstock.log.recovery import Recovery
from penstock.record.batch import InvalidBatchError
from penstock.record.decode import decode
from penstock.testing.faulty import Crash
from penstock.testing.power_failure import Keep

pytestmark = pytest.mark.fault

FOLDER = HOME / "topics" / "a-0"
LEADER_EPOCH = range(12, 16)  # outside the checksum: what is read does not depend on it


class Batch(NamedTuple):
    """Where a batch stands."""

    path: Path
    position: int
    size: int
    first_offset: int
    next_offset: int


class Prepared:
    """A stopped machine with several segments; the journal of positions knows all but one round."""

    def __init__(self) -> None:
        life = Life(1)
        machine = life.start()
        machine.create_topic("a", 2)
        for number in range(12):
            machine.produce("a", 0, 1 + number % 3)
            machine.produce("a", 1, 1)
            machine.settle()
            life.clock.advance(1)
        self.life = life
        self.found = machine.read(machine.partitions["a", 0])
        self.batches = list(self._batches(machine))
        assert len({batch.path for batch in self.batches}) >= 2

    @staticmethod
    def _batches(machine: Machine) -> Iterator[Batch]:
        for segment in machine.partitions["a", 0].segments:
            path = FOLDER / f"{segment.base_offset:020d}.log"
            for found in verify.scan(machine.files, FOLDER):
                assert isinstance(found, verify.FoundBatch)
                header = found.header
                if found.base_offset == segment.base_offset:
                    end = header.last_offset + 1
                    yield Batch(path, found.position, header.size, header.base_offset, end)

    def again(self) -> Life:
        """The same disk, to be damaged."""
        return self.life.after_crash(Keep.NOTHING, 1)


@pytest.fixture(autouse=True)
def few_checkpoints(small_limits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The active segment is not vouched for: recovery has to look at all of it."""
    monkeypatch.setattr("penstock.log.partition.CHECKPOINT_BATCHES", 1000)


@pytest.fixture
def prepared(few_checkpoints: None) -> Prepared:
    return Prepared()


def must_hold(machine: Machine, prepared: Prepared, end: int) -> None:
    """All records below end are there, and no other."""
    found = machine.read(machine.partitions["a", 0])
    expected = {offset: v for offset, v in prepared.found.values.items() if offset < end}
    if found.values != expected:
        raise Broken(f"found {sorted(found.values)}, expected up to {end}")


def must_refuse(life: Life, machine: Machine, before: dict[Path, bytes], offset: int) -> None:
    """The partition is refused by name and offset, left as it was, and the others are served."""
    if len(machine.damaged) != 1:
        raise Broken("the damage was not noticed")
    text = str(machine.damaged[0])
    if "a-0" not in text or f"offset {offset}," not in text:
        raise Broken(f"{offset} is not named: {text}")
    if {path: life.files.read(path) for path in before} != before:
        raise Broken("the files of a refused partition were changed")
    machine.partitions["a", 1]
    machine.look()


def segments(life: Life) -> dict[Path, bytes]:
    return {p: life.files.read(p) for p in life.files.paths() if p.parent == FOLDER}


def kept_aside(life: Life) -> bytes:
    paths = [p for p in life.files.paths() if p.parent == HOME / "quarantine"]
    return b"".join(life.files.read(path) for path in paths)


class TestFlippedBits:
    @pytest.mark.parametrize("bit", range(8))
    def test_in_the_last_round_the_tail_is_cut_and_kept(self, prepared: Prepared, bit: int) -> None:
        findings = Findings()
        last = prepared.batches[-1]
        for byte in range(last.size):
            life = prepared.again()
            life.files.flip(last.path, last.position + byte, bit)
            with findings.note(f"byte {byte}, bit {bit}", life):
                machine = life.start()
                if machine.damaged:
                    raise Broken(f"refused: {machine.damaged[0]}")
                if byte in LEADER_EPOCH:
                    must_hold(machine, prepared, last.next_offset)
                    continue
                must_hold(machine, prepared, last.first_offset)
                if len(kept_aside(life)) != last.size:
                    raise Broken("the cut bytes were not kept")
                # And what was cut stays cut, what was kept stays kept.
                machine.produce("a", 0, 1)
                machine.settle_unseen()
                off = life.after_crash(Keep.NOTHING, 1)
                again = off.start()
                if again.damaged or len(kept_aside(off)) != last.size:
                    raise Broken("the cut did not outlive a power failure")
        findings.must_be_none()

    @pytest.mark.parametrize("bit", range(8))
    def test_below_the_durable_end_the_partition_is_refused(
        self, prepared: Prepared, bit: int
    ) -> None:
        findings = Findings()
        damaged = prepared.batches[-2]
        assert damaged.path == prepared.batches[-1].path
        for byte in range(damaged.size):
            life = prepared.again()
            life.files.flip(damaged.path, damaged.position + byte, bit)
            before = segments(life)
            with findings.note(f"byte {byte}, bit {bit}", life):
                machine = life.start()
                if byte in LEADER_EPOCH:
                    must_hold(machine, prepared, prepared.batches[-1].next_offset)
                else:
                    must_refuse(life, machine, before, damaged.first_offset)
        findings.must_be_none()

    def test_in_a_sealed_segment_nothing_wrong_is_served_and_verify_finds_it(
        self, prepared: Prepared
    ) -> None:
        findings = Findings()
        middle = prepared.batches[1]
        assert middle.path != prepared.batches[-1].path
        for byte in range(middle.size):
            life = prepared.again()
            life.files.flip(middle.path, middle.position + byte, byte % 8)
            with findings.note(f"byte {byte}", life):
                noticed = any(isinstance(x, verify.Damage) for x in verify.scan(life.files, FOLDER))
                if noticed == (byte in LEADER_EPOCH):
                    raise Broken(f"verify: {noticed}")
                machine = life.start()
                if machine.damaged or byte < 8:  # the base offset is outside the checksum
                    continue
                for value in served(machine):
                    if prepared.found.values[value[0]] != value[1]:
                        raise Broken(f"{value} was served")
        findings.must_be_none()


def served(machine: Machine) -> list[tuple[int, bytes]]:
    """What a client gets that checks checksums, as all do."""
    try:
        return list(machine.read(machine.partitions["a", 0]).values.items())
    except (DamagedLogError, InvalidBatchError):
        return []


class TestShortFiles:
    def test_truncated_at_every_byte_of_the_last_two_batches(self, prepared: Prepared) -> None:
        findings = Findings()
        middle, last = prepared.batches[-2:]
        end = last.position + last.size
        for size in range(middle.position, end):
            life = prepared.again()
            life.files.write(last.path, life.files.read(last.path)[:size])
            before = segments(life)
            with findings.note(f"{size} bytes of {end}", life):
                machine = life.start()
                if size < last.position:
                    must_refuse(life, machine, before, middle.first_offset)
                else:
                    must_hold(machine, prepared, last.first_offset)
                    if len(kept_aside(life)) != size - last.position:
                        raise Broken("the cut bytes were not kept")
        findings.must_be_none()

    @pytest.mark.parametrize("length", [0, 1, 48, 49, 2**31 - 1, -1, -(2**31)])
    @pytest.mark.parametrize("at", [-1, -2])
    def test_a_length_that_lies(self, prepared: Prepared, length: int, at: int) -> None:
        life = prepared.again()
        batch = prepared.batches[at]
        data = bytearray(life.files.read(batch.path))
        field = slice(batch.position + 8, batch.position + 12)
        data[field] = (length % 2**32).to_bytes(4, "big")
        life.files.write(batch.path, bytes(data))
        before = segments(life)
        machine = life.start()
        if at == -1:
            must_hold(machine, prepared, batch.first_offset)
        else:
            must_refuse(life, machine, before, batch.first_offset)

    def test_zeros_after_the_end_are_cut(self, prepared: Prepared) -> None:
        life = prepared.again()
        last = prepared.batches[-1]
        life.files.write(last.path, life.files.read(last.path) + bytes(5000))
        must_hold(life.start(), prepared, last.next_offset)


class TestCaches:
    @pytest.mark.parametrize("suffix", ["index", "timeindex", "checkpoint"])
    @pytest.mark.parametrize("shutdown", ["clean", "crash"])
    def test_damaged_caches_are_rebuilt(
        self, prepared: Prepared, suffix: str, shutdown: str
    ) -> None:
        if shutdown == "clean":
            machine = prepared.life.machine
            assert machine is not None
            machine.close()
        findings = Findings()
        count = 0
        for path in prepared.again().files.paths():
            if path.parent != FOLDER or path.suffix != f".{suffix}":
                continue
            for byte in range(len(prepared.again().files.read(path))):
                count += 1
                life = prepared.again()
                life.files.flip(path, byte, byte % 8)
                with findings.note(f"{path.name}, byte {byte}", life):
                    life.start().check()
        findings.must_be_none()
        assert count > 0

    @pytest.mark.parametrize("suffix", ["index", "timeindex", "checkpoint"])
    def test_missing_or_empty_caches_are_rebuilt(self, prepared: Prepared, suffix: str) -> None:
        for empty in (False, True):
            life = prepared.again()
            for path in life.files.paths():
                if path.suffix == f".{suffix}":
                    life.files.write(path, b"") if empty else life.files.remove(path)
            life.start().check()
            life.go_on()

    @pytest.mark.parametrize(
        "name", ["positions.journal", "catalog.journal", "topics/a-0/topic.json"]
    )
    @pytest.mark.parametrize("shutdown", ["clean", "crash"])
    def test_damaged_metadata_orphans_nothing(
        self, prepared: Prepared, name: str, shutdown: str
    ) -> None:
        if shutdown == "clean":
            machine = prepared.life.machine
            assert machine is not None
            machine.close()
        findings = Findings()
        for byte in range(len(prepared.again().files.read(HOME / name))):
            life = prepared.again()
            life.files.flip(HOME / name, byte, byte % 8)
            with findings.note(f"{name}, byte {byte}", life):
                life.start().check()
                life.go_on()
            last = life.after_crash(Keep.NOTHING, 1)
            with findings.note(f"{name}, byte {byte}, then off", last):
                last.start().check()
        findings.must_be_none()

    @pytest.mark.parametrize(
        "name", ["positions.journal", "catalog.journal", "topics/a-0/topic.json"]
    )
    @pytest.mark.parametrize("size", [0, 1, 7, 8, 9, None])
    def test_short_or_missing_metadata_orphans_nothing(
        self, prepared: Prepared, name: str, size: int | None
    ) -> None:
        life = prepared.again()
        if size is None:
            life.files.remove(HOME / name)
        else:
            life.files.write(HOME / name, life.files.read(HOME / name)[:size])
        life.start().check()
        life.go_on()
        life.after_crash(Keep.NOTHING, 1).start().check()

    def test_a_damaged_format_file_is_refused_with_a_remedy(self, prepared: Prepared) -> None:
        life = prepared.again()
        life.files.write(HOME / "format.json", b"{")
        with pytest.raises(FormatError, match="restore it"):
            life.start()

    def test_a_newer_format_is_refused(self, prepared: Prepared) -> None:
        life = prepared.again()
        life.files.write(HOME / "format.json", b'{"format": 99, "cluster_id": "x"}')
        with pytest.raises(FormatError, match="format 99"):
            life.start()


class TestStrangeFolders:
    def test_a_missing_segment_is_refused(self, prepared: Prepared) -> None:
        paths = sorted({batch.path for batch in prepared.batches})
        for path in paths[1:]:
            life = prepared.again()
            life.files.remove(path)
            machine = life.start()
            assert len(machine.damaged) == 1
            machine.look()

    def test_all_segments_missing_is_refused(self, prepared: Prepared) -> None:
        life = prepared.again()
        for path in sorted({batch.path for batch in prepared.batches}):
            life.files.remove(path)
        assert len(life.start().damaged) == 1

    @pytest.mark.parametrize("name", ["notes.txt", "abc.log", ".nfs0001", "lost+found", "1.log"])
    def test_a_foreign_file_hurts_nobody(self, prepared: Prepared, name: str) -> None:
        life = prepared.again()
        life.files.write(FOLDER / name, b"not ours")
        life.start().check()
        life.go_on()
        assert life.files.read(FOLDER / name) == b"not ours"

    @pytest.mark.parametrize("name", ["notes.txt", "stray"])
    def test_a_foreign_file_among_the_topics_hurts_nobody(
        self, prepared: Prepared, name: str
    ) -> None:
        life = prepared.again()
        life.files.write(HOME / "topics" / name, b"not ours")
        life.start().check()
        life.go_on()


class TestRepair:
    @pytest.mark.parametrize("choice", list(repair.Choice))
    @pytest.mark.parametrize("which", [0, 1, -2])
    def test_a_repaired_partition_opens_and_keeps_everything_else(
        self, prepared: Prepared, choice: repair.Choice, which: int
    ) -> None:
        life = prepared.again()
        damaged = prepared.batches[which]
        original = life.files.read(damaged.path)
        life.files.flip(damaged.path, damaged.position + 70, 3)
        plan = repair.plan(life.files, HOME, FOLDER, choice, life.clock)
        aside = repair.execute(life.files, HOME, FOLDER, plan, life.clock)
        machine = life.start()
        assert not machine.damaged
        lost = range(damaged.first_offset, damaged.next_offset)
        if choice is repair.Choice.TRUNCATE:
            lost = range(damaged.first_offset, prepared.batches[-1].next_offset)
        values = read_over_gaps(machine)
        assert values == {o: v for o, v in prepared.found.values.items() if o not in lost}
        assert [(loss.first_offset) for loss in plan.losses] == [damaged.first_offset]
        kept = life.files.read(aside / damaged.path.name)
        assert len(kept) == len(original)
        machine.produce("a", 0, 7)
        machine.settle_unseen()
        off = life.after_crash(Keep.NOTHING, 1)
        again = off.start()
        assert not again.damaged
        assert len(read_over_gaps(again)) == len(values) + 2

    @pytest.mark.parametrize("choice", list(repair.Choice))
    @pytest.mark.parametrize("policy", Keep)
    def test_a_crash_at_every_operation_of_a_repair(
        self, prepared: Prepared, choice: repair.Choice, policy: Keep
    ) -> None:
        """Afterwards the repair can be done again, and nothing more is lost than it said."""
        damaged = prepared.batches[1]
        lost = range(damaged.first_offset, damaged.next_offset)
        if choice is repair.Choice.TRUNCATE:
            lost = range(damaged.first_offset, prepared.batches[-1].next_offset)
        expected = {o: v for o, v in prepared.found.values.items() if o not in lost}
        findings = Findings()
        number = 0
        finished = False
        while not finished:
            number += 1
            life = prepared.again()
            life.files.flip(damaged.path, damaged.position + 70, 3)
            plan = repair.plan(life.files, HOME, FOLDER, choice, life.clock)
            life.files.crash_at = number
            try:
                repair.execute(life.files, HOME, FOLDER, plan, life.clock)
                finished = True
            except Crash:
                pass
            after = life.after_crash(policy, number)
            with findings.note(f"crash at {number}, {policy}", after):
                after.clock.advance(1)
                machine = after.start()
                if machine.damaged:
                    again = repair.plan(after.files, HOME, FOLDER, choice, after.clock)
                    repair.execute(after.files, HOME, FOLDER, again, after.clock)
                    machine = after.start()
                if machine.damaged:
                    raise Broken(f"refused: {machine.damaged[0]}")
                values = whole_batches(after)
                if {o: v for o, v in values.items() if o not in lost} != expected:
                    raise Broken(f"found {sorted(values)}")
        findings.must_be_none()


def whole_batches(life: Life) -> dict[int, bytes]:
    """What is whole in the files; sealed segments are not read when the server starts."""
    values: dict[int, bytes] = {}
    for found in verify.scan(life.files, FOLDER):
        if isinstance(found, verify.FoundBatch):
            file = life.files.open(FOLDER / f"{found.base_offset:020d}.log")
            for record in decode(file.pread(found.header.size, found.position)):
                assert record.value is not None
                values[record.offset] = record.value
    return values


def read_over_gaps(machine: Machine) -> dict[int, bytes]:
    found: Found = machine.read(machine.partitions["a", 0])
    return found.values


def test_the_recovery_reads_only_what_no_checkpoint_vouches_for(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart costs what is unsynced, not what is retained."""
    scanned: list[int] = []
    run = Recovery.run

    def spy(self: Recovery, *, clean: bool) -> object:
        recovered = run(self, clean=clean)
        scanned.append(recovered.scanned_bytes)
        return recovered

    monkeypatch.setattr(Recovery, "run", spy)
    prepared.again().start()
    active = sum(b.size for b in prepared.batches if b.path == prepared.batches[-1].path)
    assert scanned[0] == active
    stopped = Prepared()
    assert stopped.life.machine is not None
    stopped.life.machine.close()
    scanned.clear()
    stopped.again().start()
    assert scanned == [0, 0]
