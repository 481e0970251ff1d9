"""Commits and a crash at every operation of the file system.

An acknowledged commit survives the death of the process, and once it has been synced a power failure. A
first commit, one that goes back, and whatever takes offsets away survive both when acknowledged.
"""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.log import grow
from tests.support.space import small_reserve

from penstock.broker.broker import Broker
from penstock.broker.topic import Topic
from penstock.errors import StorageError
from penstock.log.positions import PartitionId
from penstock.log.store import LogStore
from penstock.testing.clock import ManualClock
from penstock.testing.faulty import Crash, FaultyFiles
from penstock.testing.power_failure import POWER_FAILURES, Keep

HOME = Path("/data")
GROUPS = ("red", "green", "blue")
GONE = -1
Key = tuple[str, int]


@pytest.fixture(autouse=True)
def small_journals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The journal is rewritten several times within a history."""
    monkeypatch.setattr("penstock.log.change_journal._REWRITE_BYTES", 600)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


Done = Callable[[StorageError | None], None]


def together(calls: list[Done]) -> Done:
    def done(error: StorageError | None) -> None:
        for call in calls:
            call(error)

    return done


class Memory:
    """What was asked for and what was promised, of each offset, in order."""

    def __init__(self) -> None:
        self.asked: dict[Key, list[int]] = {}
        self.answered: dict[Key, int] = {}
        self.promised: dict[Key, int] = {}
        """What survives a power failure."""

    def ask(self, key: Key, offset: int) -> Done:
        values = self.asked.setdefault(key, [GONE])
        values.append(offset)
        index = len(values) - 1

        def done(error: StorageError | None) -> None:
            if error is None:
                self.answered[key] = max(index, self.answered.get(key, 0))
                before = values[index - 1]
                if GONE in (offset, before) or offset < before:
                    self.promised[key] = self.answered[key]

        return done

    def synced(self) -> None:
        """A round has ended, and none has begun."""
        self.promised = dict(self.answered)

    def check(self, found: dict[Key, int], policy: Keep) -> None:
        """After a crash each is the last one that was promised, or one that was asked for after it."""
        if policy is not Keep.EVERYTHING:
            self.answered = dict(self.promised)
        for key, values in self.asked.items():
            possible = values[self.answered.get(key, 0) :]
            assert found.get(key, GONE) in possible, f"{key}: {found.get(key)} not in {possible}"


class Life:
    """A broker from its start to its crash, and what clients know of it."""

    def __init__(self, files: FaultyFiles, memory: Memory) -> None:
        self.files = files
        self.memory = memory
        self.clock = ManualClock()
        self.turns: list[Callable[[], None]] = []
        self.store = LogStore(
            files,
            HOME,
            self.clock,
            run=lambda job, done: done(job()),
            defer=self.turns.append,
            background=lambda job: job(),
            space=small_reserve(files, HOME, self.clock),
        )
        self.broker = Broker(self.store, self.clock)
        self.broker.open()

    def drain(self) -> None:
        self.broker.groups.sync_offsets()
        while self.turns:
            self.turns.pop(0)()
        if self.store.commit.metadata_failed is None:
            self.memory.synced()

    def topic(self, name: str) -> Topic:
        return self.broker.topic(name)

    def commit(self, group: str, offset: int) -> None:
        """Both partitions of the topic in one commit, as one promise each."""
        groups = self.broker.groups
        topic_id = self.topic("orders").entry.id
        done = [self.memory.ask((group, number), offset) for number in (0, 1)]
        position = groups.position(offset, 0, f"at {offset}")
        offsets = {PartitionId(topic_id, number): position for number in (0, 1)}
        groups.commit(group, offsets, together(done))

    def forget(self, group: str, number: int) -> None:
        partition = PartitionId(self.topic("orders").entry.id, number)
        self.broker.groups.remove_offsets(
            group, [partition], self.memory.ask((group, number), GONE)
        )

    def delete(self, group: str) -> None:
        done = [self.memory.ask((group, number), GONE) for number in (0, 1)]
        self.broker.groups.delete(group, together(done))

    def found(self) -> dict[Key, int]:
        """What can be fetched; the words must fit the number, whatever it is."""
        found: dict[Key, int] = {}
        for group in GROUPS:
            for partition, position in self.broker.groups.offsets(group).items():
                assert position.metadata == f"at {position.offset}"
                found[group, partition.partition] = position.offset
        return found

    def play(self, seed: int) -> None:
        """Commits of three groups, a few at a time, some of them back, some taken back."""
        rng = random.Random(seed)
        for offset in range(1, 40):
            group = rng.choice(GROUPS)
            known = {name for name, _ in self.found()}
            match rng.randrange(8):
                case 0 if group in known:
                    self.forget(group, rng.randrange(2))
                case 1 if group in known:
                    self.delete(group)
                case 2:
                    self.commit(group, rng.randrange(offset))
                case _:
                    self.commit(group, offset)
            if rng.random() < 0.6:
                self.drain()


def crashed(seed: int, at: int | None, *, unsafe: bool = False) -> Life | None:
    """A history that ends at an operation; None if it ends before there is a topic."""
    files = FaultyFiles(random.Random(seed), crash_at=at)
    life = None
    files.make_folder(HOME)
    files.sync_all(HOME)  # whoever makes the folder sees to it that it stays
    try:
        new = Life(files, Memory())
        grow(new.broker, new.broker.create_topic("orders", 2, {}), 2000)
        new.drain()
        life = new
        files.sync_is_noop = unsafe
        life.play(seed)
    except Crash:
        pass
    return life


def operations(seed: int) -> int:
    whole = crashed(seed, None)
    assert whole is not None
    assert sum("offsets.journal.tmp" in line for line in whole.files.trace) > 4, "never rewritten"
    return whole.files.operations


@pytest.mark.parametrize("policy", Keep)
@pytest.mark.parametrize("seed", [1, 2])
def test_acknowledged_commits_survive(seed: int, policy: Keep) -> None:
    for number in range(3, operations(seed) + 2):
        life = crashed(seed, number)
        if life is None:
            continue
        files = life.files.after_crash(policy, random.Random(number))
        memory = life.memory
        second = Life(files, memory)
        memory.check(second.found(), policy)
        if not memory.asked:
            continue
        # And what the next life adds survives the next failure.
        second.commit("red", 1000 + number)
        second.drain()
        third = Life(files.after_crash(Keep.NOTHING, random.Random(number)), memory)
        memory.check(third.found(), Keep.NOTHING)
        assert third.found()["red", 0] == 1000 + number


@pytest.mark.parametrize("policy", POWER_FAILURES)
def test_negative_control_without_syncs_promises_break(policy: Keep) -> None:
    """Otherwise the test above would test nothing."""
    broken = 0
    for number in range(3, operations(1) + 2):
        life = crashed(1, number, unsafe=True)
        if life is None:
            continue
        try:
            second = Life(life.files.after_crash(policy, random.Random(number)), life.memory)
            life.memory.check(second.found(), policy)
        except AssertionError:
            broken += 1
    assert broken > 0


@pytest.fixture
def life() -> Life:
    """One with a topic and no end yet."""
    life = Life(FaultyFiles(), Memory())
    grow(life.broker, life.broker.create_topic("orders", 2, {}), 2000)
    life.drain()
    return life


def test_orderly_restart(life: Life) -> None:
    life.play(3)
    life.drain()
    before = life.found()
    life.broker.close()
    again = Life(life.files, life.memory)
    assert again.found() == before
    assert before


@pytest.mark.parametrize("durability", ["os", "memory"])
def test_a_group_does_not_skip_what_comes_where_the_log_lost_its_end(
    life: Life, durability: str
) -> None:
    topic = life.broker.create_topic("fast", 1, {"penstock.durability": durability})
    partition = PartitionId(topic.entry.id, 0)
    groups = life.broker.groups
    groups.commit("red", {partition: groups.position(10, 0, "note")}, lambda _: None)
    life.commit("red", 5)
    life.drain()
    grow(life.broker, topic, 10)
    again = Life(life.files.after_crash(Keep.NOTHING, random.Random(1)), life.memory)
    # More than what was lost comes before the next start.
    grow(again.broker, again.topic("fast"), 20)
    again.drain()
    third = Life(again.files.after_crash(Keep.EVERYTHING, random.Random(1)), life.memory)
    for one in (again, third):
        found = one.broker.groups.offsets("red")
        assert (found[partition].offset, found[partition].metadata) == (0, "note")
        assert found[PartitionId(one.topic("orders").entry.id, 0)].offset == 5


def test_a_torn_tail_is_put_aside(life: Life) -> None:
    life.commit("red", 5)
    life.drain()
    path = HOME / "offsets.journal"
    file = life.files.open(path)
    file.pwrite([b"torn"], file.size())
    file.sync()
    again = Life(life.files, life.memory)
    assert again.found() == {("red", 0): 5, ("red", 1): 5}
    (kept,) = life.files.list(HOME / "quarantine")
    assert kept.startswith("offsets.journal-")
    again.commit("red", 6)
    again.drain()
    assert Life(life.files, life.memory).found()["red", 0] == 6


def test_a_commit_is_there_at_once_and_survives_the_process(life: Life) -> None:
    life.commit("red", 5)
    assert life.found() == {}, "shown before it is durable, and it is the first"
    life.drain()
    life.commit("red", 6)
    assert life.found() == {("red", 0): 6, ("red", 1): 6}
    assert set(life.memory.answered.values()) == {2}
    files = life.files.after_crash(Keep.EVERYTHING, random.Random(1))
    assert Life(files, life.memory).found() == {("red", 0): 6, ("red", 1): 6}


def test_a_step_back_waits_for_the_disk(life: Life) -> None:
    """Otherwise what was to be delivered again would not be, after a power failure."""
    life.commit("red", 5)
    life.drain()
    life.commit("red", 2)
    assert life.found() == {("red", 0): 5, ("red", 1): 5}
    life.drain()
    files = life.files.after_crash(Keep.NOTHING, random.Random(1))
    assert Life(files, life.memory).found() == {("red", 0): 2, ("red", 1): 2}


def test_a_commit_overtakes_nothing(life: Life) -> None:
    """One that comes after a removal, which waits for the disk, waits with it."""
    life.commit("red", 5)
    life.drain()
    life.forget("red", 0)
    life.commit("red", 6)
    assert life.found() == {("red", 0): 5, ("red", 1): 5}
    life.drain()
    assert life.found() == {("red", 0): 6, ("red", 1): 6}
    assert Life(life.files, life.memory).found() == {("red", 0): 6, ("red", 1): 6}


def test_a_failed_write_is_told_and_the_next_one_works(life: Life) -> None:
    errors: list[StorageError | None] = []
    partition = PartitionId(life.topic("orders").entry.id, 0)
    groups = life.broker.groups
    life.files.fail("pwrite", errno.EIO)
    groups.commit("red", {partition: groups.position(1, 0, "")}, errors.append)
    life.drain()
    groups.commit("red", {partition: groups.position(2, 0, "at 2")}, errors.append)
    life.drain()
    assert isinstance(errors[0], StorageError)
    assert errors[1] is None
    assert Life(life.files, life.memory).found() == {("red", 0): 2}


def test_after_a_failed_sync_nothing_is_committed(life: Life) -> None:
    life.commit("red", 5)
    life.drain()
    life.files.fail("sync", 5)
    life.commit("red", 6)
    life.drain()
    assert life.store.commit.metadata_failed is not None
    life.commit("red", 7)
    life.drain()
    assert life.found() == {("red", 0): 6, ("red", 1): 6}
    assert set(life.memory.promised.values()) == {1}


def test_entries_of_another_version_are_left_alone(life: Life) -> None:
    life.commit("red", 5)
    life.drain()
    life.store.offsets._journal.append(b'{"what": "ever"}\n[]\n{"group": "red", "offsets": 7}')
    assert Life(life.files, life.memory).found() == {("red", 0): 5, ("red", 1): 5}
