"""When a commit round starts; and who waits for one is told of its end, whatever becomes of others."""

from __future__ import annotations

import gc

import pytest
from tests.support.log import Log

from penstock.limits import POSITIONS_SYNC_SECONDS, ROUND_BYTES_ENOUGH, ROUND_WAITING_ENOUGH
from penstock.log.partition import Partition
from penstock.testing.faulty import FaultyFiles


def test_one_answer_that_fails_does_not_cost_the_others_theirs(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    topic = log.topic()
    told: list[str] = []

    def fail() -> None:
        raise OverflowError("a mistake of ours")

    log.append(topic, b"x")
    log.broker.commit.after(lambda: told.append("before"))
    log.broker.commit.after(fail)
    log.broker.commit.after(lambda: told.append("after"))
    log.commit()
    assert told == ["before", "after"]
    assert "a mistake of ours" in caplog.text
    log.append(topic, b"y")
    log.commit()
    assert topic.partition(0).durable_offset == 2


def test_a_round_takes_along_what_arrives_while_it_looks(log: Log) -> None:
    topic = log.topic()
    for _ in range(5):
        log.append(topic, b"x")
        log.broker.commit.after(lambda: None)
        assert not log.look(), "more has come since the last look"
    assert log.look(), "nothing more has come"
    log.commit()
    assert topic.partition(0).durable_offset == 5


@pytest.mark.parametrize(("requests", "size"), [(ROUND_WAITING_ENOUGH, 1), (1, ROUND_BYTES_ENOUGH)])
def test_a_round_with_enough_to_sync_waits_for_nobody(log: Log, requests: int, size: int) -> None:
    topic = log.topic()
    for _ in range(requests):
        log.append(topic, bytes(size))
        log.broker.commit.after(lambda: None)
    assert log.look()


def test_a_round_that_nobody_waits_for_starts_all_the_same(log: Log) -> None:
    topic = log.topic()
    log.append(topic, b"x")
    assert not log.look()
    assert log.look()
    log.commit()
    assert topic.partition(0).durable_offset == 1


def test_a_round_for_the_thread_records_durable_ends_only_when_that_is_due() -> None:
    """It would be one more sync for those who wait for the round."""
    files = FaultyFiles()
    log = Log(files)
    topic = log.topic()
    written = sum("positions.journal" in line for line in files.trace)
    for segment_bytes in range(1000, 1005):
        log.append(topic, b"x")
        log.broker.configure(topic, {"segment.bytes": str(segment_bytes)})
        log.commit()
    assert sum("positions.journal" in line for line in files.trace) == written
    log.clock.advance(POSITIONS_SYNC_SECONDS)
    log.append(topic, b"x")
    log.commit()
    assert sum("positions.journal" in line for line in files.trace) > written


@pytest.mark.parametrize("recorded", ["by the round itself", "by the next one"])
def test_a_partition_that_is_deleted_while_its_round_runs_is_not_kept(
    log: Log, recorded: str
) -> None:
    """Its files stayed open until ends were next recorded, and its end was known for good."""
    log.append(log.topic("other"), b"x")
    topic = log.topic()
    identity = topic.partition(0).identity
    if recorded == "by the round itself":
        log.append(topic, b"x")
        log.commit()
        log.clock.advance(POSITIONS_SYNC_SECONDS)
    log.append(topic, b"x")
    end_round = log.start_round()
    log.broker.delete_topic(topic)
    end_round()
    log.commit()
    del topic, end_round
    gc.collect()
    partitions = [one for one in gc.get_objects() if isinstance(one, Partition)]
    assert identity not in [partition.identity for partition in partitions]
    log.clock.advance(POSITIONS_SYNC_SECONDS)
    log.append(log.broker.topic("other"), b"x")
    log.commit()
    assert log.store.positions.get(identity) == (0, 0)
