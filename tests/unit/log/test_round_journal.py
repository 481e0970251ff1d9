"""The journal of rounds: when it is used, what is synced then, and what a start makes of it."""

from __future__ import annotations

import errno
import random

import pytest
from tests.support.log import DATA, Log, values
from tests.unit.log.rounds import (
    BLOCK,
    JOURNAL,
    ONE,
    Changed,
    after_power_failure,
    append_to,
    began,
    journal_with,
    record_ends,
    synced,
)

from penstock.broker.topic import Topic
from penstock.limits import (
    ROOM_AHEAD_FREE_BYTES_MIN,
    ROUND_JOURNAL_BYTES,
    ROUND_JOURNALED_BYTES_MAX,
    ROUND_JOURNALED_PARTITIONS_MAX,
)
from penstock.log.round_journal import Piece, is_round_journal
from penstock.memory_files import MemoryFiles
from penstock.testing.faulty import FaultyFiles
from penstock.testing.power_failure import Keep


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


# -- which rounds


def test_a_round_over_many_files_syncs_one(files: FaultyFiles) -> None:
    log, topics = began(files)
    since = len(files.trace)
    append_to(log, topics)
    assert synced(files, since) == ["rounds-1.journal"]
    assert [topic.partition(0).durable_offset for topic in topics] == [3, 3, 3]


def test_the_first_one_makes_the_journal_and_needs_none(files: FaultyFiles) -> None:
    log = Log(files)
    topics = [log.topic(name) for name in "abc"]
    since = len(files.trace)
    append_to(log, topics)
    assert synced(files, since) == ["sync_all", "rounds-1.journal", "data"]
    assert len(files.read(JOURNAL)) == ROUND_JOURNAL_BYTES


def test_a_round_over_few_files_does_without(files: FaultyFiles) -> None:
    log, topics = began(files)
    since = len(files.trace)
    append_to(log, topics[:2])
    assert synced(files, since) == ["00000000000000000000.log"] * 2


