"""Crash at every operation of a share group's history: nothing that was finished comes again.

Holders take records, finish some, give some back, and go without a word, while the journal is rewritten
again and again. Whatever survives a crash: what was acknowledged as finished is never given out again,
what nobody finished is, and what was acknowledged as given back counts that delivery.
"""

from __future__ import annotations

import random

import pytest
from tests.support.log import Log

from penstock.broker.queues.journal import QueueId
from penstock.broker.queues.ledger import Given
from penstock.broker.queues.queue import Queue, Said, Verdict
from penstock.broker.share_reading import Wish, deliver
from penstock.errors import StorageError
from penstock.testing.faulty import Crash, FaultyFiles
from penstock.testing.power_failure import Keep

CREW = "crew"
BATCHES, PER_BATCH = 6, 5
COUNT = BATCHES * PER_BATCH
WISH = Wish(7, 1 << 20, exactly=True, committed_only=False)


@pytest.fixture(autouse=True)
def small_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.change_journal._REWRITE_BYTES", 500)


class History:
    """One life of the broker, and what its clients know."""

    def __init__(self, files: FaultyFiles) -> None:
        self.files = files
        self.began = False
        self.asked: set[int] = set()
        """To be finished."""
        self.finished: set[int] = set()
        """Acknowledged as such."""
        self.back: dict[int, int] = {}
        """How often something was given back, as far as it was acknowledged."""
        self.given_up: set[int] = set()
        """Given out as often as it may be."""

    def play(self) -> None:
        log = Log(self.files)
        rng = random.Random(1)
        topic = log.topic()
        for _ in range(BATCHES):
            log.append(topic, *(b"x" for _ in range(PER_BATCH)))
        log.commit()
        partition = topic.partition(0)
        queues = log.broker.groups.queues
        queue = queues.begin(QueueId(CREW, partition.identity), 0, self._begun)
        log.commit()
        for turn in range(24):
            holder = f"holder {turn}"
            given = deliver(queue, partition, holder, WISH).given
            positions = [n for first, last, _ in given for n in range(first, last + 1)]
            most = queue.rules.deliveries_max
            self.given_up |= {n for n in positions if self._count(given, n) >= most}
            for position in positions:
                self._say(queue, holder, position, rng)
                if rng.random() < 0.3:
                    log.commit()
            if rng.random() < 0.3:
                queue.leave(holder)
        log.commit()

    def _count(self, given: list[Given], position: int) -> int:
        return next(count for first, last, count in given if first <= position <= last)

    def _begun(self, error: StorageError | None) -> None:
        self.began = error is None

    def _say(self, queue: Queue, holder: str, position: int, rng: random.Random) -> None:
        choice = rng.random()
        if choice < 0.5:
            self.asked.add(position)

            def done(error: StorageError | None) -> None:
                assert error is None
                self.finished.add(position)

            queue.settle(holder, [Said(position, position, Verdict.DONE)], done)
        elif choice < 0.7:

            def back(error: StorageError | None) -> None:
                assert error is None
                self.back[position] = self.back.get(position, 0) + 1

            queue.settle(holder, [Said(position, position, Verdict.BACK)], back)

    def check(self, files: FaultyFiles) -> None:
        """What a broker that starts on what is left gives out."""
        log = Log(files)
        log.commit()
        found = log.broker.groups.queues.of(CREW)
        if not found:
            assert not self.began, "the queue is gone"
            return
        (queue,) = found.values()
        partition = log.broker.topics()[0].partition(0)
        everything = WISH._replace(records=1000)
        given = deliver(queue, partition, "heir", everything).given
        delivered = {n: count for first, last, count in given for n in range(first, last + 1)}
        again = self.finished & delivered.keys()
        assert not again, f"finished and given out again: {again}"
        missing = set(range(COUNT)) - self.asked - delivered.keys() - self.given_up
        assert not missing, f"lost: {missing}"
        for position, count in self.back.items():
            if position in delivered:
                assert delivered[position] > count, f"{position} forgot a delivery"


def crash_everywhere(policy: Keep, *, sync_is_noop: bool) -> None:
    files = FaultyFiles()
    History(files).play()
    for number in range(1, files.operations + 1):
        broken = FaultyFiles(random.Random(number), crash_at=number, sync_is_noop=sync_is_noop)
        history = History(broken)
        with pytest.raises(Crash):
            history.play()
        history.check(broken.after_crash(policy, random.Random(number)))


@pytest.mark.parametrize("policy", Keep)
def test_crash_at_every_operation(policy: Keep) -> None:
    crash_everywhere(policy, sync_is_noop=False)


def test_without_syncs_the_same_test_fails() -> None:
    with pytest.raises(AssertionError):
        crash_everywhere(Keep.NOTHING, sync_is_noop=True)


def test_the_whole_history() -> None:
    files = FaultyFiles()
    history = History(files)
    history.play()
    assert history.finished == history.asked
    assert len(history.finished) > COUNT // 3
    assert max(history.back.values()) > 1
    history.check(files.after_crash(Keep.NOTHING, random.Random(1)))
