"""Small mishaps, each once: what is asked for may be refused, but nothing else stops or is lost."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from weakref import WeakSet

import pytest
from tests.support.log import DATA, NOW, Log, values

from penstock.broker.topic import Topic
from penstock.errors import DiskFullError, OfflineError, StorageError
from penstock.files import OsFiles
from penstock.limits import DISK_FREE_BYTES_MIN, TOPIC_NAME_CHARS_MAX
from penstock.log.positions import PartitionId, Position, Positions
from penstock.log.reading import newest_by_time
from penstock.memory_files import failure
from penstock.testing.faulty import FaultyFile, FaultyFiles
from penstock.testing.power_failure import Keep

DAY_MS = 24 * 3600 * 1000
LONGEST = "n" * TOPIC_NAME_CHARS_MAX


def end_rounds(log: Log) -> None:
    """Everything that waits, and everything that it leaves to the background."""
    log.commit()
    while log.background:
        log.background.pop(0)()


def kill(log: Log) -> None:
    """A kill and a start."""
    log.restart(clean=False)


def old_segments(log: Log, name: str = "old") -> Topic:
    """A topic with two segments that retention removes, and one that is written."""
    topic = log.topic(name, {"segment.bytes": "250", "retention.ms": str(DAY_MS)})
    for age in (3, 3, 0):
        log.append(topic, bytes(150), timestamp=NOW - age * DAY_MS)
        log.commit()
    assert len(topic.partition(0).segments) == 3
    return topic


def disk(log: Log) -> FaultyFiles:
    """The disk that a log was given."""
    assert isinstance(log.files, FaultyFiles)
    return log.files


def fill(log: Log) -> None:
    """Another program takes all room that is left."""
    files = disk(log)
    files.capacity = sum(len(files.read(path)) for path in files.paths())


# -- long names


def test_a_topic_with_the_longest_name_can_be_deleted() -> None:
    log = Log(FaultyFiles())
    other = log.topic("other")
    log.broker.delete_topic(log.topic(LONGEST))
    end_rounds(log)
    log.append(other, b"goes on")
    log.commit()
    kill(log)
    assert [topic.name for topic in log.broker.topics()] == ["other"]
    assert list(log.files.list(DATA / "topics")) == ["other-0"]


def test_a_deletion_of_the_longest_name_is_finished_by_the_next_start() -> None:
    log = Log(FaultyFiles())
    log.broker.delete_topic(log.topic(LONGEST))
    kill(log)
    end_rounds(log)
    assert not log.files.list(DATA / "topics")


def test_a_torn_tail_below_the_longest_name_is_kept() -> None:
    log = Log(FaultyFiles())
    topic = log.topic(LONGEST)
    log.append(topic, b"whole")
    log.commit()
    segment = topic.partition(0).active
    segment.file.pwrite([b"torn"], segment.size)
    kill(log)
    assert values(log.broker.topic(LONGEST).partition(0)) == [b"whole"]
    assert len(log.files.list(DATA / "quarantine")) == 1


# -- rounds


def test_a_mistake_in_a_round_ends_it_and_takes_everything_offline() -> None:
    log = Log(FaultyFiles())
    topic = log.topic()

    def mistaken() -> None:
        raise ValueError("a mistake")

    answered: list[bool] = []
    log.broker.commit.metadata_changed(mistaken)
    log.broker.commit.after(lambda: answered.append(True))
    log.commit()
    assert answered
    with pytest.raises(OfflineError, match="a mistake"):
        log.append(topic, b"x")


def test_an_old_segment_that_somebody_removed_is_no_longer_there_to_be_removed() -> None:
    log = Log(FaultyFiles())
    topic = old_segments(log)
    partition = topic.partition(0)
    for path in partition.segments[0].paths():
        log.files.remove(path)
    log.broker.keep_retention()
    end_rounds(log)
    log.append(topic, b"new")
    log.commit()
    assert values(partition, partition.start_offset)[-1] == b"new"


# -- a full disk


def test_a_moment_without_room_does_not_end_the_journal_of_durable_ends() -> None:
    log = Log(FaultyFiles())
    topic = old_segments(log)
    kill(log)
    topic = log.broker.topic("old")
    disk(log).fail("pwrite", errno.ENOSPC, at=1, sticky=True)
    log.broker.keep_retention()
    log.commit()
    disk(log).heal()
    assert topic.partition(0).offline is None
    assert topic.partition(0).start_offset == 2
    log.clock.advance(2)
    log.append(topic, b"x")
    log.commit()
    positions = Positions(log.files, DATA / "positions.journal", log.clock)
    assert positions.get(PartitionId(topic.entry.id, 0)).start == 2


def test_a_disk_that_others_fill_is_noticed_though_little_is_written() -> None:
    log = Log(FaultyFiles())
    topic = log.topic()
    log.append(topic, b"x")
    log.commit()
    disk(log).capacity = DISK_FREE_BYTES_MIN // 2
    log.broker.keep_retention()
    with pytest.raises(DiskFullError):
        log.append(topic, b"y")
    disk(log).capacity = None
    log.broker.keep_retention()
    log.append(topic, b"y")


def test_a_disk_without_a_file_to_give_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise room would be found again after each write that was refused."""
    assert OsFiles().free_bytes(tmp_path) > 0
    seen = os.statvfs(tmp_path)
    monkeypatch.setattr(
        os, "statvfs", lambda _: SimpleNamespace(f_files=9, f_favail=0, **room(seen))
    )
    assert OsFiles().free_bytes(tmp_path) == 0
    monkeypatch.setattr(
        os, "statvfs", lambda _: SimpleNamespace(f_files=0, f_favail=0, **room(seen))
    )
    assert OsFiles().free_bytes(tmp_path) > 0


