"""The system grants no further descriptor: no partition goes out of service for that."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from tests.support.log import DATA, NOW, Log, values

from penstock.files import SyncAllError
from penstock.log.positions import PartitionId, Positions
from penstock.testing.faulty import FaultyFiles
from penstock.testing.power_failure import Keep

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def log(files: FaultyFiles) -> Log:
    return Log(files)


def test_a_round_needs_no_descriptor_for_a_segment_that_was_not_written_to(
    log: Log, files: FaultyFiles
) -> None:
    log.topic("one")
    log.topic("other")
    log.append(log.broker.topic("one"), b"x", timestamp=NOW - 30 * DAY_MS)
    log.restart(clean=True)
    one, other = log.broker.topic("one"), log.broker.topic("other")
    log.append(other, b"y")
    log.commit()
    # Retention seals the old segment, which is not open.
    assert one.partition(0).roll_if_expired(NOW)
    files.fail("open", errno.EMFILE, sticky=True)
    log.broker.commit.appended(one.partition(0))
    answered: list[bool] = []
    log.append(other, b"z")
    log.broker.commit.after(lambda: answered.append(True))
    log.commit()
    assert answered
    assert values(other.partition(0)) == [b"y", b"z"]
    log.append(one, b"new")
    log.commit()
    files.heal()
    log.restart(clean=False)
    assert values(log.broker.topic("one").partition(0)) == [b"x", b"new"]


def test_records_can_be_deleted_without_a_descriptor(log: Log, files: FaultyFiles) -> None:
    log.append(log.topic(), b"x", b"y")
    log.restart(clean=True)
    files.fail("open", errno.EMFILE, sticky=True)
    log.broker.delete_records(log.broker.topic("t").partition(0), 1)
    log.commit()
    files.heal()
    log.append(log.broker.topic("t"), b"z")
    log.commit()
    log.restart(clean=False)
    partition = log.broker.topic("t").partition(0)
    assert partition.start_offset == 1
    assert values(partition, 1) == [b"y", b"z"]


def test_settings_can_be_changed_without_a_descriptor(log: Log, files: FaultyFiles) -> None:
    topic = log.topic()
    files.fail("open", errno.EMFILE, sticky=True)
    log.broker.configure(topic, {"retention.ms": "60000"})
    log.commit()
    assert log.broker.commit.metadata_failed is None
    files.heal()
    log.append(topic, b"x")
    log.commit()
    log.restart(clean=False)
    assert log.broker.topic("t").entry.config == {"retention.ms": "60000"}
    assert values(log.broker.topic("t").partition(0)) == [b"x"]


def test_a_journal_that_cannot_be_rewritten_without_a_descriptor_goes_on(
    log: Log, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.positions._REWRITE_BYTES", 100)
    topic = log.topic()
    files.fail("open", errno.EMFILE, sticky=True)
    for _ in range(5):
        log.append(topic, b"x")
        log.clock.advance(2)
        log.commit()
    assert log.store.positions.failed is None
    files.heal()
    log.clock.advance(2)
    log.append(topic, b"x")
    log.commit()
    log.clock.advance(2)
    log.broker.keep_retention()
    log.commit()
    recorded = Positions(log.files, DATA / "positions.journal", log.clock)
    assert recorded.get(PartitionId(topic.entry.id, 0)).end == 6


@pytest.mark.parametrize(
    ("kind", "code"), [("open", errno.EMFILE), ("create", errno.ENOSPC)], ids=["descriptor", "room"]
)
def test_a_topic_that_could_not_be_described_outlives_a_power_failure(
    log: Log, files: FaultyFiles, kind: str, code: int
) -> None:
    topic = log.broker.create_topic("t", 1, {})
    files.fail(kind, code, sticky=True)
    log.commit()
    files.heal()
    log.clock.advance(5)
    log.append(topic, b"acknowledged")
    log.commit()
    assert topic.partition(0).durable_offset == 1
    log.files = files.after_crash(Keep.NOTHING, random.Random(1))
    log.open()
    assert values(log.broker.topic("t").partition(0)) == [b"acknowledged"]


def test_a_sync_of_everything_in_place_of_a_folders_fails_for_everybody(
    log: Log, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells once of what it could not write, whoever had written it."""
    rolls = log.topic("rolls", {"segment.bytes": "300"})
    other = log.topic("other")
    log.append(rolls, bytes(150))
    log.commit()

    def sync_folder(path: Path) -> None:
        raise SyncAllError(errno.EIO, "the disk failed", str(path))

    monkeypatch.setattr(files, "sync_folder", sync_folder)
    log.append(rolls, bytes(150))
    log.append(other, b"not certain")
    log.commit()
    assert other.partition(0).offline is not None
    assert other.partition(0).durable_offset == 0
    assert rolls.partition(0).durable_offset == 1


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("way", ["retention", "compaction", "positions"])
def test_nor_is_it_swallowed_by_what_can_do_without(
    log: Log, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch, way: str, code: int
) -> None:
    topic = log.topic("t", {"segment.bytes": "200", "cleanup.policy": "compact"})
    other = log.topic("other")
    for number in range(4):
        log.put(topic, (b"key", bytes(100 + number)))
        log.commit()

    def sync_folder(path: Path) -> None:
        raise SyncAllError(code, "the disk failed", str(path))

    monkeypatch.setattr(files, "sync_folder", sync_folder)
    if way == "retention":
        partition = topic.partition(0)
        log.store.remove_segments(partition, partition.segments[:1])
    elif way == "compaction":
        # Its own process has descriptors of its own; what it has made is put in place by the thread.
        monkeypatch.setattr(files, "sync_folder", lambda path: None)
        monkeypatch.setattr(
            "penstock.log.swap.commit", lambda files, folder, swap: sync_folder(folder)
        )
        log.broker.keep_retention()
    else:
        monkeypatch.setattr("penstock.log.positions._REWRITE_BYTES", 1)
        log.clock.advance(2)
        log.broker.commit.appended(other.partition(0))
    log.commit()
    assert other.partition(0).offline is not None
