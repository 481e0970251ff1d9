"""Queues and journals when something fails at a bad moment."""

from __future__ import annotations

import errno
import random

import pytest
from tests.support.log import grow
from tests.unit.broker.test_queues import DONE, EVERYTHING, Shop, fill, given, settle, take

from penstock.broker.queues.queue import Said
from penstock.errors import StorageError
from penstock.log.positions import PartitionId
from penstock.record.batch import TRANSACTIONAL_FLAG
from penstock.testing.faulty import Crash, FaultyFiles
from penstock.testing.power_failure import Keep


def test_what_was_aborted_is_skipped_however_much_it_is() -> None:
    shop = Shop()
    topic = shop.topic()
    shop.broker.appender.enlist = lambda *_: None
    fields = {"producer_id": 1, "producer_epoch": 0, "attributes": TRANSACTIONAL_FLAG}
    for number in range(200):
        shop.append(topic, *[b"x" * 10] * 100, base_sequence=number * 100, **fields)
    shop.broker.appender.append_marker(topic.partition(0), 1, 0, commit=False)
    fill(shop, topic, 5)
    wish = EVERYTHING._replace(committed_only=True, size=100_000)
    tries = 1
    while not (delivery := take(shop, topic, wish=wish)).given:
        assert delivery.skipped_on
        tries += 1
    assert given(delivery) == [(20_001, 20_005, 1)]
    # As many as the bytes make necessary, and not as many as there may be records on their way.
    assert tries <= 5


def test_a_log_that_lost_its_end_is_given_out_only_when_that_is_remembered() -> None:
    files = FaultyFiles()
    shop = Shop(files)
    topic = shop.topic(config={"penstock.durability": "os"})
    fill(shop, topic)
    take(shop, topic)
    settle(shop.queue(topic), "ann", Said(0, 9, DONE))
    shop.commit()
    files = files.after_crash(Keep.NOTHING, random.Random(1))
    shop = Shop(files)
    topic = shop.broker.topic("t")
    files.fail("pwrite", errno.ENOSPC, sticky=True)
    shop.commit()
    files.heal()
    shop.clock.advance(1)
    fill(shop, topic)
    queue = shop.broker.groups.queues.of("crew")[topic.partition(0).identity]
    assert not queue.is_durable
    shop.timers.advance(2)
    shop.commit()
    assert queue.is_durable
    shop = Shop(files.after_crash(Keep.EVERYTHING, random.Random(1)))
    assert given(take(shop, shop.broker.topic("t"))) == [(0, 9, 1)]


def standing(files: FaultyFiles) -> Shop:
    shop = Shop(files)
    topic = shop.topic()
    fill(shop, topic)
    shop.queue(topic)
    take(shop, topic)
    settle(shop.queue(topic), "ann", Said(0, 4, DONE))
    groups = shop.broker.groups
    partition = topic.partition(0).identity
    groups.commit("readers", {partition: groups.position(7, 0, "")}, lambda _: None)
    groups.sync_offsets()
    shop.commit()
    return shop


def test_a_topic_that_is_still_there_after_a_crash_has_its_offsets_and_queues() -> None:
    files = FaultyFiles()
    shop = standing(files)
    before = files.operations
    shop.broker.delete_topic(shop.broker.topic("t"))
    shop.commit()
    for at in range(before + 1, files.operations + 1):
        crashing = FaultyFiles(random.Random(at), crash_at=at)
        shop = standing(crashing)
        with pytest.raises(Crash):
            shop.broker.delete_topic(shop.broker.topic("t"))
            shop.commit()
        after = Shop(crashing.after_crash(Keep.NOTHING, random.Random(at)))
        groups = after.broker.groups
        kept = bool(after.broker.topics())
        assert (bool(groups.offsets("readers")), bool(groups.queues.of("crew"))) == (kept, kept)


def test_a_journal_whose_new_file_may_not_last_takes_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.log.change_journal._REWRITE_BYTES", 300)
    files = FaultyFiles()
    shop = Shop(files)
    groups = shop.broker.groups
    topic = shop.topic()
    grow(shop.broker, topic, 31)
    partition = PartitionId(topic.entry.id, 0)
    answers: list[StorageError | None] = []

    def commit(offset: int) -> None:
        groups.commit("readers", {partition: groups.position(offset, 0, "")}, answers.append)
        groups.sync_offsets()
        shop.commit()

    files.fail("sync_folder", errno.ENOSPC)
    for offset in range(30):
        commit(offset)
    files.heal()
    commit(30)
    done = answers.count(None)
    assert answers[:done] == [None] * done
    assert 0 < done < 30
    after = Shop(files.after_crash(Keep.EVERYTHING, random.Random(1)))
    assert after.broker.groups.offsets("readers")[partition].offset >= done - 1
