"""Crash at every operation of a history of two-phase transactions, and again while it is recovered.

A client writes to two partitions, moves a group's offset, and when all of that is acknowledged stores in
its database that this transaction counts, or that it does not; only then it ends it. Whatever survives
the broker's crash, after the recovery readers of committed records must find what the database says.
"""

from __future__ import annotations

import random

import pytest
from tests.fault.test_transactions import GROUP, NAME, committed, stable_end
from tests.support.log import NOW, Log

from penstock.broker.transaction import NO_PRODUCER, Producer
from penstock.errors import PenstockError
from penstock.log.committed import Committed
from penstock.record.batch import TRANSACTIONAL_FLAG
from penstock.record.encode import NewRecord, encode
from penstock.testing.faulty import Crash, FaultyFiles
from penstock.testing.power_failure import Keep

COUNT = 4
TOPICS = ("a", "b")


class Client:
    """Who writes to a database and to the log, over all lives of the broker."""

    def __init__(self) -> None:
        self.database: dict[Producer, int] = {}
        """What survives: the transactions that count, with the number that they wrote."""

    def play(self, files: FaultyFiles) -> None:
        log = Log(files)
        for name in TOPICS:
            log.topic(name)
        producer, _ = self.register(log, keep=False)
        for number in range(COUNT):
            for name in TOPICS:
                append(log, name, producer, number)
            answers: list[PenstockError | None] = []
            offset = {log.broker.topic("a").partition(0).identity: Committed(number, -1, "", NOW)}
            log.broker.transactions.hold_offsets(
                NAME, producer, GROUP, offset, answers.append, begins=True
            )
            log.commit()
            assert answers == [None]
            counts = number != 1
            if counts:
                self.database[producer] = number
            producer = self.end(log, producer, commit=counts)

    def recover(self, files: FaultyFiles) -> None:
        """Take over what is there, and end it as the database says."""
        log = Log(files)
        log.commit()
        producer, author = self.register(log, keep=True)
        if author != NO_PRODUCER:
            self.end(log, producer, commit=author in self.database)

    def check(self, files: FaultyFiles) -> None:
        log = Log(files)
        log.commit()
        expected = sorted(self.database.values())
        names = [topic.name for topic in log.broker.topics()]
        assert names == list(TOPICS) or not expected
        for name in names:
            partition = log.broker.topic(name).partition(0)
            assert stable_end(partition) == partition.durable_offset, "a transaction hangs"
            assert committed(partition) == expected
        if expected:
            identity = log.broker.topic("a").partition(0).identity
            assert log.broker.groups.offsets(GROUP)[identity].offset == expected[-1]

    def register(self, log: Log, *, keep: bool) -> tuple[Producer, Producer]:
        found: list[tuple[Producer, Producer]] = []

        def done(error: PenstockError | None, producer: Producer, kept: Producer) -> None:
            assert error is None
            found.append((producer, kept))

        log.broker.transactions.register(NAME, 1000, NO_PRODUCER, done, two_phase=True, keep=keep)
        log.commit_until(found)
        return found[0]

    def end(self, log: Log, producer: Producer, *, commit: bool) -> Producer:
        found: list[Producer] = []

        def done(error: PenstockError | None, following: Producer) -> None:
            assert error is None
            found.append(following)

        log.broker.transactions.end(NAME, producer, done, commit=commit, new_epoch=True)
        log.commit_until(found)
        return found[0]


def append(log: Log, name: str, producer: Producer, number: int) -> None:
    topic = log.broker.topic(name)
    data = encode(
        [NewRecord(b"%d" % number, timestamp=NOW)],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        attributes=TRANSACTIONAL_FLAG,
    )
    log.broker.appender.append(topic, topic.partition(0), data, True)


def operations() -> int:
    files = FaultyFiles()
    Client().play(files)
    return files.operations


@pytest.mark.parametrize("policy", Keep)
def test_crash_at_every_operation(policy: Keep) -> None:
    crash_everywhere(policy, sync_is_noop=False)


def test_without_syncs_the_same_test_fails() -> None:
    with pytest.raises(AssertionError):
        crash_everywhere(Keep.NOTHING, sync_is_noop=True)


def crash_everywhere(policy: Keep, *, sync_is_noop: bool) -> None:
    recoveries_cut = 0
    for number in range(1, operations() + 1):
        chance = random.Random(number)
        files = FaultyFiles(chance, crash_at=number, sync_is_noop=sync_is_noop)
        client = Client()
        with pytest.raises(Crash):
            client.play(files)
        files = files.after_crash(policy, chance)
        files.crash_at = chance.randrange(1, 40)
        try:
            client.recover(files)
        except Crash:
            recoveries_cut += 1
        files = files.after_crash(policy, chance)
        client.recover(files)
        client.check(files.after_crash(policy, chance))
    assert recoveries_cut or sync_is_noop


def test_the_whole_history() -> None:
    files = FaultyFiles()
    client = Client()
    client.play(files)
    client.check(files.after_crash(Keep.EVERYTHING, random.Random(1)))
    assert sorted(client.database.values()) == [0, 2, 3]
