"""The failures of the faulty file system, one by one: errors, failed syncs, a full disk."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.files import read_whole
from penstock.testing.faulty import FaultyFile, FaultyFiles
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


class TestFailures:
    def test_the_nth_of_a_kind_fails_once(self) -> None:
        files = disk()
        files.fail("remove", errno.EIO, at=2)
        files.open(B, create=True)
        files.remove(B)
        with pytest.raises(OSError) as caught:
            files.remove(A)
        assert caught.value.errno == errno.EIO
        assert files.exists(A)
        files.remove(A)
        assert not files.exists(A)

    def test_sticky_failures_stay_until_healed(self) -> None:
        files = disk()
        files.fail("create", errno.ENOSPC, sticky=True)
        for _ in range(3):
            with pytest.raises(OSError) as caught:
                files.open(B, create=True)
            assert caught.value.errno == errno.ENOSPC
        files.open(A, create=True)
        files.heal()
        files.open(B, create=True)

    def test_any_counts_all_changes(self) -> None:
        files = disk()
        files.fail("any", errno.EIO, at=2)
        files.open(B, create=True)
        with pytest.raises(OSError):
            files.remove(A)
        assert files.exists(A)

    @pytest.mark.parametrize("kind", ["open", "list", "pread", "pread_cached"])
    def test_reads_can_fail(self, kind: str) -> None:
        files = disk()
        file = files.open(A)
        files.fail(kind, errno.EIO)
        reads: dict[str, Callable[[], object]] = {
            "open": lambda: files.open(A),
            "list": lambda: files.list(HOME),
            "pread": lambda: file.pread(1, 0),
            "pread_cached": lambda: file.pread_cached(1, 0),
        }
        with pytest.raises(OSError):
            reads[kind]()
        reads[kind]()

    def test_errors_are_of_the_type_the_system_uses(self) -> None:
        files = disk()
        files.fail("open", errno.EACCES)
        with pytest.raises(PermissionError):
            files.open(A)

    def test_an_unknown_kind_is_a_mistake_in_the_test(self) -> None:
        with pytest.raises(AssertionError):
            disk().fail("fsync", errno.EIO)

    def test_a_failed_write_leaves_a_prefix(self) -> None:
        files = disk()
        files.fail("pwrite", errno.EIO)
        with pytest.raises(OSError):
            files.open(A).pwrite([b"abcd", b"efgh"], len(OLD))
        assert files.read(A) == OLD + b"abcd"

    def failed_sync(self) -> tuple[FaultyFiles, FaultyFile]:
        files = disk()
        file = files.open(A)
        file.pwrite([b"lost"], len(OLD))
        files.fail("sync", errno.EIO)
        with pytest.raises(OSError):
            file.sync()
        return files, file

    def test_after_a_failed_sync_the_bytes_still_read_as_written(self) -> None:
        files, file = self.failed_sync()
        assert file.pread(10, len(OLD)) == b"lost"
        assert crash(files, Keep.EVERYTHING).read(A) == OLD + b"lost"

    @pytest.mark.parametrize("policy", POWER_FAILURES)
    def test_after_a_failed_sync_the_bytes_never_reach_the_disk(self, policy: Keep) -> None:
        for seed in SEEDS:
            assert crash(self.failed_sync()[0], policy, seed).read(A) == OLD

    def test_after_a_failed_sync_the_next_one_succeeds_without_the_bytes(self) -> None:
        files, file = self.failed_sync()
        file.pwrite([b"kept"], len(OLD) + 4)
        file.sync()
        assert crash(files, Keep.NOTHING).read(A) == OLD + b"\0\0\0\0kept"

    def test_after_a_failed_sync_bytes_written_again_are_safe(self) -> None:
        files, file = self.failed_sync()
        file.pwrite([b"lost"], len(OLD))
        file.sync()
        assert crash(files, Keep.NOTHING).read(A) == OLD + b"lost"

    def test_a_killed_process_does_not_bring_them_back(self) -> None:
        killed = crash(self.failed_sync()[0], Keep.EVERYTHING)
        killed.open(A).sync()
        assert crash(killed, Keep.NOTHING).read(A) == OLD + bytes(4)

    def test_a_failed_sync_of_everything_loses_everything_unsynced(self) -> None:
        files = disk()
        files.open(A).pwrite([b"lost"], 0)
        files.fail("sync_all", errno.EIO)
        with pytest.raises(OSError):
            files.sync_all(HOME)
        files.sync_all(HOME)
        assert crash(files, Keep.NOTHING).read(A) == OLD

    def test_failures_do_not_outlive_the_crash(self) -> None:
        files = disk()
        files.fail("sync", errno.EIO, sticky=True)
        crash(files, Keep.NOTHING).open(A).sync()


class TestCapacity:
    def test_a_write_that_does_not_fit_leaves_what_does(self) -> None:
        files = disk(capacity=len(OLD) + 3)
        assert files.free_bytes(HOME) == 3
        with pytest.raises(OSError) as caught:
            files.open(A).pwrite([b"12345"], len(OLD))
        assert caught.value.errno == errno.ENOSPC
        assert files.read(A) == OLD + b"123"
        assert files.free_bytes(HOME) == 0

    def test_overwriting_needs_no_space(self) -> None:
        files = disk(capacity=len(OLD))
        files.open(A).pwrite([b"12345"], 0)
        with pytest.raises(OSError):
            files.open(A).pwrite([b"12"], len(OLD) - 1)
        assert files.read(A) == b"12345" + OLD[5:-1] + b"1"

    def test_space_returns_by_removing_cutting_and_enlarging(self) -> None:
        files = disk(capacity=len(OLD))
        files.open(A).truncate(len(OLD) - 10)
        assert files.free_bytes(HOME) == 10
        files.remove(A)
        assert files.free_bytes(HOME) == len(OLD)
        files.capacity = len(OLD) + 1
        assert files.free_bytes(HOME) == len(OLD) + 1

    def test_a_removed_file_occupies_the_disk_while_it_is_open(self) -> None:
        files = disk(capacity=len(OLD))
        file = files.open(A)
        files.remove(A)
        assert files.free_bytes(HOME) == 0
        del file
        assert files.free_bytes(HOME) == len(OLD)

    def test_allocating_takes_all_of_the_space_or_none(self) -> None:
        files = disk(capacity=len(OLD) + 100)
        with pytest.raises(OSError) as caught:
            files.allocate(B, 101)
        assert caught.value.errno == errno.ENOSPC
        files.allocate(B, 100)
        assert files.free_bytes(HOME) == 0

    def test_without_a_capacity_there_is_plenty(self) -> None:
        assert disk().free_bytes(HOME) > 2**40

    def test_the_capacity_outlives_the_crash(self) -> None:
        assert crash(disk(capacity=len(OLD) + 7), Keep.NOTHING).free_bytes(HOME) == 7


class TestHelpers:
    def test_a_flipped_bit_is_flipped_for_good(self) -> None:
        files = disk()
        files.open(A).pwrite([b"A"], 7)
        files.flip(A, 7, 1)
        files.flip(A, 9, 0)
        assert files.read(A)[6:11] == b"oCono"
        files.open(A).sync()
        assert crash(files, Keep.NOTHING).read(A)[6:11] == b"oCono"

    def test_written_files_are_certain(self) -> None:
        files = FaultyFiles()
        files.write(HOME / "x" / "y", b"abc")
        files.write(HOME / "x" / "y", b"de")
        after = crash(files, Keep.NOTHING)
        assert read_whole(after, HOME / "x" / "y") == b"de"
        assert after.paths() == [HOME / "x" / "y"]
        assert files.operations == 0

    def test_a_cold_disk_caches_nothing(self) -> None:
        files = disk(cold=True)
        assert files.open(A).pread_cached(10, 0) is None
        files.cold = False
        assert files.open(A).pread_cached(3, 0) == b"ooo"
