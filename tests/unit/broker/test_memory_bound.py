"""Topics of durability memory: what they may hold together, and that what goes is really freed."""

from __future__ import annotations

import random
import weakref

import pytest
from tests.support.log import DATA, NOW, Log, values

from penstock.broker.topic import Topic
from penstock.errors import MemoryFullError
from penstock.limits import MEMORY_LOOK_SECONDS
from penstock.testing.faulty import FaultyFiles

MEMORY = {"penstock.durability": "memory"}
BOUND = 10_000
SECOND = "1000"


def memory_topic(log: Log, name: str = "m", **config: str) -> Topic:
    settings = {setting.replace("_", "."): value for setting, value in config.items()}
    return log.topic(name, MEMORY | settings)


def fill(log: Log, topic: Topic) -> list[bytes]:
    """Write until it is refused; what was taken."""
    taken: list[bytes] = []
    with pytest.raises(MemoryFullError):
        while len(taken) < 1000:
            value = b"%d " % len(taken) + bytes(1000)
            log.append(topic, value)
            taken.append(value)
    assert taken
    return taken


def let_go(log: Log) -> None:
    """Everything that waits, and everything that it leaves to the background."""
    log.commit()
    while log.background:
        log.background.pop(0)()


def held(log: Log) -> int:
    """What is really there, by the partitions' own word."""
    found = sum(p.size_bytes for p in log.broker.partitions() if p.memory is not None)
    assert log.store.memory.held_bytes == found
    return found


def test_beyond_the_bound_appends_are_refused_and_all_else_goes_on() -> None:
    log = Log(memory_topics=BOUND)
    topic, other, disk = memory_topic(log), memory_topic(log, "n"), log.topic("disk")
    taken = fill(log, topic)
    assert BOUND - 1200 < held(log) <= BOUND
    with pytest.raises(MemoryFullError, match=r"append: .* 10000 bytes .* --memory-topics"):
        log.append(other, bytes(1000))
    log.append(disk, bytes(5000))
    log.commit()
    assert values(disk.partition(0)) == [bytes(5000)]
    assert values(topic.partition(0)) == taken
    assert topic.partition(0).offline is None


def test_a_retry_of_what_is_held_is_answered_when_nothing_more_is_taken() -> None:
    log = Log(memory_topics=BOUND)
    topic = memory_topic(log)
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    log.append(topic, b"first", **producer)
    fill(log, topic)
    assert log.append(topic, b"first", **producer) == 0


def test_a_full_disk_does_not_refuse_what_is_kept_in_memory() -> None:
    log = Log(FaultyFiles())
    topic = memory_topic(log)
    log.store.space.found_full()
    log.append(topic, b"x")
    assert values(topic.partition(0)) == [b"x"]


def test_trimming_makes_room_as_soon_as_somebody_wants_it() -> None:
    log = Log(memory_topics=BOUND)
    topic = memory_topic(log)
    partition = topic.partition(0)
    fill(log, topic)
    log.broker.delete_records(partition, -1)
    log.clock.advance(MEMORY_LOOK_SECONDS)
    log.append(topic, bytes(1000))
    assert values(partition, partition.start_offset) == [bytes(1000)]
    assert held(log) < 1200


def test_trimming_gives_whole_segments_back() -> None:
    log = Log(memory_topics=BOUND)
    topic = memory_topic(log, segment_bytes="2200")
    partition = topic.partition(0)
    taken = fill(log, topic)
    log.broker.delete_records(partition, 5)
    log.broker.keep_retention()
    assert partition.segments[0].base_offset == 4
    held(log)
    assert values(partition, 5) == taken[5:]


def test_deleting_a_topic_makes_room_at_once() -> None:
    log = Log(memory_topics=BOUND)
    topic, other = memory_topic(log), memory_topic(log, "n")
    fill(log, topic)
    log.broker.delete_topic(topic)
    log.append(other, bytes(5000))
    assert held(log) < 5200


def test_retention_by_time_makes_room() -> None:
    log = Log(memory_topics=BOUND)
    topic = memory_topic(log, retention_ms=SECOND)
    fill(log, topic)
    log.clock.advance(1.1)
    log.append(topic, bytes(1000), timestamp=NOW + 1100)
    assert held(log) < 1200


def test_retention_by_bytes_keeps_below_the_bound_whatever_the_size_of_segments() -> None:
    """In Kafka and on disk it never removes the segment that is written, which may be a gigabyte."""
    log = Log(memory_topics=BOUND)
    topic = memory_topic(log, retention_bytes="3000")
    for _ in range(100):
        log.clock.advance(MEMORY_LOOK_SECONDS)
        log.append(topic, bytes(1000))
    log.broker.keep_retention()
    assert 3000 <= held(log) <= 6400


