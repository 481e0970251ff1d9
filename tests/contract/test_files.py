"""What every file system owes the log: the same behaviour and the same errors."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.files import Files, FileSlice, OsFiles, read_whole, write_atomically
from penstock.memory_files import MemoryFiles
from penstock.testing.faulty import FaultyFiles

IMPLEMENTATIONS: dict[str, Callable[[], Files]] = {
    "os": OsFiles,
    "memory": MemoryFiles,
    "faulty": FaultyFiles,
}


@pytest.fixture(params=IMPLEMENTATIONS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    made = IMPLEMENTATIONS[request.param]()
    made.make_folder(tmp_path)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def put(files: Files, path: Path, data: bytes = b"") -> Path:
    file = files.open(path, create=True)
    file.truncate(0)
    file.pwrite([data], 0)
    return path


class TestFile:
    def test_reads_back_what_was_written_in_pieces(self, files: Files, folder: Path) -> None:
        file = files.open(folder / "a", create=True)
        file.pwrite([b"one", bytearray(b"two"), memoryview(b"three")], 0)
        file.pwrite([b"", b"four"], 11)
        assert file.size() == 15
        assert file.pread(100, 0) == b"onetwothreefour"
        assert file.pread(3, 3) == b"two"
        assert type(file.pread(3, 3)) is bytes

    def test_reserved_room_changes_neither_size_nor_content(
        self, files: Files, folder: Path
    ) -> None:
        file = files.open(folder / "a", create=True)
        file.pwrite([b"0123456789"], 0)
        with contextlib.suppress(OSError):  # not every disk can
            file.reserve(1 << 20, 5)
        assert file.size() == 10
        file.pwrite([b"abc"], 10)
        file.sync()
        file.give_back()
        assert file.size() == 13
        assert file.pread(100, 0) == b"0123456789abc"

    def test_reads_from_the_cache_the_same(self, files: Files, folder: Path) -> None:
        file = files.open(folder / "a", create=True)
        file.pwrite([b"0123456789"], 0)
        for size, position in ((4, 2), (100, 7), (10, 10), (10, 1000), (0, 3)):
            cached = file.pread_cached(size, position)
            assert cached is not None
            assert bytes(cached) == file.pread(size, position)

    def test_what_was_read_does_not_change_with_the_file(self, files: Files, folder: Path) -> None:
        file = files.open(folder / "a", create=True)
        file.pwrite([b"before"], 0)
        whole, cached = file.pread(6, 0), file.pread_cached(6, 0)
        file.pwrite([b"after and longer"], 0)
        file.truncate(0)
        assert cached is not None
        assert (whole, bytes(cached)) == (b"before", b"before")

    def test_reads_nothing_at_and_after_the_end(self, files: Files, folder: Path) -> None:
        file = files.open(put(files, folder / "a", b"abc"))
        assert file.pread(10, 3) == b""
        assert file.pread(10, 99) == b""
        assert file.pread(0, 0) == b""

    def test_overwrites_in_the_middle_and_across_the_end(self, files: Files, folder: Path) -> None:
        file = files.open(put(files, folder / "a", b"abcdef"))
        file.pwrite([b"XY"], 1)
        file.pwrite([b"123"], 5)
        assert file.pread(100, 0) == b"aXYde123"

    def test_a_write_beyond_the_end_leaves_zeros_between(self, files: Files, folder: Path) -> None:
        file = files.open(put(files, folder / "a", b"ab"))
        file.pwrite([b"z"], 5)
        assert file.pread(100, 0) == b"ab\0\0\0z"

    def test_an_empty_write_changes_nothing(self, files: Files, folder: Path) -> None:
        file = files.open(put(files, folder / "a", b"ab"))
        file.pwrite([], 9)
        file.pwrite([b"", b""], 9)
        assert file.size() == 2

    def test_writes_many_pieces_at_once(self, files: Files, folder: Path) -> None:
        pieces = [bytes([number % 256]) * 3 for number in range(1000)]
        file = files.open(folder / "a", create=True)
        file.pwrite(pieces, 0)
        assert file.pread(10_000, 0) == b"".join(pieces)

    def test_truncate_cuts_and_extends_with_zeros(self, files: Files, folder: Path) -> None:
        file = files.open(put(files, folder / "a", b"abcdef"))
        file.truncate(2)
        assert file.pread(100, 0) == b"ab"
        file.truncate(4)
        assert file.pread(100, 0) == b"ab\0\0"

    def test_sync_changes_nothing_visible(self, files: Files, folder: Path) -> None:
        file = files.open(put(files, folder / "a", b"abc"))
        file.sync()
        assert file.pread(100, 0) == b"abc"

    def test_negative_positions_and_sizes_are_refused(self, files: Files, folder: Path) -> None:
        file = files.open(put(files, folder / "a", b"abc"))
        for wrong in (
            # Not -1, which pwritev2 takes for "where the file stands".
            lambda: file.pread(1, -2),
            lambda: file.pwrite([b"x"], -2),
            lambda: file.truncate(-2),
        ):
            with pytest.raises(OSError) as caught:
                wrong()
            assert caught.value.errno == errno.EINVAL

    def test_two_openings_share_one_file(self, files: Files, folder: Path) -> None:
        one, two = files.open(folder / "a", create=True), files.open(folder / "a")
        one.pwrite([b"abc"], 0)
        assert two.pread(100, 0) == b"abc"


class TestSend:
    def test_sends_a_range_to_a_socket(self, files: Files, folder: Path) -> None:
        file = files.open(put(files, folder / "a", b"0123456789"))
        with closing_pair() as (one, other):
            assert file.send(one.fileno(), 4, 3) == 4
            assert file.send(one.fileno(), 100, 8) == 2
            assert file.send(one.fileno(), 100, 10) == 0
            assert other.recv(100) == b"345689"

    def test_sends_what_the_socket_takes_and_then_says_so(self, files: Files, folder: Path) -> None:
        data = random.Random(1).randbytes(1_000_000)
        file = files.open(put(files, folder / "a", data))
        with closing_pair() as (one, other):
            one.setblocking(False)
            position = 0
            with pytest.raises(BlockingIOError):
                while position < 100_000_000:
                    position += file.send(one.fileno(), len(data), position % len(data))
            assert position > 0
            other.setblocking(False)
            received = b""
            while len(received) < min(position, len(data)):
                received += other.recv(1 << 20)
            assert data.startswith(received[: len(data)])

    def test_a_slice_is_what_is_left_to_send(self, files: Files, folder: Path) -> None:
        file = files.open(put(files, folder / "a", b"0123456789"))
        rest = FileSlice(file, 2, 5)
        assert (len(rest), bytes(rest)) == (5, b"23456")
        with closing_pair() as (one, other):
            assert rest.send(one.fileno()) == 5
            assert other.recv(100) == b"23456"
        assert len(rest) == 0

    def test_what_was_just_written_is_cached(self, files: Files, folder: Path) -> None:
        file = files.open(put(files, folder / "a", b"0123456789"))
        assert file.is_cached(10, 0)


@contextlib.contextmanager
def closing_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


class TestOpen:
    def test_a_missing_file_is_not_found(self, files: Files, folder: Path) -> None:
        with pytest.raises(FileNotFoundError):
            files.open(folder / "a")
        assert not files.exists(folder / "a")

    def test_a_file_in_a_missing_folder_is_not_found(self, files: Files, folder: Path) -> None:
        with pytest.raises(FileNotFoundError):
            files.open(folder / "missing" / "a", create=True)

    def test_create_keeps_what_is_there(self, files: Files, folder: Path) -> None:
        put(files, folder / "a", b"abc")
        assert files.open(folder / "a", create=True).pread(100, 0) == b"abc"

    @pytest.mark.parametrize("create", [False, True])
    def test_a_folder_cannot_be_opened(self, files: Files, folder: Path, create: bool) -> None:
        with pytest.raises(IsADirectoryError):
            files.open(folder, create=create)

    def test_a_file_is_not_a_folder(self, files: Files, folder: Path) -> None:
        put(files, folder / "a")
        for wrong in (
            lambda: files.open(folder / "a" / "b", create=True),
            lambda: files.list(folder / "a"),
            lambda: files.make_folder(folder / "a" / "b"),
            lambda: files.make_folder(folder / "a" / "b" / "c"),
            lambda: files.remove(folder / "a" / "b"),
            lambda: files.remove_folder(folder / "a"),
            lambda: files.sync_folder(folder / "a"),
            lambda: files.sync_all(folder / "a"),
        ):
            with pytest.raises(NotADirectoryError):
                wrong()
        assert not files.exists(folder / "a" / "b")


class TestFolders:
    def test_lists_names_in_order_with_sizes(self, files: Files, folder: Path) -> None:
        put(files, folder / "b", b"12345")
        put(files, folder / "a")
        files.make_folder(folder / "c" / "deeper")
        assert list(files.list(folder).items()) == [("a", 0), ("b", 5), ("c", 0)]
        assert files.list(folder / "c" / "deeper") == {}

    def test_a_missing_folder_is_not_found(self, files: Files, folder: Path) -> None:
        for wrong in (
            lambda: files.list(folder / "missing"),
            lambda: files.remove_folder(folder / "missing"),
            lambda: files.sync_folder(folder / "missing"),
            lambda: files.sync_all(folder / "missing"),
            lambda: files.free_bytes(folder / "missing"),
            lambda: files.total_bytes(folder / "missing"),
        ):
            with pytest.raises(FileNotFoundError):
                wrong()

    def test_making_a_folder_twice_is_no_error(self, files: Files, folder: Path) -> None:
        files.make_folder(folder / "a" / "b")
        put(files, folder / "a" / "b" / "file")
        files.make_folder(folder / "a" / "b")
        assert files.list(folder / "a" / "b") == {"file": 0}

    def test_a_folder_cannot_replace_a_file(self, files: Files, folder: Path) -> None:
        put(files, folder / "a")
        with pytest.raises(FileExistsError):
            files.make_folder(folder / "a")

    def test_only_an_empty_folder_is_removed(self, files: Files, folder: Path) -> None:
        files.make_folder(folder / "a")
        put(files, folder / "a" / "file")
        with pytest.raises(OSError) as caught:
            files.remove_folder(folder / "a")
        assert caught.value.errno == errno.ENOTEMPTY
        files.remove(folder / "a" / "file")
        files.remove_folder(folder / "a")
        assert not files.exists(folder / "a")

    def test_syncs_change_nothing_visible(self, files: Files, folder: Path) -> None:
        put(files, folder / "a", b"abc")
        files.sync_folder(folder)
        files.sync_all(folder)
        assert read_whole(files, folder / "a") == b"abc"


def test_a_sync_of_everything_opens_nothing_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is opened after a write has failed may never hear of it."""
    files = OsFiles()
    files.sync_folder(tmp_path)
    monkeypatch.setattr(os, "open", None)
    files.sync_all(tmp_path)


