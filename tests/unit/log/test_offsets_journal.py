"""The journal of offsets: its lines, and when it is rewritten."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.log.committed import Committed, Offsets, line_of, offsets_of
from penstock.log.offsets import OffsetsJournal, committed, group_deleted
from penstock.log.positions import PartitionId
from penstock.memory_files import MemoryFiles

PATH = Path("/data/offsets.journal")
TOPIC = uuid4()


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_folder(PATH.parent)
    return files


def offsets(number: int, partitions: int = 1, metadata: str = "") -> Offsets:
    return {
        PartitionId(TOPIC, partition): Committed(number, -1, metadata, number)
        for partition in range(partitions)
    }


def play(journal: OffsetsJournal) -> None:
    """A commit round, as commit.py makes it."""
    if journal.must_be_rewritten:
        journal.hand_over()()
    elif journal.begin_round() is not None:
        journal.finish_round(synced=True)


@pytest.mark.parametrize(
    "text", ["", 'quotes " and \\ \n', "gr\u00fc\u00dfe \U0001f600", "\u2028\x00"]
)
def test_a_line_is_json_whatever_the_names_are(text: str) -> None:
    line = line_of(text, text, offsets(2**60, 3, text))
    assert b"\n" not in line
    fields = json.loads(line)
    assert (fields["group"], fields["type"]) == (text, text)
    assert offsets_of(fields) == {
        p: c._replace(time_ms=2**60) for p, c in offsets(2**60, 3, text).items()
    }


def test_it_is_bounded_by_what_counts(files: MemoryFiles) -> None:
    """However many commits there are, and with ever more groups."""
    journal = OffsetsJournal(files, PATH)
    largest = 0
    for number in range(3000):
        for group in range(20):
            journal.queue(committed(f"group-{(number // 100) * 20 + group}", "", offsets(number)))
        play(journal)
        largest = max(largest, files.open(PATH).size())
    assert len(journal.groups) == 600
    assert largest < 5 << 20
    assert OffsetsJournal(files, PATH).groups == journal.groups


def test_a_round_that_is_written_by_the_thread_loses_nothing(files: MemoryFiles) -> None:
    journal = OffsetsJournal(files, PATH)
    number = 0
    while not journal.must_be_rewritten:
        number += 1
        journal.queue(committed("g", "consumer", offsets(number, 100)))
        journal.queue(committed("gone", "consumer", offsets(number, 100)))
        play(journal)
    last = committed("g", "consumer", offsets(number + 1, 100))
    journal.queue(last)
    journal.queue(group_deleted("gone"))
    play(journal)
    assert last.durable
    assert not journal.must_be_rewritten
    found = OffsetsJournal(files, PATH).groups
    assert found.keys() == {"g"}
    assert found["g"].offsets == offsets(number + 1, 100)


def test_what_was_not_synced_does_not_count(files: MemoryFiles) -> None:
    journal = OffsetsJournal(files, PATH)
    change = committed("g", "", offsets(1))
    journal.queue(change)
    assert journal.begin_round() is not None
    journal.finish_round(synced=False)
    assert not change.durable
    assert journal.groups == {}
