"""Queues over a log in memory: holders, their deadlines, and the disk that answers later."""

from __future__ import annotations

import pytest
from tests.support.log import Log
from tests.support.timers import ManualTimers

from penstock.broker.broker import Broker
from penstock.broker.group_config import parse
from penstock.broker.queues.errors import NotHeldError
from penstock.broker.queues.journal import QueueId
from penstock.broker.queues.queue import Queue, Said, Verdict
from penstock.broker.share_reading import Delivery, Wish, deliver, first_position
from penstock.broker.topic import Topic
from penstock.errors import DamagedLogError, StorageError
from penstock.limits import SHARE_LOCK_SECONDS, SHARE_LOCKS
from penstock.record.batch import TRANSACTIONAL_FLAG

DONE, BACK, MORE_TIME = Verdict.DONE, Verdict.BACK, Verdict.MORE_TIME
EVERYTHING = Wish(10_000, 1 << 20, exactly=False, committed_only=False)


class Shop(Log):
    """A log with timers, and a queue over its topic."""

    def open(self) -> None:
        super().open()
        self.timers = ManualTimers(self.clock)
        self.broker = Broker(self.store, self.clock, call_later=self.timers)
        self.broker.open()

    def queue(self, topic: Topic, start: int = 0) -> Queue:
        queues = self.broker.groups.queues
        identity = topic.partition(0).identity
        queue = queues.of("crew").get(identity)
        if queue is None:
            queue = queues.begin(QueueId("crew", identity), start, lambda _: None)
            assert not queue.is_durable
            self.commit()
        assert queue.is_durable
        return queue


@pytest.fixture
def shop() -> Shop:
    return Shop()


def settle(queue: Queue, holder: str, *said: Said) -> list[StorageError | None]:
    answers: list[StorageError | None] = []
    queue.settle(holder, said, answers.append)
    return answers


def fill(shop: Shop, topic: Topic, count: int = 10, batches: int = 1) -> None:
    for _ in range(batches):
        shop.append(topic, *(b"%d" % number for number in range(count)))
    shop.commit()


def take(shop: Shop, topic: Topic, holder: str = "ann", wish: Wish = EVERYTHING) -> Delivery:
    return deliver(shop.queue(topic), topic.partition(0), holder, wish)


def given(delivery: Delivery) -> list[tuple[int, int, int]]:
    return [tuple(one) for one in delivery.given]  # type: ignore[misc]