class TestRename:
    def test_moves_a_file_between_folders(self, files: Files, folder: Path) -> None:
        files.make_folder(folder / "to")
        put(files, folder / "a", b"abc")
        files.rename(folder / "a", folder / "to" / "b")
        assert not files.exists(folder / "a")
        assert read_whole(files, folder / "to" / "b") == b"abc"

    def test_replaces_a_file_that_others_still_read(self, files: Files, folder: Path) -> None:
        old = files.open(put(files, folder / "a", b"old"))
        put(files, folder / "b", b"new")
        files.rename(folder / "b", folder / "a")
        assert read_whole(files, folder / "a") == b"new"
        assert old.pread(100, 0) == b"old"
        assert files.list(folder) == {"a": 3}

    def test_an_open_file_follows_its_name(self, files: Files, folder: Path) -> None:
        file = files.open(put(files, folder / "a"))
        files.rename(folder / "a", folder / "b")
        file.pwrite([b"abc"], 0)
        assert read_whole(files, folder / "b") == b"abc"

    def test_moves_a_folder_with_all_in_it(self, files: Files, folder: Path) -> None:
        files.make_folder(folder / "a" / "deeper")
        file = files.open(put(files, folder / "a" / "deeper" / "file", b"abc"))
        files.rename(folder / "a", folder / "b")
        assert read_whole(files, folder / "b" / "deeper" / "file") == b"abc"
        assert not files.exists(folder / "a")
        assert file.pread(100, 0) == b"abc"

    def test_replaces_an_empty_folder_only(self, files: Files, folder: Path) -> None:
        files.make_folder(folder / "a")
        files.make_folder(folder / "b")
        put(files, folder / "a" / "file")
        files.rename(folder / "a", folder / "b")
        assert files.list(folder / "b") == {"file": 0}
        files.make_folder(folder / "c")
        with pytest.raises(OSError) as caught:
            files.rename(folder / "c", folder / "b")
        assert caught.value.errno == errno.ENOTEMPTY

    def test_to_its_own_name_changes_nothing(self, files: Files, folder: Path) -> None:
        put(files, folder / "a", b"abc")
        files.rename(folder / "a", folder / "a")
        assert read_whole(files, folder / "a") == b"abc"

    def test_kinds_do_not_mix(self, files: Files, folder: Path) -> None:
        put(files, folder / "file")
        files.make_folder(folder / "folder")
        with pytest.raises(IsADirectoryError):
            files.rename(folder / "file", folder / "folder")
        with pytest.raises(NotADirectoryError):
            files.rename(folder / "folder", folder / "file")

    def test_a_folder_does_not_go_into_itself(self, files: Files, folder: Path) -> None:
        files.make_folder(folder / "a")
        with pytest.raises(OSError) as caught:
            files.rename(folder / "a", folder / "a" / "b")
        assert caught.value.errno == errno.EINVAL

    def test_a_name_can_be_too_long(self, files: Files, folder: Path) -> None:
        old = put(files, folder / "a", b"kept")
        files.rename(old, folder / ("n" * 255))
        with pytest.raises(OSError, match="too long"):
            files.rename(folder / ("n" * 255), folder / ("n" * 256))
        assert read_whole(files, folder / ("n" * 255)) == b"kept"

    def test_both_ends_must_exist(self, files: Files, folder: Path) -> None:
        put(files, folder / "a")
        with pytest.raises(FileNotFoundError):
            files.rename(folder / "missing", folder / "b")
        with pytest.raises(FileNotFoundError):
            files.rename(folder / "a", folder / "missing" / "b")
        assert files.exists(folder / "a")