def room(seen: os.statvfs_result) -> dict[str, int]:
    return {"f_bavail": seen.f_bavail, "f_frsize": seen.f_frsize}


def test_the_reserve_is_given_up_for_a_new_setting() -> None:
    log = Log(FaultyFiles())
    topic, other = log.topic(), log.topic("other")
    log.append(topic, b"x")
    log.commit()
    assert log.files.exists(DATA / "reserve")
    fill(log)
    log.broker.configure(topic, {"retention.ms": "60000"})
    log.commit()
    assert log.broker.commit.metadata_failed is None
    assert not log.files.exists(DATA / "reserve")
    disk(log).capacity = None
    log.clock.advance(60)
    log.append(other, b"room again")


def test_a_new_setting_holds_though_there_is_no_room_to_repeat_it_beside_the_partition() -> None:
    log = Log(FaultyFiles())
    topic = log.topic()
    log.append(topic, b"x")
    log.commit()
    log.files.remove(DATA / "reserve")
    log.broker.configure(topic, {"retention.ms": "60000"})
    fill(log)
    log.commit()
    assert log.broker.commit.metadata_failed is None
    disk(log).capacity = None
    kill(log)
    assert log.broker.topic("t").entry.config == {"retention.ms": "60000"}
    assert values(log.broker.topic("t").partition(0)) == [b"x"]


def test_a_start_after_a_kill_uses_the_reserve() -> None:
    log = Log(FaultyFiles())
    log.append(log.topic(), b"x")
    log.commit()
    fill(log)
    kill(log)
    assert values(log.broker.topic("t").partition(0)) == [b"x"]


def test_a_start_after_a_kill_needs_no_room() -> None:
    """The reserve has been given up before, and something else has taken that as well."""
    log = Log(FaultyFiles())
    topic = log.topic()
    log.append(topic, b"x")
    log.commit()
    log.files.remove(DATA / "reserve")
    fill(log)
    kill(log)
    topic = log.broker.topic("t")
    assert values(topic.partition(0)) == [b"x"]
    with pytest.raises(DiskFullError):
        log.append(topic, b"y")
    log.broker.delete_topic(topic)
    end_rounds(log)
    assert log.broker.commit.metadata_failed is None
    kill(log)
    assert not log.broker.topics()


