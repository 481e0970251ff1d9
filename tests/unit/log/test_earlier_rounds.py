"""What a start and a repair make of the journals of rounds, whole or damaged."""

from __future__ import annotations

import errno
import random
from struct import pack, unpack_from
from uuid import UUID

import pytest
from tests.support.log import DATA, Log, values
from tests.unit.log.rounds import (
    BLOCK,
    JOURNAL,
    ONE,
    TWO,
    Changed,
    append_to,
    began,
    flip,
    journal_with,
    record_ends,
)

from penstock.crc32c import crc32c
from penstock.files import read_whole
from penstock.log.earlier_rounds import EarlierRounds
from penstock.log.positions import PartitionId
from penstock.log.repair import Choice, execute, plan
from penstock.log.round_journal import Piece
from penstock.memory_files import MemoryFiles
from penstock.testing.faulty import FaultyFiles
from penstock.testing.power_failure import Keep

FOLDER = DATA / "topics" / "a-0"
SEGMENT = FOLDER / "00000000000000000000.log"


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def memory() -> MemoryFiles:
    files = MemoryFiles()
    files.make_folder(DATA)
    return files


def test_pieces_are_found_again_in_their_order(memory: MemoryFiles) -> None:
    first, second = Piece(ONE, 0, 69, b"first"), Piece(TWO, 2**40, 2**33, bytes(10_000))
    third = Piece(ONE, 0, 74, b"")
    journal_with(memory, [first, second], [third])
    found = EarlierRounds(memory, DATA)
    assert found.of(ONE) == [first, third]
    assert found.of(TWO) == [second]
    assert found.of(PartitionId(UUID(int=9), 0)) == ()


def test_entries_from_before_it_began_anew_do_not_count(memory: MemoryFiles) -> None:
    journal = journal_with(memory, *[[Piece(ONE, 0, at, b"old")] for at in range(3)])
    journal.begin_anew()
    assert journal.write([Changed(Piece(ONE, 0, 9, b"new"))])
    assert EarlierRounds(memory, DATA).of(ONE) == [Piece(ONE, 0, 9, b"new")]


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 8, 15, 16, 50, 56])
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_an_entry_that_is_not_whole_is_passed_over(
    memory: MemoryFiles, damaged: int, at: int
) -> None:
    pieces = [Piece(ONE, 0, number, b"data") for number in range(3)]
    journal_with(memory, *[[piece] for piece in pieces])
    flip(memory, JOURNAL, (1 + damaged) * BLOCK + at)
    del pieces[damaged]
    assert EarlierRounds(memory, DATA).of(ONE) == pieces


def test_behind_a_torn_first_entry_are_those_from_before(memory: MemoryFiles) -> None:
    """They do no harm: what they speak of was synced elsewhere."""
    journal = journal_with(memory, *[[Piece(ONE, 0, at, b"old")] for at in range(3)])
    journal.begin_anew()
    assert journal.write([Changed(Piece(ONE, 0, 9, bytes(BLOCK)))])
    flip(memory, JOURNAL, BLOCK)
    assert EarlierRounds(memory, DATA).of(ONE) == [Piece(ONE, 0, 2, b"old")]


@pytest.mark.parametrize("content", [b"", b"PENRN", bytes(BLOCK), b"PENRNDS1", b"\xff" * 9000])
def test_what_is_no_journal_holds_nothing(memory: MemoryFiles, content: bytes) -> None:
    memory.open(JOURNAL, create=True).pwrite([content], 0)
    assert EarlierRounds(memory, DATA).of(ONE) == ()


def test_what_is_kept_for_a_partition_is_all_that_stays(memory: MemoryFiles) -> None:
    journal_with(memory, [Piece(ONE, 0, 0, b"one"), Piece(TWO, 0, 0, b"two")])
    found = EarlierRounds(memory, DATA)
    found.opened(ONE)
    found.settle({ONE.topic_id, TWO.topic_id})
    assert list(memory.list(DATA)) == ["rounds-2.journal"]
    again = EarlierRounds(memory, DATA)
    assert again.of(ONE) == ()
    assert again.of(TWO) == [Piece(TWO, 0, 0, b"two")]
    again.settle({ONE.topic_id})
    assert list(memory.list(DATA)) == []


def test_the_journals_of_several_runs_are_read_in_their_order(memory: MemoryFiles) -> None:
    for number in range(11):
        journal_with(memory, [Piece(ONE, 0, number, b"x")])
    assert [piece.position for piece in EarlierRounds(memory, DATA).of(ONE)] == list(range(11))