class TestRemove:
    def test_a_removed_file_is_gone_but_its_readers_go_on(self, files: Files, folder: Path) -> None:
        file = files.open(put(files, folder / "a", b"abc"))
        files.remove(folder / "a")
        assert not files.exists(folder / "a")
        assert files.list(folder) == {}
        file.pwrite([b"d"], 3)
        assert file.pread(100, 0) == b"abcd"

    def test_a_new_file_of_the_same_name_is_another(self, files: Files, folder: Path) -> None:
        old = files.open(put(files, folder / "a", b"old"))
        files.remove(folder / "a")
        put(files, folder / "a", b"new")
        assert old.pread(100, 0) == b"old"
        assert read_whole(files, folder / "a") == b"new"

    def test_a_missing_file_is_not_found(self, files: Files, folder: Path) -> None:
        with pytest.raises(FileNotFoundError):
            files.remove(folder / "a")

    def test_a_folder_is_not_a_file(self, files: Files, folder: Path) -> None:
        files.make_folder(folder / "a")
        with pytest.raises(IsADirectoryError):
            files.remove(folder / "a")


class TestSpace:
    def test_tells_what_is_free(self, files: Files, folder: Path) -> None:
        assert 0 < files.free_bytes(folder) <= files.total_bytes(folder)

    def test_allocates_zeros(self, files: Files, folder: Path) -> None:
        files.allocate(folder / "a", 10_000)
        assert read_whole(files, folder / "a") == bytes(10_000)

    def test_allocating_an_existing_file_keeps_its_bytes(self, files: Files, folder: Path) -> None:
        put(files, folder / "a", b"abcdef")
        files.allocate(folder / "a", 3)
        assert read_whole(files, folder / "a") == b"abcdef"
        files.allocate(folder / "a", 8)
        assert read_whole(files, folder / "a") == b"abcdef\0\0"

    def test_allocating_nothing_is_refused(self, files: Files, folder: Path) -> None:
        with pytest.raises(OSError) as caught:
            files.allocate(folder / "a", 0)
        assert caught.value.errno == errno.EINVAL


