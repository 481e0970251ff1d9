"""Entries of a journal, and the room that is kept for the next ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.log.journal import Journal
from penstock.memory_files import MemoryFiles
from penstock.testing.faulty import FaultyFiles

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
        assert Journal(files, PATH).entries == ([] if refused[-1] else [b"entry"])
        room += 1
    assert len(refused) == len(b"entry") + 9, "refused although there was room"
