"""Entries of a journal, and the room that is kept for the next ones."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from penstock.log.journal import Journal
from penstock.memory_files import MemoryFiles
from penstock.testing.faulty import FaultyFiles
from penstock.testing.power_failure import Keep

PATH = Path("/data/some.journal")


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_folder(PATH.parent)
    return files


def test_room_for_the_next_entries_is_no_damage(files: MemoryFiles) -> None:
    journal = Journal(files, PATH)
    lengths = set()
    for number in range(100):
        journal.append(b"entry %d" % number)
        lengths.add(files.open(PATH).size())
    assert len(lengths) == 1, "the file grew with an entry, which makes its sync slow"
    again = Journal(files, PATH)
    assert again.entries == [b"entry %d" % number for number in range(100)]
    assert again.size == journal.size
    assert not again.torn


@pytest.mark.parametrize("size", [1, 16 * 1024 - 8, 16 * 1024, 100_000])
def test_entries_of_any_size(files: MemoryFiles, size: int) -> None:
    journal = Journal(files, PATH)
    entries = [bytes([number]) * size for number in range(1, 6)]
    for entry in entries:
        journal.append(entry)
    assert Journal(files, PATH).entries == entries


def test_what_follows_the_zeros_is_damage(files: MemoryFiles) -> None:
    journal = Journal(files, PATH)
    journal.append(b"first")
    files.open(PATH).pwrite([b"x"], journal.size + 100)
    again = Journal(files, PATH)
    assert again.entries == [b"first"]
    assert b"x" in again.torn


def test_an_entry_that_a_full_disk_refused_is_not_there() -> None:
    """Nor is one refused because there is no room for those after it."""
    room = 0
    refused: list[bool] = []
    while not refused or refused[-1]:
        files = FaultyFiles(capacity=None)
        files.make_folder(PATH.parent)
        journal = Journal(files, PATH)
        files.capacity = journal.size + room
        try:
            journal.append(b"entry")
        except OSError:
            refused.append(True)
        else:
            refused.append(False)
        again = Journal(files, PATH)
        assert again.entries == ([] if refused[-1] else [b"entry"])
        assert not again.torn, "half of it stays, and a start needs room to put that aside"
        room += 1
    assert len(refused) == len(b"entry") + 9, "refused although there was room"


def full_disk(*entries: bytes, torn: bytes = b"") -> FaultyFiles:
    """A journal on a disk that has no room left."""
    files = FaultyFiles()
    files.make_folder(PATH.parent)
    journal = Journal(files, PATH)
    for entry in entries:
        journal.append(entry)
    if torn:
        files.open(PATH).pwrite([torn], journal.size)
    files.sync_all(PATH.parent)
    files.capacity = files.open(PATH).size()
    return files


@pytest.mark.parametrize("torn", [b"", b"torn"])
def test_what_was_found_is_made_certain_without_room_for_a_second_file(torn: bytes) -> None:
    files = full_disk(b"first", b"second", torn=torn)
    journal = Journal(files, PATH)
    assert journal.torn.startswith(torn)
    journal.renew()
    journal.append(b"third")
    again = Journal(files, PATH)
    assert (again.entries, again.torn) == ([b"first", b"second", b"third"], b"")
    assert list(files.list(PATH.parent)) == [PATH.name]


def test_what_a_failed_sync_has_lost_is_certain_after_a_renewal_in_place() -> None:
    files = full_disk(b"first")
    journal = Journal(files, PATH)
    journal.append(b"second")
    files.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        journal.sync()
    Journal(files, PATH).renew()
    after = files.after_crash(Keep.NOTHING, random.Random(1))
    assert Journal(after, PATH).entries == [b"first", b"second"]


def test_a_disk_that_is_full_for_bytes_in_their_place_too_refuses_the_renewal() -> None:
    """As those are that never write to the same place twice."""
    files = full_disk(b"first")
    files.fail("pwrite", errno.ENOSPC, sticky=True)
    with pytest.raises(OSError, match="No space"):
        Journal(files, PATH).renew()
    files.heal()
    assert Journal(files, PATH).entries == [b"first"]