def test_what_a_full_disk_refused_does_not_keep_the_next_start_from_its_work() -> None:
    log = Log(FaultyFiles())
    log.append(log.topic(), b"x")
    log.commit()
    log.files.remove(DATA / "reserve")
    fill(log)
    with pytest.raises(OSError, match="No space"):
        log.store.put_quota("c" * 20_000, {"producer_byte_rate": 1.0})
    kill(log)
    assert values(log.broker.topic("t").partition(0)) == [b"x"]


def test_one_partition_that_cannot_be_rolled_keeps_no_other_from_being_shortened() -> None:
    log = Log(FaultyFiles())
    stuck = log.topic("a-stuck", {"retention.ms": str(DAY_MS)})
    log.append(stuck, b"x", timestamp=NOW - 3 * DAY_MS)
    other = old_segments(log)
    disk(log).fail("create", errno.ENOSPC, sticky=True)
    log.broker.keep_retention()
    log.commit()
    assert len(other.partition(0).segments) == 1


# -- producers


def test_a_producer_id_that_could_not_be_recorded_is_not_given_out() -> None:
    log = Log(FaultyFiles())
    disk(log).fail("pwrite", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        log.broker.new_producer_id()
    first = log.broker.new_producer_id()
    log.commit()
    kill(log)
    assert log.broker.new_producer_id() > first


@pytest.mark.parametrize("timestamp", [NOW - 3 * DAY_MS, -1])
def test_a_producer_of_old_records_is_not_taken_for_a_silent_one(timestamp: int) -> None:
    log = Log()
    topic = log.topic(config={"segment.bytes": "500"})
    log.append(topic, b"live", producer_id=1, producer_epoch=0, base_sequence=0)
    old = {"timestamp": timestamp, "producer_id": 2, "producer_epoch": 0}
    offsets = [log.append(topic, b"old", base_sequence=number, **old) for number in range(3)]
    log.append(topic, bytes(300), producer_id=1, producer_epoch=0, base_sequence=1)
    log.commit()
    assert len(topic.partition(0).segments) == 2
    assert log.append(topic, b"old", base_sequence=2, **old) == offsets[2]


# -- ends and starts


def test_a_start_that_moves_during_a_round_is_not_recorded_above_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(FaultyFiles())
    topic = log.topic(config={"penstock.durability": "os"})
    partition = topic.partition(0)
    for _ in range(3):
        log.append(topic, b"old")
    log.broker.delete_records(partition, 1)
    finish = log.start_round()
    for _ in range(5):
        log.append(topic, b"new")
    log.broker.delete_records(partition, -1)
    finish()
    log.clock.advance(2)
    recorded: list[Position] = []
    record = log.store.positions.record

    def noted(positions: Mapping[PartitionId, Position]) -> None:
        recorded.extend(positions.values())
        record(positions)

    monkeypatch.setattr(log.store.positions, "record", noted)
    log.commit()
    assert recorded
    assert all(start <= end for end, start in recorded)


def test_a_memory_topic_can_be_made_again() -> None:
    log = Log()
    for _ in range(2):
        topic = log.topic("m", {"penstock.durability": "memory"})
        log.append(topic, b"x")
        assert values(topic.partition(0)) == [b"x"]
        log.broker.delete_topic(topic)
        end_rounds(log)


def test_positions_of_deleted_topics_are_forgotten_after_a_kill_too() -> None:
    log = Log(FaultyFiles())
    topic = old_segments(log)
    log.broker.keep_retention()
    log.commit()
    log.broker.delete_topic(topic)
    end_rounds(log)
    kill(log)
    log.restart(clean=True)
    positions = Positions(log.files, DATA / "positions.journal", log.clock)
    assert positions.get(PartitionId(topic.entry.id, 0)) == (0, 0)


def test_a_stop_after_a_failure_of_metadata_is_not_an_orderly_one() -> None:
    log = Log(FaultyFiles())
    disk(log).fail("sync", errno.EIO)
    log.store.put_quota(None, {"producer_byte_rate": 1.0})
    log.commit()
    log.broker.close()
    assert not log.files.exists(DATA / "clean")


def test_what_lies_above_the_start_after_a_power_failure_is_seen() -> None:
    """The system had not written the records yet that were deleted."""
    files = FaultyFiles()
    log = Log(files)
    topic = log.topic(config={"penstock.durability": "os"})
    log.append(topic, b"synced")
    files.sync_all(DATA)
    log.store.positions.record({topic.partition(0).identity: Position(1, 8)})
    log.files = files.after_crash(Keep.NOTHING, random.Random(1))
    kill(log)
    topic = log.broker.topic("t")
    offset = log.append(topic, b"new")
    assert values(topic.partition(0), offset) == [b"new"]


# -- descriptors, and what a start reads


class CountingFiles(FaultyFiles):
    """Knows which of its files somebody has open, and may have enough of them."""

    def __init__(self) -> None:
        super().__init__()
        self.in_use: WeakSet[FaultyFile] = WeakSet()
        self.in_use_max: int | None = None

    def open(self, path: Path, *, create: bool = False) -> FaultyFile:
        if self.in_use_max is not None and len(self.in_use) >= self.in_use_max:
            raise failure(errno.EMFILE, path)
        file = super().open(path, create=create)
        self.in_use.add(file)
        return file


def test_files_of_sealed_segments_do_not_stay_open() -> None:
    files = CountingFiles()
    log = Log(files)
    topic = log.topic(config={"segment.bytes": "250"})
    before = len(files.in_use)
    for _ in range(50):
        log.append(topic, bytes(150))
        log.commit()
    partition = topic.partition(0)
    assert len(partition.segments) == 50
    assert len(files.in_use) <= before + 3
    assert len(values(partition)) == 50
    assert len(files.in_use) > 50
    log.broker.keep_retention()
    assert len(files.in_use) <= before + 3
    assert len(values(partition)) == 50


def test_a_stop_and_a_start_need_no_more_descriptors_than_there_were() -> None:
    files = CountingFiles()
    log = Log(files)
    topic = log.broker.create_topic("t", 20, {})
    log.append(topic, b"x")
    log.commit()
    files.in_use_max = len(files.in_use)
    log.broker.close()
    assert log.files.exists(DATA / "clean")
    log.open()
    assert values(log.broker.topic("t").partition(0)) == [b"x"]


def test_a_segment_that_finds_no_descriptor_refuses_what_should_go_there() -> None:
    files = CountingFiles()
    log = Log(files)
    topic = log.topic(config={"segment.bytes": "250"})
    log.append(topic, bytes(150))
    log.commit()
    files.in_use_max = len(files.in_use)
    with pytest.raises(StorageError, match="too many files are open"):
        log.append(topic, bytes(150))
    assert topic.partition(0).offline is None
    files.in_use_max = None
    assert log.append(topic, b"there is one again") == 1
    log.commit()
    kill(log)
    assert values(log.broker.topic("t").partition(0)) == [bytes(150), b"there is one again"]


def test_a_segment_that_cannot_be_opened_again_refuses_likewise() -> None:
    """After an orderly stop it is opened when it is first written to."""
    files = CountingFiles()
    log = Log(files)
    log.append(log.topic(), b"old")
    log.restart(clean=True)
    partition = log.broker.topic("t").partition(0)
    files.in_use_max = 0
    with pytest.raises(StorageError, match="too many files are open"):
        log.append(log.broker.topic("t"), b"refused")
    assert partition.offline is None
    files.in_use_max = None
    log.append(log.broker.topic("t"), b"new")
    log.commit()
    assert values(partition) == [b"old", b"new"]


def test_starts_after_kills_read_no_more_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.partition.CHECKPOINT_BYTES", 10_000)
    log = Log(FaultyFiles())
    log.topic()
    read: list[int] = []
    for _ in range(5):
        topic = log.broker.topic("t")
        for _ in range(8):
            log.append(topic, bytes(1000))
            log.commit()
        kill(log)
        partition = log.broker.topic("t").partition(0)
        read.append(partition.size_bytes - partition.active.checkpointed_bytes)
    assert max(read) <= 20_000


def test_of_records_with_the_newest_time_the_first_counts() -> None:
    log = Log()
    topic = log.topic(config={"segment.bytes": "250"})
    for timestamp in (NOW - 1, NOW, NOW, NOW, NOW - 5):
        log.append(topic, bytes(150), timestamp=timestamp)
    log.commit()
    assert len(topic.partition(0).segments) == 5
    assert newest_by_time(topic.partition(0)) == (1, NOW)


# -- the catalog


def rewrite_catalog(log: Log) -> None:
    """Change things until the catalog is replaced by a shorter one."""
    for number in range(1000):
        size = log.files.list(DATA)["catalog.journal"]
        log.store.put_quota("client", {"producer_byte_rate": float(number)})
        if log.files.list(DATA)["catalog.journal"] < size:
            return
        log.commit()
    raise AssertionError("it was never rewritten")


@pytest.fixture
def small_catalog(monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr("penstock.log.catalog._REWRITE_BYTES", 2000)
    return Log(FaultyFiles())


def test_after_a_rewrite_the_catalog_is_opened_by_nobody(small_catalog: Log) -> None:
    """Without a descriptor left, what comes next would be written to the file that was replaced."""
    log = small_catalog
    topic = log.topic()
    disk(log).fail("open", errno.EMFILE, at=2, sticky=True)  # after the one for the new file
    rewrite_catalog(log)
    disk(log).heal()
    log.broker.delete_topic(topic)
    log.commit()
    assert log.broker.commit.metadata_failed is None
    kill(log)
    assert not log.broker.topics()


def test_a_catalog_whose_new_name_may_not_last_takes_no_more_changes(small_catalog: Log) -> None:
    log = small_catalog
    topic = log.topic()
    rewrite_catalog(log)
    disk(log).fail("sync_folder", errno.EIO)
    log.commit()
    with pytest.raises(StorageError, match="may not last"):
        log.broker.delete_topic(topic)


# -- topics that cannot be made


@pytest.mark.parametrize(
    ("kind", "code", "durability"),
    [
        ("open", errno.EMFILE, "fsync"),
        ("make_folder", errno.ENOSPC, "fsync"),
        ("make_folder", errno.ENOSPC, "memory"),
        ("pwrite", errno.ENOSPC, "fsync"),  # of the catalog
    ],
)
def test_nothing_stays_of_a_topic_that_could_not_be_made(
    kind: str, code: int, durability: str
) -> None:
    log = Log(FaultyFiles())
    log.topic("other")
    config = {"penstock.durability": durability}
    disk(log).fail(kind, code, at=1 if kind == "pwrite" else 3, sticky=True)
    with pytest.raises(OSError, match=r"open files|No space"):
        log.broker.create_topic("many", 5, config)
    assert list(log.files.list(DATA / "topics")) == ["other-0"]
    disk(log).heal()
    log.append(log.broker.create_topic("many", 5, config), b"x")
    log.commit()
    kill(log)
    assert not log.files.exists(DATA / "quarantine")
    assert len(log.broker.topic("many").whole_partitions()) == 5


def test_what_somebody_else_put_there_is_not_undone() -> None:
    log = Log(FaultyFiles())
    theirs = DATA / "topics" / "many-1" / "00000000000000000000.log"
    disk(log).write(theirs, b"theirs")
    with pytest.raises(StorageError, match="holds data already"):
        log.broker.create_topic("many", 3, {})
    assert list(log.files.list(DATA / "topics")) == ["many-1"]
    assert disk(log).read(theirs) == b"theirs"
