"""The crash tests are worth what their file system is worth: each policy, each crash."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from penstock.files import write_atomically
from penstock.testing.faulty import CHANGES, Crash, FaultyFiles
from penstock.testing.power_failure import POWER_FAILURES, Keep

HOME = Path("/data")
A, B = HOME / "a", HOME / "b"
OLD = b"o" * 10_000
SEEDS = range(150)


def disk(**options: bool | int) -> FaultyFiles:
    """A disk with a synced file."""
    files = FaultyFiles(random.Random(1), **options)  # type: ignore[arg-type]
    files.write(A, OLD)
    return files


def crash(files: FaultyFiles, policy: Keep, seed: int = 0) -> FaultyFiles:
    return files.after_crash(policy, random.Random(seed))


def outcomes(make: Callable[[], FaultyFiles], policy: Keep) -> set[bytes]:
    """What may become of A."""
    return {crash(make(), policy, seed).read(A) for seed in SEEDS}


class TestCertainty:
    @pytest.mark.parametrize("policy", Keep)
    def test_synced_bytes_and_names_survive_everything(self, policy: Keep) -> None:
        for seed in SEEDS:
            files = disk()
            file = files.open(B, create=True)
            file.pwrite([b"new"], 0)
            file.sync()
            files.sync_folder(HOME)
            assert crash(files, policy, seed).read(B) == b"new"

    @pytest.mark.parametrize("policy", Keep)
    def test_sync_all_covers_names_and_bytes(self, policy: Keep) -> None:
        for seed in SEEDS:
            files = disk()
            files.make_folder(HOME / "deep" / "er")
            files.open(HOME / "deep" / "er" / "b", create=True).pwrite([b"new"], 0)
            files.rename(A, B)
            files.sync_all(HOME)
            after = crash(files, policy, seed)
            assert after.read(HOME / "deep" / "er" / "b") == b"new"
            assert after.list(HOME) == {"b": len(OLD), "deep": 0}

    def test_without_a_sync_bytes_are_lost(self) -> None:
        files = disk()
        files.open(A).pwrite([b"new"], 0)
        files.open(A).pwrite([b"more"], len(OLD))
        assert crash(files, Keep.NOTHING).read(A) == OLD

    def test_without_a_sync_a_truncation_is_lost(self) -> None:
        files = disk()
        files.open(A).truncate(0)
        assert files.read(A) == b""
        assert crash(files, Keep.NOTHING).read(A) == OLD

    def test_a_synced_file_without_a_synced_name_may_be_lost(self) -> None:
        files = disk()
        file = files.open(B, create=True)
        file.pwrite([b"new"], 0)
        file.sync()
        assert not crash(files, Keep.NOTHING).exists(B)

    def test_a_synced_name_without_synced_bytes_is_an_empty_file(self) -> None:
        files = disk()
        files.open(B, create=True).pwrite([b"new"], 0)
        files.sync_folder(HOME)
        assert crash(files, Keep.NOTHING).read(B) == b""

    def test_a_folder_s_sync_does_not_cover_its_own_name(self) -> None:
        files = disk()
        files.make_folder(HOME / "new")
        files.write(HOME / "other" / "x", b"")
        files.open(HOME / "new" / "b", create=True)
        files.sync_folder(HOME / "new")
        assert crash(files, Keep.NOTHING).list(HOME) == {"a": len(OLD), "other": 0}

    def test_an_unsynced_removal_may_come_back(self) -> None:
        files = disk()
        files.remove(A)
        assert crash(files, Keep.NOTHING).read(A) == OLD
        files = disk()
        files.remove(A)
        files.sync_folder(HOME)
        assert not crash(files, Keep.NOTHING).exists(A)

    def test_an_unsynced_rename_may_come_back(self) -> None:
        files = disk()
        files.rename(A, B)
        assert crash(files, Keep.NOTHING).list(HOME) == {"a": len(OLD)}

    def test_what_is_written_during_a_sync_is_not_part_of_it(self) -> None:
        files = disk()
        file = files.open(A)

        def write_more(path: Path) -> None:
            assert path == A
            file.pwrite([b"late"], 0)

        file.pwrite([b"soon"], 100)
        files.during_sync = write_more
        file.sync()
        files.during_sync = None
        assert crash(files, Keep.NOTHING).read(A) == OLD[:100] + b"soon" + OLD[104:]

    def test_what_is_written_during_sync_all_is_not_part_of_it(self) -> None:
        files = disk()
        file = files.open(A)

        def write_more(path: Path) -> None:
            file.pwrite([b"late"], 0)
            files.open(B, create=True)

        files.during_sync = write_more
        files.sync_all(HOME)
        files.during_sync = None
        after = crash(files, Keep.NOTHING)
        assert after.read(A) == OLD
        assert not after.exists(B)

    @pytest.mark.parametrize("policy", POWER_FAILURES)
    def test_an_atomic_replacement_is_atomic(self, policy: Keep) -> None:
        whole = disk()
        write_atomically(whole, A, b"new")
        for number in range(1, whole.operations + 2):
            for seed in SEEDS:
                files = disk(crash_at=number)
                try:
                    write_atomically(files, A, b"new")
                    allowed: Iterable[bytes] = [b"new"]
                except Crash:
                    allowed = [OLD, b"new"]
                assert crash(files, policy, seed).read(A) in allowed

    def test_negative_control_a_careless_replacement_is_found_out(self) -> None:
        def replace_without_sync() -> FaultyFiles:
            files = disk()
            files.open(B, create=True).pwrite([b"new"], 0)
            files.rename(B, A)
            return files

        assert outcomes(replace_without_sync, Keep.NAMES) == {b""}
        assert outcomes(replace_without_sync, Keep.ZEROS) == {b"\0\0\0"}

    @pytest.mark.parametrize("policy", POWER_FAILURES)
    def test_negative_control_with_syncs_that_do_nothing_bytes_are_lost(self, policy: Keep) -> None:
        def replace() -> FaultyFiles:
            files = disk(sync_is_noop=True)
            file = files.open(A)
            file.pwrite([b"n" * len(OLD)], 0)
            file.sync()
            files.sync_folder(HOME)
            files.sync_all(HOME)
            return files

        assert outcomes(replace, policy) - {b"n" * len(OLD)}


class TestPolicies:
    def test_nothing_keeps_no_page(self) -> None:
        def write() -> FaultyFiles:
            files = disk()
            files.open(A).pwrite([b"n" * 5000], 8000)
            return files

        assert outcomes(write, Keep.NOTHING) == {OLD}

    @pytest.mark.parametrize(("policy", "page"), [(Keep.PAGES_512, 512), (Keep.PAGES_4096, 4096)])
    def test_pages_are_kept_in_any_order(self, policy: Keep, page: int) -> None:
        def write() -> FaultyFiles:
            files = disk()
            files.open(A).pwrite([b"1" * 10_000], 0)
            files.open(A).pwrite([b"2" * 10_000], 0)
            return files

        found = outcomes(write, policy)
        assert len(found) > 10
        for image in found:
            pages = [image[at : at + page] for at in range(0, len(image), page)]
            assert all(len(set(piece)) == 1 for piece in pages)
        firsts = {image[0:1] + image[-1:] for image in found}
        # A later page with an older one before it, and every version of a page.
        assert firsts >= {b"o2", b"2o", b"12", b"21", b"oo"}

    def test_pages_may_grow_a_file_by_less_than_was_written(self) -> None:
        def write() -> FaultyFiles:
            files = disk()
            files.open(A).pwrite([b"1" * 3000], 10_000)
            files.open(A).pwrite([b"2" * 3000], 13_000)
            files.open(A).truncate(11_000)
            return files

        found = outcomes(write, Keep.PAGES_512)
        assert {len(image) for image in found} == {10_000, 11_000, 13_000, 16_000}
        assert any(0 in image for image in found)

    @pytest.mark.parametrize(("policy", "page"), [(Keep.TORN_512, 512), (Keep.TORN_4096, 4096)])
    def test_only_the_last_write_is_torn_at_a_boundary(self, policy: Keep, page: int) -> None:
        def write() -> FaultyFiles:
            files = disk()
            files.open(A).pwrite([b"1" * 1000], 10_000)
            files.open(A).pwrite([b"2" * 9000], 11_000)
            return files

        found = outcomes(write, policy)
        boundaries = {at for at in range(11_000, 20_000) if at % page == 0}
        assert {len(image) for image in found} == boundaries | {11_000}
        assert all(image[10_000:11_000] == b"1" * 1000 for image in found)

    def test_other_files_are_whole_when_the_last_write_is_torn(self) -> None:
        files = disk()
        files.open(B, create=True).pwrite([b"b" * 10_000], 0)
        files.open(A).pwrite([b"n" * 10_000], 0)
        after = crash(files, Keep.TORN_512)
        assert after.read(B) == b"b" * 10_000
        assert after.read(A) != b"n" * 10_000

    def test_names_come_without_bytes(self) -> None:
        files = disk()
        files.open(B, create=True).pwrite([b"b"], 0)
        files.open(A).pwrite([b"n" * 20_000], 0)
        files.rename(A, HOME / "c")
        after = crash(files, Keep.NAMES)
        assert after.list(HOME) == {"b": 0, "c": len(OLD)}
        assert after.read(HOME / "c") == OLD

    def test_zeros_come_with_the_size(self) -> None:
        files = disk()
        files.open(B, create=True).pwrite([b"b" * 3], 0)
        files.open(A).pwrite([b"n" * 20_000], 0)
        after = crash(files, Keep.ZEROS)
        assert after.read(B) == b"\0\0\0"
        assert after.read(A) == OLD + bytes(10_000)

    @pytest.mark.parametrize("policy", [Keep.PAGES_512, Keep.PAGES_4096])
    def test_unsynced_names_are_kept_at_random(self, policy: Keep) -> None:
        found: set[tuple[str, ...]] = set()
        for seed in range(200):
            files = disk()
            files.rename(A, B)
            files.open(HOME / "c", create=True)
            files.remove(HOME / "c")
            files.open(HOME / "d", create=True)
            found.add(tuple(crash(files, policy, seed).list(HOME)))
        # A rename is kept or lost as one, a file appears before it goes; the rest in any order.
        firsts = ("a", "b")
        assert found == {
            (first, *rest) for first in firsts for rest in ((), ("c",), ("d",), ("c", "d"))
        }

    def test_a_kill_keeps_everything_and_makes_nothing_certain(self) -> None:
        files = disk()
        files.open(A).pwrite([b"new"], 0)
        files.open(B, create=True).pwrite([b"b"], 0)
        killed = crash(files, Keep.EVERYTHING)
        assert killed.read(A) == b"new" + OLD[3:]
        assert killed.read(B) == b"b"
        unplugged = crash(killed, Keep.NOTHING)
        assert unplugged.read(A) == OLD
        assert not unplugged.exists(B)

    def test_a_sync_after_a_kill_covers_what_was_written_before_it(self) -> None:
        files = disk()
        files.open(A).pwrite([b"new"], 0)
        files.open(B, create=True)
        killed = crash(files, Keep.EVERYTHING)
        killed.open(A).sync()
        killed.sync_folder(HOME)
        unplugged = crash(killed, Keep.NOTHING)
        assert unplugged.read(A) == b"new" + OLD[3:]
        assert unplugged.exists(B)

    def test_the_last_write_is_still_the_last_after_a_kill(self) -> None:
        files = disk()
        files.open(A).pwrite([b"1" * 5000], 10_000)
        files.open(A).pwrite([b"2" * 5000], 15_000)
        killed = crash(files, Keep.EVERYTHING)
        assert crash(killed, Keep.TORN_512).read(A)[10_000:15_000] == b"1" * 5000

    def test_a_crash_leaves_a_disk_on_which_everything_is_certain(self) -> None:
        files = disk()
        files.open(A).pwrite([b"n" * 20_000], 0)
        once = crash(files, Keep.PAGES_512, 3)
        assert crash(once, Keep.NOTHING).read(A) == once.read(A)

    @pytest.mark.parametrize("policy", Keep)
    def test_the_same_seed_gives_the_same_disk(self, policy: Keep) -> None:
        def write() -> FaultyFiles:
            files = disk(crash_at=4)
            with pytest.raises(Crash):
                for number in range(10):
                    files.open(HOME / str(number), create=True).pwrite([b"x" * 5000], number)
            return files

        one, two = crash(write(), policy, 5), crash(write(), policy, 5)
        assert one.paths() == two.paths()
        assert [one.read(path) for path in one.paths()] == [two.read(p) for p in two.paths()]


class TestCrash:
    def steps(self, files: FaultyFiles) -> None:
        """Every kind of operation once."""
        file = files.open(B, create=True)
        file.pwrite([b"x" * 100], 0)
        file.truncate(50)
        file.reserve(100, 50)
        file.give_back()
        file.sync()
        files.rename(B, HOME / "c")
        files.remove(HOME / "c")
        files.make_folder(HOME / "folder")
        files.remove_folder(HOME / "folder")
        files.sync_folder(HOME)
        files.allocate(HOME / "d", 10)
        files.sync_all(HOME)

    def test_every_change_is_a_numbered_operation(self) -> None:
        files = disk()
        self.steps(files)
        kinds = [line.split()[1] for line in files.trace]
        assert set(kinds) == CHANGES
        assert files.operations == len(kinds) == len(CHANGES)

    def test_looking_is_not_an_operation(self) -> None:
        files = disk()
        file = files.open(A)
        files.open(A, create=True).pread(10, 0)
        file.pread_cached(10, 0)
        files.list(HOME)
        files.exists(B)
        files.make_folder(HOME)
        files.free_bytes(HOME)
        assert files.operations == 0
        assert file.size() == len(OLD)

    @pytest.mark.parametrize("number", range(1, len(CHANGES) + 1))
    def test_crashes_at_the_operation_and_ever_after(self, number: int) -> None:
        files = disk(crash_at=number)
        opened = files.open(A)
        with pytest.raises(Crash):
            self.steps(files)
        assert files.operations == number
        assert files.trace[-1].endswith("CRASH")
        for later in (
            opened.size,
            opened.sync,
            lambda: opened.pread(1, 0),
            lambda: files.list(HOME),
            lambda: files.open(A),
            lambda: files.exists(A),
        ):
            with pytest.raises(Crash):
                later()

    @pytest.mark.parametrize("number", range(1, len(CHANGES) + 1))
    def test_the_crashed_operation_has_no_effect(self, number: int) -> None:
        crashed = disk(crash_at=number)
        with pytest.raises(Crash):
            self.steps(crashed)
        found = crash(crashed, Keep.EVERYTHING)
        kind = crashed.trace[-1].split()[1]
        names = {
            "create": {"a": len(OLD)},
            "truncate": {"a": len(OLD), "b": 100},
            "reserve": {"a": len(OLD), "b": 50},
            "give_back": {"a": len(OLD), "b": 50},
            "sync": {"a": len(OLD), "b": 50},
            "rename": {"a": len(OLD), "b": 50},
            "remove": {"a": len(OLD), "c": 50},
            "make_folder": {"a": len(OLD)},
            "remove_folder": {"a": len(OLD), "folder": 0},
            "sync_folder": {"a": len(OLD)},
            "allocate": {"a": len(OLD)},
            "sync_all": {"a": len(OLD), "d": 10},
        }
        if kind != "pwrite":  # which is torn, see below
            assert found.list(HOME) == names[kind]

    def test_a_write_is_torn_in_the_middle(self) -> None:
        lengths = set()
        for seed in range(200):
            files = FaultyFiles(random.Random(seed))
            files.write(A, b"")
            files.crash_at = 1
            with pytest.raises(Crash):
                files.open(A).pwrite([b"abcd", b"efgh"], 0)
            found = crash(files, Keep.EVERYTHING).read(A)
            assert b"abcdefgh".startswith(found)
            lengths.add(len(found))
        assert lengths == set(range(9))

    def test_crash_passes_every_ordinary_handler(self) -> None:
        assert not issubclass(Crash, Exception)

    def test_a_machine_can_fail_between_operations(self) -> None:
        files = disk()
        file = files.open(A)
        crash(files, Keep.NOTHING)
        with pytest.raises(Crash):
            file.pread(1, 0)

    def test_the_next_run_counts_from_one(self) -> None:
        files = disk(crash_at=1)
        with pytest.raises(Crash):
            files.remove(A)
        after = crash(files, Keep.NOTHING)
        after.crash_at = 2
        after.open(A).sync()
        with pytest.raises(Crash):
            after.open(A).sync()