class TestWriteAtomically:
    def test_replaces_and_leaves_nothing_beside(self, files: Files, folder: Path) -> None:
        write_atomically(files, folder / "a", b"a long first version")
        write_atomically(files, folder / "a", b"short")
        assert read_whole(files, folder / "a") == b"short"
        assert files.list(folder) == {"a": 5}

    def test_a_leftover_of_an_earlier_try_does_no_harm(self, files: Files, folder: Path) -> None:
        put(files, folder / "a.tmp", b"half of something much longer")
        write_atomically(files, folder / "a", b"short")
        assert read_whole(files, folder / "a") == b"short"


# -- descriptors


@contextlib.contextmanager
def no_descriptor() -> Iterator[None]:
    """No further file can be opened; those that are open stay so."""
    with socket.socket() as probe:
        lowest_free = probe.fileno()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_names_and_everything_can_be_synced_without_a_descriptor(tmp_path: Path) -> None:
    files = OsFiles()
    files.sync_folder(tmp_path)
    (tmp_path / "inner").mkdir()
    with no_descriptor():
        with pytest.raises(OSError, match="Too many open files"):
            files.open(tmp_path / "a", create=True)
        files.sync_folder(tmp_path / "inner")
        files.sync_all(tmp_path)
        with pytest.raises(FileNotFoundError):
            files.sync_folder(tmp_path / "nothing")