def test_looks_after_the_retention_are_few_while_it_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(memory_topics=BOUND)
    topic = memory_topic(log)
    fill(log, topic)
    looks: list[None] = []
    monkeypatch.setattr(log.store.memory, "make_room", lambda: looks.append(None))
    for _ in range(10):
        log.clock.advance(MEMORY_LOOK_SECONDS / 2)
        with pytest.raises(MemoryFullError):
            log.append(topic, bytes(1000))
    assert 3 <= len(looks) <= 5


def test_refusals_and_their_end_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(memory_topics=BOUND)
    topic, other = memory_topic(log), memory_topic(log, "n")
    fill(log, other)
    with pytest.raises(MemoryFullError):
        log.append(topic, bytes(1000))
    log.broker.delete_topic(other)
    log.append(topic, b"x")
    told = [one.message for one in caplog.records if "in memory" in one.message]
    assert len(told) == 2
    assert "are refused" in told[0]
    assert "are accepted" in told[1]


@pytest.mark.parametrize("way", ["trim", "retention", "delete"])
def test_what_goes_is_freed(way: str) -> None:
    log = Log()
    topic = memory_topic(log, segment_bytes="2200", retention_ms=SECOND)
    partition = topic.partition(0)
    for _ in range(10):
        log.append(topic, bytes(1000))
    contents = [weakref.ref(segment.file._content) for segment in partition.segments]  # type: ignore[attr-defined]
    watching = [partition]  # as a fetch does that waits
    if way == "trim":
        log.broker.delete_records(partition, -1)
    elif way == "retention":
        log.clock.advance(2)
    else:
        log.broker.delete_topic(topic)
    log.broker.keep_retention()
    let_go(log)
    assert [content() for content in contents] == [None] * 5
    assert watching


def test_segments_go_without_a_round_that_a_deletion_could_meet() -> None:
    """Names in memory have no lock: a thread that changes them met the loop in the middle of it."""
    log = Log()
    topic = memory_topic(log, segment_bytes="2200", retention_ms=SECOND)
    disk = log.topic("disk")
    partition = topic.partition(0)
    for _ in range(10):
        log.append(topic, bytes(1000))
    oldest = partition.segments[0].paths()
    log.clock.advance(2)
    log.broker.keep_retention()
    names = log.store._memory_files
    assert oldest
    assert not any(names.exists(path) for path in oldest)
    log.broker.delete_topic(topic)
    let_go(log)
    log.append(disk, b"x")
    log.commit()
    assert values(disk.partition(0)) == [b"x"]
    assert held(log) == 0


def test_nothing_of_it_goes_to_the_disk() -> None:
    log = Log()
    topic = memory_topic(log, segment_bytes="2200")
    for _ in range(10):
        log.append(topic, bytes(1000))
    log.commit()
    assert list(log.files.list(DATA / "topics" / "m-0")) == ["topic.json"]


def test_a_round_that_ends_after_a_roll_does_not_take_it_back() -> None:
    log = Log()
    topic = memory_topic(log, segment_bytes="2200", retention_ms=SECOND)
    partition = topic.partition(0)
    log.append(topic, bytes(1000))
    log.broker.commit.start_moved(partition)
    end_round = log.start_round()
    assert partition.roll_if_expired(NOW + 2000)
    end_round()
    assert partition.expired_segments(NOW + 2000) == partition.segments[:1]


def test_the_count_stays_exact(seed: int = 7) -> None:
    log = Log(memory_topics=BOUND)
    rng = random.Random(seed)
    topics = {name: memory_topic(log, name, segment_bytes="2200") for name in "ab"}
    for _ in range(600):
        log.clock.advance(0.3)
        name = rng.choice("ab")
        partition = topics[name].partition(0)
        match rng.randrange(8):
            case 0:
                before = rng.randint(partition.start_offset, partition.end_offset)
                log.broker.delete_records(partition, before)
            case 1:
                log.broker.keep_retention()
            case 2:
                log.commit()
            case 3:
                log.broker.appender.append_marker(partition, 1, 0, commit=True)
            case 4 if rng.random() < 0.1:
                log.broker.delete_topic(topics[name])
                let_go(log)
                topics[name] = memory_topic(log, name, segment_bytes="2200")
            case _:
                try:
                    log.append(topics[name], bytes(rng.randint(1, 2000)))
                except MemoryFullError:
                    assert held(log) + 2100 > BOUND
        assert held(log) <= BOUND + 600 * 80  # markers are always taken
    for topic in topics.values():
        log.broker.delete_topic(topic)
    assert held(log) == 0