def test_a_round_with_much_to_write_does_without(files: FaultyFiles) -> None:
    log, topics = began(files)
    since = len(files.trace)
    append_to(log, topics, bytes(ROUND_JOURNALED_BYTES_MAX // 2))
    assert "sync_all" in synced(files, since)


def test_a_round_over_very_many_partitions_does_without(
    files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, topics = began(files)
    monkeypatch.setattr("penstock.log.commit.ROUND_JOURNALED_PARTITIONS_MAX", 2)
    since = len(files.trace)
    append_to(log, topics)
    assert synced(files, since) == ["sync_all"]


def test_a_disk_without_room_to_spare_does_without(files: FaultyFiles) -> None:
    files.capacity = ROOM_AHEAD_FREE_BYTES_MIN
    log, topics = began(files)
    since = len(files.trace)
    append_to(log, topics)
    assert synced(files, since) == ["sync_all"]
    assert not files.exists(JOURNAL)


def test_a_journal_that_cannot_be_made_leaves_nothing(files: FaultyFiles) -> None:
    log = Log(files)
    topics = [log.topic(name) for name in "abc"]
    files.fail("create", errno.EMFILE)
    append_to(log, topics)
    files.fail("sync", errno.EIO)
    append_to(log, topics)
    assert [topic.partition(0).durable_offset for topic in topics] == [2, 2, 2]
    assert not files.exists(JOURNAL)


def test_what_was_not_synced_before_goes_along(files: FaultyFiles) -> None:
    """Bytes of a topic that was not synced stand before those that are."""
    log, topics = began(files)
    log.broker.configure(topics[0], {"penstock.durability": "os"})
    log.commit()
    log.append(topics[0], b"not synced")
    log.broker.configure(topics[0], {})
    log.commit()
    append_to(log, topics)
    again, _ = after_power_failure(files)
    assert values(again.broker.topic("a").partition(0)) == [b"x", b"x", b"not synced", b"x"]


# -- a full one


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that is full after a few entries."""
    monkeypatch.setattr("penstock.log.round_journal.ROUND_JOURNAL_BYTES", 8 * BLOCK)
    monkeypatch.setattr("penstock.log.round_journal.ROUND_JOURNALED_BYTES_MAX", BLOCK)


def fill(log: Log, topics: list[Topic]) -> None:
    """Two more entries, after which there is no room for another of the largest size."""
    for _ in range(2):
        append_to(log, topics)


@pytest.mark.usefixtures("small")
def test_a_full_one_is_settled_file_by_file_and_begins_anew(files: FaultyFiles) -> None:
    log, topics = began(files)
    fill(log, topics)
    since = len(files.trace)
    append_to(log, topics[:1])
    assert synced(files, since) == ["00000000000000000000.log"] * 3
    since = len(files.trace)
    append_to(log, topics)
    assert f" pwrite {JOURNAL} {BLOCK}+{BLOCK}" in " ".join(files.trace[since:])
    ends = [topic.partition(0).end_offset for topic in topics]
    again, _ = after_power_failure(files)
    assert [again.broker.topic(name).partition(0).end_offset for name in "abc"] == ends


@pytest.mark.usefixtures("small")
def test_one_of_very_many_partitions_is_settled_by_one_sync(
    files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.commit.SETTLE_ONE_BY_ONE_MAX", 2)
    log, topics = began(files)
    fill(log, topics)
    since = len(files.trace)
    append_to(log, topics[:1])
    append_to(log, topics)
    assert synced(files, since) == ["sync_all", "rounds-1.journal"]


@pytest.mark.usefixtures("small")
def test_it_begins_anew_when_all_have_been_synced_for_another_reason(files: FaultyFiles) -> None:
    log, topics = began(files)
    append_to(log, topics)
    append_to(log, topics[:2])
    append_to(log, topics[2:])
    since = len(files.trace)
    append_to(log, topics)
    assert f" pwrite {JOURNAL} {BLOCK}+{BLOCK}" in " ".join(files.trace[since:])


def test_one_that_is_full_of_what_was_deleted_begins_anew(files: FaultyFiles) -> None:
    log, topics = began(files)
    others = [log.topic(name) for name in "def"]
    largest = bytes(ROUND_JOURNALED_BYTES_MAX // 3 - 200)
    for _ in range(ROUND_JOURNAL_BYTES // ROUND_JOURNALED_BYTES_MAX - 1):  # a next one has no room
        append_to(log, topics, largest)
    for topic in topics:
        log.store.delete_topic(topic.entry, topic.whole_partitions(), lambda: None)
    for _ in range(2):
        since = len(files.trace)
        append_to(log, others, largest)
    assert synced(files, since) == ["rounds-1.journal"]
    again, _ = after_power_failure(files)
    assert [values(again.broker.topic(name).partition(0)) for name in "def"] == [[largest] * 2] * 3


@pytest.mark.parametrize("seed", range(20))
def test_what_it_has_of_a_topic_stays_until_the_deletion_is_durable(
    files: FaultyFiles, seed: int
) -> None:
    """Or the power fails when other entries have taken the place of those, and the deletion is lost."""
    log, topics = began(files)
    other = log.topic("d")
    append_to(log, topics)
    log.append(other, b"x")
    end_round = log.start_round()
    for topic in topics:
        log.store.delete_topic(topic.entry, topic.whole_partitions(), lambda: None)
    end_round()
    for name in "efg":
        log.append(log.broker.create_topic(name, 1, {}), b"x")
    log.start_round()
    again = Log(files.after_crash(Keep.PAGES_4096, random.Random(seed)))
    for name in {"a", "b", "c"} & {topic.name for topic in again.broker.topics()}:
        assert values(again.broker.topic(name).partition(0)) == [b"x"] * 3


def test_where_a_topic_begins_is_known_until_the_deletion_is_durable(files: FaultyFiles) -> None:
    log, topics = began(files)
    log.broker.delete_records(topics[0].partition(0), 2)
    log.commit()
    log.store.delete_topic(topics[0].entry, topics[0].whole_partitions(), lambda: None)
    log.store.positions.rewrite()
    again = Log(files.after_crash(Keep.NOTHING, random.Random(1)))
    assert again.broker.topic("a").partition(0).start_offset == 2


# -- failures


@pytest.mark.usefixtures("small")
def test_what_cannot_be_settled_is_left_to_the_next_start(files: FaultyFiles) -> None:
    log, topics = began(files)
    fill(log, topics)
    durable = topics[1].partition(0).durable_offset
    files.fail("sync", errno.EIO, at=2)
    append_to(log, topics[:1])
    assert [bool(topic.partition(0).offline) for topic in topics] == [False, True, False]
    since = len(files.trace)
    rest = [topics[0], topics[2], log.topic("d")]
    append_to(log, rest)
    append_to(log, rest)
    assert "rounds-1.journal" not in synced(files, since)
    again, found = after_power_failure(files)
    assert again.broker.topic("b").partition(0).end_offset == durable
    assert not found.exists(JOURNAL)


def test_a_sync_of_it_that_fails_takes_out_those_it_was_for(files: FaultyFiles) -> None:
    log, topics = began(files)
    other = log.topic("d")
    files.fail("sync", errno.EIO)
    append_to(log, topics)
    assert all(topic.partition(0).offline for topic in topics)
    assert [topic.partition(0).durable_offset for topic in topics] == [2, 2, 2]
    log.append(other, b"x")
    log.commit()
    assert other.partition(0).durable_offset == 1
    again, _ = after_power_failure(files)
    ends = [again.broker.topic(name).partition(0).end_offset for name in "abcd"]
    assert ends == [2, 2, 2, 1]


def test_a_write_to_it_that_fails_costs_nothing_else(files: FaultyFiles) -> None:
    log, topics = began(files)
    append_to(log, topics)
    for topic in topics:
        log.append(topic, b"x")
    files.fail("pwrite", errno.ENOSPC)
    log.commit()
    assert [topic.partition(0).durable_offset for topic in topics] == [4, 4, 4]
    assert not any(topic.partition(0).offline for topic in topics)


def test_with_something_else_in_doubt_it_stays_after_a_stop(files: FaultyFiles) -> None:
    log, topics = began(files)
    append_to(log, topics)
    topics[1].partition(0).fail("a test says so")
    log.broker.close()
    assert files.exists(JOURNAL)


# -- the next start


def test_a_stop_in_order_leaves_none(files: FaultyFiles) -> None:
    log, topics = began(files)
    append_to(log, topics)
    log.restart(clean=True)
    assert not files.exists(JOURNAL)
    assert [len(values(log.broker.topic(name).partition(0))) for name in "abc"] == [3, 3, 3]


def test_after_a_power_failure_everything_is_there_and_the_journal_is_not(
    files: FaultyFiles,
) -> None:
    log, topics = began(files)
    append_to(log, topics, b"in the journal")
    again, found = after_power_failure(files)
    assert not found.exists(JOURNAL)
    for name in "abc":
        assert values(again.broker.topic(name).partition(0)) == [b"x", b"x", b"in the journal"]


def test_what_was_brought_back_is_synced_before_the_journal_goes(files: FaultyFiles) -> None:
    log, topics = began(files)
    append_to(log, topics)
    record_ends(log)
    _, found = after_power_failure(files)
    again, _ = after_power_failure(found)
    assert [len(values(again.broker.topic(name).partition(0))) for name in "abc"] == [3, 3, 3]


def test_after_a_kill_what_the_page_cache_holds_is_written_again_before_the_journal_goes(
    files: FaultyFiles,
) -> None:
    """After a sync that failed only the journal has it for certain, and no other sync would do."""
    log, topics = began(files)
    append_to(log, topics)
    record_ends(log)
    files.fail("sync", errno.EIO)
    append_to(log, topics[:1])
    assert topics[0].partition(0).offline
    killed = files.after_crash(Keep.EVERYTHING, random.Random(1))
    Log(killed)
    again, _ = after_power_failure(killed)
    assert [len(values(again.broker.topic(name).partition(0))) for name in "bc"] == [3, 3]
    assert len(values(again.broker.topic("a").partition(0))) >= 3


def test_pieces_of_deleted_topics_go_with_the_journal(files: FaultyFiles) -> None:
    log, topics = began(files)
    append_to(log, topics)
    log.broker.delete_topic(topics[1])
    log.commit()
    again, found = after_power_failure(files)
    assert [topic.name for topic in again.broker.topics()] == ["a", "c"]
    assert not [name for name in found.list(DATA) if is_round_journal(name)]


# -- the file


def test_the_largest_entry_fits_a_journal_that_is_not_full() -> None:
    memory = MemoryFiles()
    memory.make_folder(DATA)
    each = ROUND_JOURNALED_BYTES_MAX // ROUND_JOURNALED_PARTITIONS_MAX
    pieces = [Piece(ONE, 0, 0, bytes(each))] * ROUND_JOURNALED_PARTITIONS_MAX
    journal = journal_with(memory)
    while not journal.is_full:
        assert journal.write([Changed(piece) for piece in pieces])
    assert memory.open(JOURNAL).size() == ROUND_JOURNAL_BYTES