# -- damage


def damaged(log: Log) -> list[str]:
    """Those of the three topics whose partition is refused."""
    return [name for name in "abc" if not log.broker.topic(name).whole_partitions()]


def test_damage_below_it_is_not_taken_for_a_torn_tail(files: FaultyFiles) -> None:
    log, topics = began(files)
    append_to(log, topics, b"in the journal")
    found = files.after_crash(Keep.NOTHING, random.Random(1))
    flip(found, SEGMENT, 62)
    again = Log(found)
    assert damaged(again) == ["a"]
    assert len(EarlierRounds(found, DATA).of(PartitionId(topics[0].entry.id, 0))) == 2
    assert values(again.broker.topic("b").partition(0)) == [b"x", b"x", b"in the journal"]


def test_what_follows_a_damaged_entry_is_not_passed_over_in_silence(
    files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(files)
    topics = [log.topic(name) for name in "abcd"]
    for _ in range(2):
        append_to(log, topics)
    append_to(log, topics[1:])
    found = files.after_crash(Keep.NOTHING, random.Random(1))
    flip(found, JOURNAL, BLOCK + 200)
    again = Log(found)
    assert damaged(again) == ["b", "c"]
    assert values(again.broker.topic("a").partition(0)) == [b"x"], "nothing speaks for its second"
    assert "its first entry is not whole" in caplog.text
    assert list(found.list(DATA / "quarantine")) == ["rounds-1.journal.damaged.0"]
    assert found.exists(DATA / "rounds-2.journal"), "for those that were refused"


def test_a_damaged_entry_costs_nothing_that_stands_elsewhere(files: FaultyFiles) -> None:
    log, topics = began(files)
    append_to(log, topics)
    killed = files.after_crash(Keep.EVERYTHING, random.Random(1))
    flip(killed, JOURNAL, BLOCK + 200)
    again = Log(killed)
    assert [len(values(again.broker.topic(name).partition(0))) for name in "abc"] == [3, 3, 3]


@pytest.mark.parametrize(
    ("choice", "left"), [(Choice.TRUNCATE, []), (Choice.SKIP, [b"x", b"in the journal"])]
)
def test_a_repair_keeps_what_follows_and_puts_all_of_it_aside(
    files: FaultyFiles, choice: Choice, left: list[bytes]
) -> None:
    log, topics = began(files)
    append_to(log, topics, b"in the journal")
    found = files.after_crash(Keep.NOTHING, random.Random(1))
    flip(found, SEGMENT, 62)
    Log(found)
    chosen = plan(found, DATA, FOLDER, choice, log.clock)
    assert [loss.first_offset for loss in chosen.losses] == [0]
    aside = execute(found, DATA, FOLDER, chosen, log.clock)
    again = Log(found)
    assert damaged(again) == []
    partition = again.broker.topic("a").partition(0)
    assert values(partition, partition.start_offset) == left
    kept = EarlierRounds(found, aside).of(PartitionId(topics[0].entry.id, 0))
    assert b"in the journal" in kept[-1].data


def test_a_repair_of_an_early_segment_keeps_the_end(files: FaultyFiles) -> None:
    log = Log(files)
    topics = [log.topic("a", {"segment.bytes": "1048576"}), log.topic("b"), log.topic("c")]
    for _ in range(2):
        append_to(log, topics)
    for _ in range(2):
        log.append(topics[0], bytes(700_000))
        log.commit()
    append_to(log, topics)
    record_ends(log)
    append_to(log, topics, b"in the journal")
    end = topics[0].partition(0).durable_offset
    found = files.after_crash(Keep.NOTHING, random.Random(1))
    flip(found, SEGMENT, 62)
    for name in [name for name in found.list(FOLDER) if name.endswith(".checkpoint")]:
        found.remove(FOLDER / name)
    assert damaged(Log(found)) == ["a"]
    chosen = plan(found, DATA, FOLDER, Choice.SKIP, log.clock)
    assert [(loss.first_offset, loss.next_offset) for loss in chosen.losses] == [(0, 1)]
    execute(found, DATA, FOLDER, chosen, log.clock)
    assert Log(found).broker.topic("a").partition(0).end_offset == end


def test_before_the_first_start_a_repair_counts_it_in(files: FaultyFiles) -> None:
    log, topics = began(files)
    append_to(log, topics)
    found = files.after_crash(Keep.NOTHING, random.Random(1))
    assert not plan(found, DATA, FOLDER, Choice.SKIP, log.clock).losses
    file = found.open(SEGMENT)
    file.pwrite([bytes(50)], file.size())
    chosen = plan(found, DATA, FOLDER, Choice.TRUNCATE, log.clock)
    assert (chosen.losses, chosen.end_offset) == ([], 3)


def test_a_repair_leaves_what_others_have_in_it(files: FaultyFiles) -> None:
    log, topics = began(files)
    append_to(log, topics, b"in the journal")
    found = files.after_crash(Keep.NOTHING, random.Random(1))
    flip(found, SEGMENT, 62)
    chosen = plan(found, DATA, FOLDER, Choice.TRUNCATE, log.clock)
    execute(found, DATA, FOLDER, chosen, log.clock)
    again = Log(found)
    assert [again.broker.topic(name).partition(0).end_offset for name in "abc"] == [0, 3, 3]


def test_a_repair_is_needed_where_only_it_knows_of_what_is_missing(files: FaultyFiles) -> None:
    log, topics = began(files)
    append_to(log, topics)
    found = files.after_crash(Keep.NOTHING, random.Random(1))
    flip(found, JOURNAL, BLOCK + 200)
    again = Log(found)
    assert damaged(again) == ["a", "b", "c"]
    (loss,) = plan(found, DATA, FOLDER, Choice.SKIP, log.clock).losses
    assert (loss.first_offset, loss.next_offset) == (1, 2)


@pytest.mark.parametrize("position", [3, 10, 17])
def test_a_damaged_first_block_is_said_and_costs_nothing(
    files: FaultyFiles, caplog: pytest.LogCaptureFixture, position: int
) -> None:
    log, topics = began(files)
    append_to(log, topics)
    found = files.after_crash(Keep.NOTHING, random.Random(1))
    flip(found, JOURNAL, position)
    again = Log(found)
    assert [again.broker.topic(name).partition(0).end_offset for name in "abc"] == [3, 3, 3]
    assert "it is damaged" in caplog.text
    assert list(found.list(DATA / "quarantine")) == ["rounds-1.journal.damaged.0"]


def test_damage_is_said_on_a_full_disk_too(
    files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    log, topics = began(files)
    for _ in range(2):
        append_to(log, topics)
    found = files.after_crash(Keep.EVERYTHING, random.Random(1))
    flip(found, JOURNAL, 2 * BLOCK + 200)
    found.fail("any", errno.ENOSPC, sticky=True)
    EarlierRounds(found, DATA).settle({topic.entry.id for topic in topics})
    assert "it is damaged" in caplog.text
    found.heal()
    assert found.exists(JOURNAL)


def forged(generation: int, payload: bytes) -> bytes:
    content = pack(">Q", generation) + payload
    return pack(">II", len(content), crc32c(content)) + content


@pytest.mark.parametrize("payload", [b"", bytes(10), bytes(40)])
def test_what_a_client_has_sent_is_not_taken_for_an_entry(
    memory: MemoryFiles, payload: bytes
) -> None:
    data = bytes(BLOCK - 56) + forged(1, payload) + bytes(2 * BLOCK)
    journal_with(memory, [Piece(ONE, 0, 0, data)], [Piece(ONE, 0, len(data), b"after")])
    whole = read_whole(memory, JOURNAL)
    assert whole.index(forged(1, payload)) % BLOCK == 0
    flip(memory, JOURNAL, BLOCK)
    assert EarlierRounds(memory, DATA).of(ONE) == [Piece(ONE, 0, len(data), b"after")]


@pytest.mark.parametrize("content", [bytes(10), pack(">16siqqI", ONE.topic_id.bytes, 0, 0, 0, 99)])
def test_an_entry_that_cannot_be_taken_apart_is_passed_over(
    memory: MemoryFiles, content: bytes
) -> None:
    journal_with(memory, [Piece(ONE, 0, 0, b"data")])
    file = memory.open(JOURNAL)
    (generation,) = unpack_from(">Q", file.pread(8, BLOCK + 8))
    file.pwrite([forged(generation, content)], 2 * BLOCK)
    assert EarlierRounds(memory, DATA).of(ONE) == [Piece(ONE, 0, 0, b"data")]


def test_what_is_kept_takes_little_more_room_than_it_has(memory: MemoryFiles) -> None:
    journal_with(memory, *[[Piece(TWO, 0, at, b"x" * 100)] * 100 for at in range(10)])
    EarlierRounds(memory, DATA).settle({TWO.topic_id})
    assert len(read_whole(memory, DATA / "rounds-2.journal")) < 50 * BLOCK
    assert len(EarlierRounds(memory, DATA).of(TWO)) == 1000
