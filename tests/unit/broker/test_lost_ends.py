"""A log that comes back shorter than a decision on a transaction knew it: what comes then is open."""

from __future__ import annotations

from random import Random
from uuid import uuid4

import pytest
from tests.support.log import DATA, NOW, Log
from tests.support.transactional import Writer, committed

from penstock.broker.owed_markers import cuts
from penstock.broker.topic import Topic
from penstock.errors import DamagedLogError
from penstock.limits import POSITIONS_SYNC_SECONDS
from penstock.log import transactions as journal_of
from penstock.log.positions import PartitionId
from penstock.log.transactions import Decision, TransactionRecord
from penstock.testing.faulty import Crash, FaultyFiles
from penstock.testing.power_failure import Keep

PROTOCOLS = pytest.mark.parametrize("new_epochs", [True, False], ids=["newer", "older"])
ENDS = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


def shown(topic: Topic) -> list[bytes | None]:
    return [record.value for record in committed(topic)]


def check_the_next_is_undecided(log: Log, before: list[bytes | None], *, new_epochs: bool) -> None:
    """A transaction that is open over any number of starts is what its writer makes of it."""
    writer = Writer(log, new_epochs=new_epochs)
    writer.write(log.broker.topic("t"), (b"k", b"next"))
    log.commit()
    for _ in range(2):
        log.restart(clean=True)
        log.commit()
        assert shown(log.broker.topic("t")) == before
    writer.log = log
    writer.end(commit=True)
    assert shown(log.broker.topic("t")) == [*before, b"next"]


@PROTOCOLS
@ENDS
def test_after_a_power_failure_at_any_moment_of_an_end(new_epochs: bool, commit: bool) -> None:
    def life(files: FaultyFiles) -> int:
        """Another's records are under way when the end is decided; when that begins."""
        log = Log(files)
        topic = log.topic("t")
        writer = Writer(log, new_epochs=new_epochs)
        writer.write(topic, (b"k", b"first"))
        log.commit()
        began = files.operations
        log.append(topic, *[b"lost"] * 20)
        log.broker.transactions.end(
            writer.name, writer.producer, lambda *_: None, commit=commit, new_epoch=new_epochs
        )
        log.commit()
        return began

    whole = FaultyFiles()
    began = life(whole)
    shortened = 0
    for at in range(began + 1, whole.operations + 1):
        files = FaultyFiles(Random(1), crash_at=at)
        with pytest.raises(Crash):
            life(files)
        log = Log(files.after_crash(Keep.NOTHING, Random(1)))
        log.commit()
        before = shown(log.broker.topic("t"))
        shortened += before == ([b"first"] if commit else [])
        check_the_next_is_undecided(log, before, new_epochs=new_epochs)
    assert shortened


@PROTOCOLS
@ENDS
def test_a_partition_that_was_damaged_when_it_was_decided(new_epochs: bool, commit: bool) -> None:
    files = FaultyFiles()
    log = Log(files)
    log.topic("other")
    log.append(log.topic("t"), b"old")
    log.commit()
    log.clock.advance(POSITIONS_SYNC_SECONDS)
    log.store.commit.record_ends()
    log.commit()
    segment = DATA / "topics" / "t-0" / f"{0:020d}.log"
    files.flip(segment, 17, 0)
    log.restart(clean=False)
    assert isinstance(log.broker.topic("t").partitions[0], DamagedLogError)
    writer = Writer(log, new_epochs=new_epochs)
    writer.transaction(log.broker.topic("other"), (b"k", b"first"), commit=commit)
    log.commit()
    log.broker.close()
    files.flip(segment, 17, 0)  # the owner puts it right
    log.open()
    log.commit()
    check_the_next_is_undecided(log, [b"old"], new_epochs=new_epochs)


def test_what_was_cut_stays_cut_when_the_journal_is_rewritten() -> None:
    place, other = PartitionId(uuid4(), 0), PartitionId(uuid4(), 0)
    record = TransactionRecord()
    decision = Decision(True, 5, 1, 0, {place: 9, other: 9})
    owed = {other: Decision(False, 5, 0, 0, {other: 7})}
    journal_of.apply(record, journal_of.decided("x", decision, 5, 1, NOW, owed))
    ends = {place: 4, other: 8}
    (line,) = cuts({"x": record}, ends)
    assert line == journal_of.cut("x", ends)
    journal_of.apply(record, line)
    assert list(cuts({"x": record}, ends)) == []
    again = TransactionRecord()
    for line in journal_of.live("x", record):
        journal_of.apply(again, line)
    for found in (record, again):
        assert found.decision is not None
        assert found.decision.ends == ends
        assert found.owed[other].ends == {other: 7}
