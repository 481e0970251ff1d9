"""Logs whose commit rounds go through the journal of rounds, and such journals by themselves."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

from tests.support.log import DATA, Log

from penstock.broker.topic import Topic
from penstock.limits import POSITIONS_SYNC_SECONDS
from penstock.log.positions import PartitionId
from penstock.log.round_journal import Piece, RoundJournal
from penstock.memory_files import MemoryFiles
from penstock.testing.faulty import FaultyFiles
from penstock.testing.power_failure import Keep

JOURNAL = DATA / "rounds-1.journal"
BLOCK = 4096
ONE = PartitionId(UUID(int=1), 0)
TWO = PartitionId(UUID(int=2), 3)


def began(files: FaultyFiles) -> tuple[Log, list[Topic]]:
    """Three topics that a round has been through, which has made the journal."""
    log = Log(files)
    topics = [log.topic(name) for name in "abc"]
    for _ in range(2):
        append_to(log, topics)
    return log, topics


def append_to(log: Log, topics: list[Topic], value: bytes = b"x") -> None:
    for topic in topics:
        log.append(topic, value)
    log.commit()


def synced(files: FaultyFiles, since: int) -> list[str]:
    """What was synced from an operation on: names, or the kind of sync."""
    found = [line.split() for line in files.trace[since:]]
    return [f[1] if f[1] == "sync_all" else Path(f[2]).name for f in found if "sync" in f[1]]


def after_power_failure(files: FaultyFiles) -> tuple[Log, FaultyFiles]:
    found = files.after_crash(Keep.NOTHING, random.Random(1))
    return Log(found), found


def record_ends(log: Log) -> None:
    """The durable ends are known from here on: recovery does not write again what is below them."""
    log.clock.advance(POSITIONS_SYNC_SECONDS)
    log.store.commit.record_ends()
    log.commit()


def flip(files: MemoryFiles | FaultyFiles, path: Path, position: int) -> None:
    file = files.open(path)
    file.pwrite([bytes([file.pread(1, position)[0] ^ 1])], position)


class Changed:
    def __init__(self, piece: Piece) -> None:
        self.read_new = lambda: piece


def journal_with(files: MemoryFiles, *entries: list[Piece]) -> RoundJournal:
    journal = RoundJournal(files, DATA)
    journal.prepare()
    for entry in entries:
        assert journal.write([Changed(piece) for piece in entry])
    return journal