def test_what_lies_on_another_file_system_is_not_synced_without_one(tmp_path: Path) -> None:
    files = OsFiles()
    files.sync_folder(tmp_path)
    elsewhere = Path("/proc")
    with no_descriptor(), pytest.raises(OSError, match="Too many open files"):
        files.sync_folder(elsewhere)


def test_syncs_of_folders_keep_one_descriptor_and_no_more(tmp_path: Path) -> None:
    files = OsFiles()
    for _ in range(3):
        files.sync_folder(tmp_path)
        files.sync_all(tmp_path)
    with socket.socket() as probe:
        before = probe.fileno()
    files.sync_folder(tmp_path)
    files.sync_all(tmp_path)
    with socket.socket() as probe:
        assert probe.fileno() == before
    del files
    with socket.socket() as probe:
        assert probe.fileno() < before


def test_the_system_keeps_reserved_room_until_it_is_given_back(tmp_path: Path) -> None:
    path = put(OsFiles(), tmp_path / "a", b"x")
    file = OsFiles().open(path)
    try:
        file.reserve(1 << 20, 1)
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP
        pytest.skip("this file system reserves nothing")
    assert path.stat().st_blocks * 512 >= 1 << 20
    file.give_back()
    assert path.stat().st_blocks * 512 < 1 << 16
    with pytest.raises(OSError, match="Invalid argument"):
        file.reserve(0, 1)
