"""A partition that the system does not let us open: it is left out, and everything else goes on."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.log import DATA, Log, values

from penstock.errors import DamagedLogError, StorageError, UnsettledLogError
from penstock.files import read_whole
from penstock.memory_files import failure
from penstock.testing.faulty import FaultyFile, FaultyFiles

BAD = DATA / "topics" / "bad-0"
BAD_LOG = BAD / "00000000000000000000.log"


class UnreadableFile(FaultyFile):
    """A file on bad sectors."""

    def pread(self, size: int, position: int) -> bytes:
        raise failure(errno.EIO, self.path)


class PartlyBadFiles(FaultyFiles):
    """Refuses what lies below some paths."""

    def __init__(self) -> None:
        super().__init__()
        self.unopened: Sequence[tuple[Path, int]] = ()
        self.unreadable: Sequence[Path] = ()
        self.unopened_with_reserve: Path | None = None

    def open(self, path: Path, *, create: bool = False) -> FaultyFile:
        for place, code in self.unopened:
            if path.is_relative_to(place):
                raise failure(code, path)
        below = self.unopened_with_reserve
        if below is not None and path.is_relative_to(below) and self.exists(DATA / "reserve"):
            raise failure(errno.EDQUOT, path)
        file = super().open(path, create=create)
        if path in self.unreadable:
            return UnreadableFile(self, path, file.content)
        return file


@pytest.fixture
def files() -> PartlyBadFiles:
    return PartlyBadFiles()


@pytest.fixture
def log(files: PartlyBadFiles) -> Log:
    """Two topics with a record each."""
    log = Log(files)
    for name in ("bad", "good"):
        log.append(log.topic(name), b"stored")
    log.commit()
    return log


def must_serve_the_other(log: Log) -> None:
    good = log.broker.topic("good")
    log.append(good, b"new")
    log.commit()
    assert values(good.partition(0)) == [b"stored", b"new"]


def test_one_on_bad_sectors_is_refused_and_the_others_are_served(
    log: Log, files: PartlyBadFiles, caplog: pytest.LogCaptureFixture
) -> None:
    files.unreadable = [BAD_LOG]
    with caplog.at_level(logging.ERROR):
        log.restart(clean=False)
    (told,) = caplog.messages
    assert told.startswith("open bad-0: its files cannot be read")
    assert "Input/output error" in told
    assert str(BAD_LOG) in told
    with pytest.raises(DamagedLogError, match="cannot be read"):
        log.broker.topic("bad").partition(0)
    must_serve_the_other(log)


@pytest.mark.parametrize("place", [BAD, BAD_LOG])
def test_one_of_another_user_is_refused_and_the_others_are_served(
    log: Log, files: PartlyBadFiles, place: Path
) -> None:
    files.unopened = [(place, errno.EACCES)]
    log.restart(clean=False)
    with pytest.raises(DamagedLogError, match="Permission denied"):
        log.broker.topic("bad").partition(0)
    must_serve_the_other(log)


def test_settings_of_its_topic_can_be_changed(log: Log, files: PartlyBadFiles) -> None:
    files.unopened = [(BAD, errno.EACCES)]
    log.restart(clean=False)
    log.broker.configure(log.broker.topic("bad"), {"retention.ms": "60000"})
    log.commit()
    assert log.broker.commit.metadata_failed is None
    must_serve_the_other(log)
    files.unopened = []
    log.restart(clean=False)
    assert log.broker.topic("bad").entry.config == {"retention.ms": "60000"}


def test_its_topic_can_be_deleted_and_made_again(log: Log, files: PartlyBadFiles) -> None:
    files.unopened = [(BAD, errno.EACCES)]
    log.restart(clean=False)
    log.broker.delete_topic(log.broker.topic("bad"))
    log.commit()
    files.unopened = []
    log.append(log.topic("bad"), b"another")
    log.restart(clean=True)
    assert values(log.broker.topic("bad").partition(0)) == [b"another"]
    assert log.store.clean


def test_when_it_can_be_read_again_it_is_checked_as_after_the_crash(
    log: Log, files: PartlyBadFiles
) -> None:
    files.unreadable = [BAD_LOG]
    log.restart(clean=False)
    files.unreadable = []
    log.restart(clean=True)
    assert not log.store.clean
    assert values(log.broker.topic("bad").partition(0)) == [b"stored"]
    log.restart(clean=True)
    assert log.store.clean


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_without_descriptors_there_is_no_start(log: Log, files: PartlyBadFiles, code: int) -> None:
    files.unopened = [(BAD_LOG, code)]
    with pytest.raises(StorageError, match="too many files are open") as refusal:
        log.restart(clean=False)
    assert not isinstance(refusal.value, DamagedLogError)
    assert "ulimit -n" in refusal.value.remedy


def tear(files: PartlyBadFiles) -> None:
    files.open(BAD_LOG).pwrite([b"torn"], files.open(BAD_LOG).size())


def must_be_settled(log: Log) -> None:
    assert values(log.broker.topic("bad").partition(0)) == [b"stored"]
    (kept,) = log.files.list(DATA / "quarantine")
    assert read_whole(log.files, DATA / "quarantine" / kept) == b"torn"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_without_room_for_its_recovery_it_waits_for_a_start_that_has_some(
    log: Log, files: PartlyBadFiles, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    tear(files)
    files.unopened = [(DATA / "quarantine", code)]
    with caplog.at_level(logging.ERROR):
        log.restart(clean=False)
    (told,) = caplog.messages
    assert told.startswith("open bad-0: there is no room for what its recovery has to write")
    assert "free some space on that disk, and restart" in told
    with pytest.raises(UnsettledLogError, match="free some space"):
        log.broker.topic("bad").partition(0)
    log.clock.advance(1)
    must_serve_the_other(log)
    files.unopened = []
    log.restart(clean=True)
    assert not log.store.clean
    must_be_settled(log)


def test_a_recovery_may_have_what_was_reserved(log: Log, files: PartlyBadFiles) -> None:
    """A quota is not seen in the free space of the disk: one learns of it by the first write."""
    log.store.space.watch()
    assert files.exists(DATA / "reserve")
    tear(files)
    files.unopened_with_reserve = DATA / "quarantine"
    log.restart(clean=False)
    must_be_settled(log)
    assert log.store.space.full
