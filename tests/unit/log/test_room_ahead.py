"""Room on the disk that is allocated ahead: for whom, how much, and when it is given back."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest
from tests.support.log import Log, values

from penstock.limits import (
    MIB,
    ROOM_AHEAD_BYTES_MAX,
    ROOM_AHEAD_FREE_BYTES_MIN,
    ROOM_AHEAD_ROUND_BYTES_MIN,
)
from penstock.testing.faulty import FaultyFiles

LARGE = bytes(ROOM_AHEAD_ROUND_BYTES_MIN)


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


def reserved(files: FaultyFiles) -> list[tuple[int, int]]:
    """Start and size of everything that was reserved."""
    ranges = [line.split()[-1] for line in files.trace if " reserve " in line]
    return [(int(start), int(size)) for start, size in (each.split("+") for each in ranges)]


def write(log: Log, value: bytes, times: int = 1) -> None:
    for _ in range(times):
        log.append(log.broker.topic("t"), value)
        log.commit()


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_as_much_is_reserved_as_the_segment_holds(files: FaultyFiles, durability: str) -> None:
    log = Log(files)
    log.topic(config={"penstock.durability": durability})
    write(log, LARGE)
    size = log.broker.topic("t").partition(0).active.size
    assert reserved(files) == [(size, size)]


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_more_is_reserved_when_half_of_it_is_used_and_never_above_the_maximum(
    files: FaultyFiles, durability: str
) -> None:
    log = Log(files)
    log.topic(config={"penstock.durability": durability})
    write(log, bytes(900_000), 200)
    found = reserved(files)
    assert 5 < len(found) < 20
    for start, size in found:
        assert size == min(start, ROOM_AHEAD_BYTES_MAX)
    for (start, size), (following, next_size) in pairwise(found):
        left = start + size - following
        assert 0 <= left <= next_size // 2, (
            "it never runs out, nor is it asked for before half is used"
        )


def test_small_pieces_get_no_room_ahead(files: FaultyFiles) -> None:
    log = Log(files)
    log.topic()
    write(log, bytes(1000), 2 * ROOM_AHEAD_ROUND_BYTES_MIN // 1000)
    assert reserved(files) == []


def test_no_more_than_a_segment_can_hold(files: FaultyFiles) -> None:
    log = Log(files)
    log.topic(config={"segment.bytes": str(3 * MIB)})
    write(log, bytes(MIB - 1000), 2)
    assert max(start + size for start, size in reserved(files)) == 3 * MIB


def test_what_is_not_synced_asks_for_a_round_only_when_it_wants_room(files: FaultyFiles) -> None:
    log = Log(files)
    log.topic(config={"penstock.durability": "os", "segment.bytes": str(3 * MIB)})
    topic = log.broker.topic("t")
    asked = []
    for _ in range(9):
        log.append(topic, LARGE)
        asked.append(not log.store.commit.idle)
        log.commit()
    # Whenever no more than half as much is left as the segment holds, until all of it is reserved.
    assert asked == [True, True, True, True, False, True, False, False, False]


def test_small_batches_count_together_where_they_are_not_synced(files: FaultyFiles) -> None:
    """They are written back together, when the checkpoint is due."""
    log = Log(files)
    log.topic(config={"penstock.durability": "os"})
    write(log, bytes(1000), ROOM_AHEAD_ROUND_BYTES_MIN // 1100)
    assert reserved(files) == []
    write(log, bytes(1000), 50)
    [(start, size)] = reserved(files)
    assert ROOM_AHEAD_ROUND_BYTES_MIN <= start == size < ROOM_AHEAD_ROUND_BYTES_MIN + 1100


def test_what_is_kept_in_memory_gets_none(files: FaultyFiles) -> None:
    log = Log(files)
    log.topic(config={"penstock.durability": "memory"})
    write(log, LARGE, 3)
    assert reserved(files) == []
    log.append(log.broker.topic("t"), LARGE)
    assert log.store.commit.idle


def test_a_disk_with_little_room_is_left_alone(files: FaultyFiles) -> None:
    files.capacity = ROOM_AHEAD_FREE_BYTES_MIN
    log = Log(files)
    log.topic()
    write(log, LARGE, 3)
    assert reserved(files) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EOPNOTSUPP, errno.EIO])
def test_records_are_taken_without_it(files: FaultyFiles, code: int) -> None:
    log = Log(files)
    log.topic()
    files.fail("reserve", code, sticky=True)
    write(log, LARGE, 3)
    assert values(log.broker.topic("t").partition(0)) == [LARGE] * 3


def test_a_segment_that_is_full_gives_back_what_it_did_not_use(files: FaultyFiles) -> None:
    log = Log(files)
    log.topic(config={"segment.bytes": str(3 * MIB)})
    write(log, bytes(MIB - 1000), 2)
    first = log.broker.topic("t").partition(0).active
    assert not [line for line in files.trace if " give_back " in line]
    write(log, bytes(MIB - 1000), 2)
    given = [line for line in files.trace if " give_back " in line]
    assert len(given) == 1
    assert f"{first.base_offset:020d}.log" in given[0]


def test_so_does_a_stop(files: FaultyFiles) -> None:
    log = Log(files)
    log.topic()
    write(log, LARGE)
    files.fail("give_back", errno.EIO)
    log.restart(clean=True)
    assert [line for line in files.trace if " give_back " in line]
    assert values(log.broker.topic("t").partition(0)) == [LARGE]


def test_so_does_a_full_disk(files: FaultyFiles) -> None:
    log = Log(files)
    log.topic()
    write(log, LARGE)
    log.broker.keep_retention()
    assert not [line for line in files.trace if " give_back " in line]
    log.store.space.found_full()
    files.capacity = 0
    log.broker.keep_retention()
    assert [line for line in files.trace if " give_back " in line]