class TestHolders:
    def test_what_is_done_counts_when_it_is_on_the_disk(self, shop: Shop) -> None:
        topic = shop.topic()
        fill(shop, topic)
        queue = shop.queue(topic)
        assert given(take(shop, topic)) == [(0, 9, 1)]
        answers = settle(queue, "ann", Said(0, 4, DONE))
        assert (answers, queue.start) == ([], 0)
        assert not take(shop, topic, "bob").given
        shop.commit()
        assert (answers, queue.start) == ([None], 5)

    def test_what_is_given_back_can_be_had_at_once(self, shop: Shop) -> None:
        topic = shop.topic()
        fill(shop, topic)
        take(shop, topic)
        woken: list[bool] = []
        shop.queue(topic).watchers.add(lambda: woken.append(True))
        answers = settle(shop.queue(topic), "ann", Said(2, 3, BACK))
        assert woken
        assert given(take(shop, topic, "bob")) == [(2, 3, 2)]
        assert not answers
        shop.commit()
        assert answers == [None]

    def test_nobody_speaks_for_others(self, shop: Shop) -> None:
        topic = shop.topic()
        fill(shop, topic)
        take(shop, topic)
        queue = shop.queue(topic)
        for verdict in Verdict:
            with pytest.raises(NotHeldError):
                settle(queue, "bob", Said(0, 0, verdict))
        with pytest.raises(NotHeldError):
            settle(queue, "ann", Said(0, 4, DONE), Said(5, 10, DONE))
        assert settle(queue, "ann", Said(0, 9, MORE_TIME)) == [None], "nothing was done before"

    def test_late_holders_lose_what_they_have(self, shop: Shop) -> None:
        topic = shop.topic()
        fill(shop, topic)
        take(shop, topic)
        shop.timers.advance(SHARE_LOCK_SECONDS - 1)
        settle(shop.queue(topic), "ann", Said(0, 1, MORE_TIME))
        shop.timers.advance(1)
        assert given(take(shop, topic, "bob")) == [(2, 9, 2)]
        shop.timers.advance(SHARE_LOCK_SECONDS - 1)
        assert given(take(shop, topic, "bob")) == [(0, 1, 2)]

    def test_five_times_are_enough(self, shop: Shop) -> None:
        topic = shop.topic()
        fill(shop, topic)
        for count in range(1, 6):
            assert given(take(shop, topic)) == [(0, 9, count)]
            shop.timers.advance(SHARE_LOCK_SECONDS)
        assert not take(shop, topic).given
        assert shop.queue(topic).start == 10

    def test_what_a_holder_had_that_has_gone(self, shop: Shop) -> None:
        topic = shop.topic()
        fill(shop, topic)
        take(shop, topic)
        shop.broker.groups.queues.leave("crew", "ann")
        assert given(take(shop, topic)) == [(0, 9, 2)]

    def test_a_disk_that_refuses(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        topic = shop.topic()
        fill(shop, topic)
        queue = shop.queue(topic)
        take(shop, topic)
        answers = settle(queue, "ann", Said(0, 9, DONE))

        def refuse(self: object, payload: bytes) -> None:
            raise OSError(28, "no space")

        with monkeypatch.context() as patch:
            patch.setattr("penstock.log.journal.Journal.append", refuse)
            shop.commit()
        assert isinstance(answers[0], StorageError)
        assert given(take(shop, topic, "bob")) == [(0, 9, 2)]

    def test_no_more_than_can_be_kept_an_eye_on(self, shop: Shop) -> None:
        topic = shop.topic()
        fill(shop, topic, count=1500, batches=2)
        assert given(take(shop, topic)) == [(0, SHARE_LOCKS - 1, 1)]
        assert not take(shop, topic, "bob").given
        settle(shop.queue(topic), "ann", Said(0, 99, DONE))
        shop.commit()
        assert given(take(shop, topic, "bob")) == [(SHARE_LOCKS, SHARE_LOCKS + 99, 1)]

    def test_what_is_skipped_takes_no_place(self, shop: Shop) -> None:
        topic = shop.topic()
        for _ in range(SHARE_LOCKS + 10):
            shop.append(topic, b"v")
            shop.broker.appender.append_marker(topic.partition(0), 1, 0, commit=True)
        shop.commit()
        assert take(shop, topic).records == SHARE_LOCKS
        assert not take(shop, topic, "bob").given

    def test_neighbours_cost_as_much_as_one_however_they_were_written(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = shop.topic()
        fill(shop, topic, count=1, batches=50)
        time = iter(range(1000))
        monkeypatch.setattr(shop.clock, "monotonic", lambda: float(next(time)))
        for wish in (EVERYTHING._replace(records=30), EVERYTHING):
            assert take(shop, topic, wish=wish).given
        assert len(shop.queue(topic)._ledger) == 2


class TestReading:
    def test_whole_batches_unless_told_otherwise(self, shop: Shop) -> None:
        topic = shop.topic()
        fill(shop, topic, batches=3)
        assert given(take(shop, topic, wish=EVERYTHING._replace(records=12))) == [(0, 19, 1)]
        exactly = EVERYTHING._replace(records=4, exactly=True)
        assert given(take(shop, topic, wish=exactly)) == [(20, 23, 1)]
        delivery = take(shop, topic, wish=exactly)
        assert (given(delivery), len(delivery.batches)) == ([(24, 27, 1)], 1)

    def test_a_batch_with_holes_is_sent_once(self, shop: Shop) -> None:
        topic = shop.topic()
        fill(shop, topic, batches=2)
        take(shop, topic)
        for position in (1, 3, 5, 12):
            settle(shop.queue(topic), "ann", Said(position, position, BACK))
        delivery = take(shop, topic, "bob")
        assert [one.first for one in delivery.given] == [1, 3, 5, 12]
        assert len(delivery.batches) == 2

    def test_bytes_are_a_limit_but_for_the_first_batch(self, shop: Shop) -> None:
        topic = shop.topic()
        fill(shop, topic, batches=3)
        assert given(take(shop, topic, wish=EVERYTHING._replace(size=1))) == [(0, 9, 1)]

    @pytest.mark.parametrize("length", [-12, -(2**31), 0, 2**31 - 1])
    def test_damage_ends_what_is_given_and_is_told_where_it_stands(
        self, shop: Shop, length: int
    ) -> None:
        """And nobody waits for a walk that does not get on."""
        topic = shop.topic()
        fill(shop, topic, batches=3)
        segment = topic.partition(0).segments[0]
        second = segment.size // 3
        segment.file.pwrite([length.to_bytes(4, signed=True)], second + 8)
        assert given(take(shop, topic)) == [(0, 9, 1)]
        with pytest.raises(DamagedLogError):
            take(shop, topic)

    def test_retention_overtakes(self, shop: Shop) -> None:
        topic = shop.topic()
        fill(shop, topic, batches=2)
        take(shop, topic)
        queue = shop.queue(topic)
        shop.broker.delete_records(topic.partition(0), 15)
        assert not take(shop, topic, "bob").given
        assert queue.start == 15
        assert settle(queue, "ann", Said(0, 14, DONE)) == [None]
        answers = settle(queue, "ann", Said(10, 19, DONE))
        shop.commit()
        assert (answers, queue.start) == ([None], 20)
        shop.restart(clean=True)
        assert shop.queue(shop.broker.topic("t")).start == 20

    def test_compacted_away(self, shop: Shop) -> None:
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": "100",
            "min.cleanable.dirty.ratio": "0",
        }
        topic = shop.topic(config=config)
        for value in range(6):
            shop.put(topic, (b"same", b"%d" % value))
            shop.commit()
        take(shop, topic)
        shop.queue(topic).leave("ann")
        shop.compact()
        positions = [
            n for first, last, _ in take(shop, topic).given for n in range(first, last + 1)
        ]
        assert 5 in positions
        assert 0 not in positions
        assert shop.queue(topic).start == positions[0]

    @pytest.mark.parametrize("committed_only", [True, False])
    def test_transactions(self, shop: Shop, committed_only: bool) -> None:
        topic = shop.topic()
        wish = EVERYTHING._replace(committed_only=committed_only)
        partition = topic.partition(0)
        shop.broker.appender.enlist = lambda *_: None  # no coordinator knows these producers
        fields = {"producer_epoch": 0, "attributes": TRANSACTIONAL_FLAG}
        for producer, commit in ((1, False), (2, True)):
            shop.put(topic, (b"k", b"v"), producer_id=producer, base_sequence=0, **fields)
            shop.broker.appender.append_marker(partition, producer, 0, commit=commit)
        shop.put(topic, (b"k", b"open"), producer_id=3, base_sequence=0, **fields)
        shop.commit()
        expected = [(2, 2, 1)] if committed_only else [(0, 0, 1), (2, 2, 1), (4, 4, 1)]
        assert given(take(shop, topic, wish=wish)) == expected
        settle(shop.queue(topic), "ann", Said(2, 2, DONE))
        shop.commit()
        assert shop.queue(topic).start == (4 if committed_only else 0)

    def test_markers_are_skipped_in_one_entry_and_not_without_end(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = shop.topic()
        for _ in range(50):
            shop.broker.appender.append_marker(topic.partition(0), 1, 0, commit=True)
        fill(shop, topic, count=1)
        queue = shop.queue(topic)
        written: list[int] = []
        monkeypatch.setattr("penstock.broker.queues.queues.write", lambda *_: written.append(1))
        assert not take(shop, topic, wish=EVERYTHING._replace(size=800)).given
        assert (len(written), 0 < queue.start < 50) == (1, True)
        assert given(take(shop, topic)) == [(50, 50, 1)]

    def test_where_a_group_begins(self, shop: Shop) -> None:
        topic = shop.topic()
        fill(shop, topic, batches=2)
        shop.append(topic, b"newer", timestamp=shop.clock.wall_ms() + 60_000)
        shop.commit()
        partition = topic.partition(0)

        def begin(reset: str) -> int:
            config = parse({"share.auto.offset.reset": reset})
            return first_position(partition, config, shop.clock.wall_ms() + 90_000)

        assert begin("earliest") == 0
        assert begin("latest") == 21
        assert begin("by_duration:PT1M") == 20
        assert begin("by_duration:P1DT0.5S") == 0
        assert begin("by_duration:PT1S") == 21


class TestRestart:
    @pytest.mark.parametrize("clean", [True, False])
    def test_what_is_remembered(self, shop: Shop, clean: bool) -> None:
        topic = shop.topic()
        fill(shop, topic)
        take(shop, topic)
        settle(shop.queue(topic), "ann", Said(0, 2, DONE), Said(3, 3, BACK), Said(5, 5, DONE))
        shop.commit()
        shop.restart(clean=clean)
        topic = shop.broker.topic("t")
        assert shop.broker.groups.is_share_group("crew")
        assert shop.queue(topic).start == 3
        assert given(take(shop, topic)) == [(3, 3, 2), (4, 4, 1), (6, 9, 1)]

    def test_a_log_that_lost_its_end(self, shop: Shop) -> None:
        topic = shop.topic(config={"penstock.durability": "memory"})
        fill(shop, topic)
        take(shop, topic)
        settle(shop.queue(topic), "ann", Said(0, 9, DONE))
        shop.commit()
        shop.restart(clean=True)
        topic = shop.broker.topic("t")
        fill(shop, topic, count=3)
        assert given(take(shop, topic)) == [(0, 2, 1)]

    def test_topics_and_groups_take_their_queues_with_them(self, shop: Shop) -> None:
        for name in ("a", "b"):
            topic = shop.topic(name)
            fill(shop, topic)
            shop.queue(topic)
        shop.broker.delete_topic(shop.broker.topic("a"))
        shop.commit()
        assert len(shop.broker.groups.queues.of("crew")) == 1
        shop.restart(clean=False)
        assert len(shop.broker.groups.queues.of("crew")) == 1
        answers: list[StorageError | None] = []
        shop.broker.groups.delete("crew", answers.append)
        shop.commit()
        assert answers == [None]
        shop.restart(clean=False)
        assert not shop.broker.groups.all()
