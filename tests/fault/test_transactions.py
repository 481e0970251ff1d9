"""Crash at every operation of a history of transactions: each is whole or not there, for good.

Every transaction writes to two of three partitions and moves a group's offset. Whatever survives a
crash, a reader of committed records must find all three or none; what was acknowledged must be as it was
told. The client goes on as soon as it is answered, when the markers of its last transaction may not be
durable yet.
"""

from __future__ import annotations

import random

import pytest
from tests.support.log import DATA, NOW, Log

from penstock.broker.producers import ProducerTable
from penstock.broker.transaction import NO_PRODUCER, Producer, State
from penstock.errors import DamagedLogError, PenstockError
from penstock.limits import POSITIONS_SYNC_SECONDS
from penstock.log.committed import Committed
from penstock.log.partition import Partition
from penstock.log.reading import read
from penstock.memory_files import MemoryFiles
from penstock.record.batch import TRANSACTIONAL_FLAG, parse
from penstock.record.decode import decode
from penstock.record.encode import NewRecord, encode
from penstock.testing.faulty import Crash, FaultyFiles
from penstock.testing.power_failure import Keep

COUNT = 5
NAME, GROUP = "transfer", "readers"
TOPICS = ("a", "b", "c")
CHECKSUM_AT = 17  # in a batch


def is_commit(number: int) -> bool:
    return number % 3 != 1


def places_of(number: int) -> tuple[str, ...]:
    return ("a", "b") if number % 2 else ("a", "c")


class History:
    """One life of the broker, and what its client was told."""

    def __init__(self, files: FaultyFiles, *, new_epochs: bool) -> None:
        self.files = files
        self.new_epochs = new_epochs
        self.ended: list[int] = []
        self.asked: list[int] = []

    def play(self) -> None:
        log = Log(self.files)
        for name in TOPICS:
            log.topic(name)
        transactions = log.broker.transactions
        producer = self.register(log)
        sequences = dict.fromkeys(TOPICS, 0)
        for number in range(COUNT):
            log.clock.advance(POSITIONS_SYNC_SECONDS)  # so that ends become known
            places = {name: log.broker.topic(name).partition(0) for name in places_of(number)}
            answers: list[PenstockError | None] = []
            if not self.new_epochs:
                identities = [partition.identity for partition in places.values()]
                transactions.add_partitions(NAME, producer, identities, answers.append)
                log.commit_until(answers)
            for name in places:
                sequence = 0 if self.new_epochs else sequences[name]
                self.append(log, name, producer, sequence, number)
                sequences[name] += 1
            offset = {places["a"].identity: Committed(number + 1, -1, "", NOW)}
            answers.clear()
            transactions.hold_offsets(
                NAME, producer, GROUP, offset, answers.append, begins=self.new_epochs
            )
            log.commit_until(answers)
            self.asked.append(number)
            producer = self.end(log, producer, number)
            if self.new_epochs:
                producer = self.abort_nothing(log, producer)

    def register(self, log: Log) -> Producer:
        found: list[Producer] = []
        log.broker.transactions.register(
            NAME, 60_000, NO_PRODUCER, lambda error, producer, kept: found.append(producer)
        )
        log.commit()
        return found[0]

    def append(self, log: Log, name: str, producer: Producer, sequence: int, number: int) -> None:
        topic = log.broker.topic(name)
        data = encode(
            [NewRecord(b"%d" % number, timestamp=NOW)],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL_FLAG,
        )
        log.broker.appender.append(topic, topic.partition(0), data, self.new_epochs)

    def end(self, log: Log, producer: Producer, number: int) -> Producer:
        found: list[Producer] = []

        def done(error: PenstockError | None, following: Producer) -> None:
            assert error is None
            self.ended.append(number)
            found.append(following)

        log.broker.transactions.end(
            NAME, producer, done, commit=is_commit(number), new_epoch=self.new_epochs
        )
        log.commit_until(found)
        return found[0]

    def abort_nothing(self, log: Log, producer: Producer) -> Producer:
        """A client that does not know whether it has begun aborts, at once after the answer."""
        found: list[Producer] = []
        log.broker.transactions.end(
            NAME,
            producer,
            lambda _, following: found.append(following),
            commit=False,
            new_epoch=True,
        )
        log.commit_until(found)
        return found[0]

    def check(self, files: FaultyFiles) -> None:
        """What a broker that starts on what is left shows, before and after the id is used again."""
        log = Log(files)
        log.commit()
        seen = self.seen(log)
        self.register(log)
        for topic in log.broker.topics():
            partition = topic.partition(0)
            assert stable_end(partition) == partition.durable_offset, "a transaction hangs"
        assert self.seen(log) == seen

    def seen(self, log: Log) -> list[int]:
        names = [topic.name for topic in log.broker.topics()]
        if names != list(TOPICS):
            assert not self.asked
            return []
        found = {name: committed(log.broker.topic(name).partition(0)) for name in TOPICS}
        a = found["a"]
        for name in ("b", "c"):
            expected = [number for number in a if name in places_of(number)]
            assert found[name] == expected, f"a half transaction: {found}"
        for number in self.ended:
            assert (number in a) == is_commit(number), f"{number} was told otherwise"
        assert all(is_commit(number) and number in self.asked for number in a)
        identity = log.broker.topic("a").partition(0).identity
        offset = log.broker.groups.offsets(GROUP).get(identity)
        assert (offset.offset - 1 if offset else None) == (a[-1] if a else None)
        return a


def producers(partition: Partition) -> ProducerTable:
    assert isinstance(partition.observer, ProducerTable)
    return partition.observer


def stable_end(partition: Partition) -> int:
    return producers(partition).last_stable_offset(partition.durable_offset)


def committed(partition: Partition) -> list[int]:
    """What a reader of committed records sees, by the rules that clients follow."""
    end = stable_end(partition)
    aborted = producers(partition).aborted_between(0, end)
    values: list[int] = []
    offset = 0
    while offset < end:
        data = bytes(read(partition, offset, 1, end))
        header = parse(data)
        hidden = any(
            a.producer_id == header.producer_id
            and a.first_offset <= header.base_offset < a.marker_offset
            for a in aborted
        )
        if not header.is_control and not hidden:
            values += [int(record.value or b"") for record in decode(data[: header.size])]
        offset = header.last_offset + 1
    return values


def operations(*, new_epochs: bool) -> int:
    files = FaultyFiles()
    History(files, new_epochs=new_epochs).play()
    return files.operations


@pytest.mark.parametrize("new_epochs", [True, False], ids=["newer", "older"])
@pytest.mark.parametrize("policy", Keep)
def test_crash_at_every_operation(policy: Keep, new_epochs: bool) -> None:
    crash_everywhere(policy, new_epochs=new_epochs, sync_is_noop=False)


@pytest.mark.parametrize("new_epochs", [True, False], ids=["newer", "older"])
def test_without_syncs_the_same_test_fails(new_epochs: bool) -> None:
    with pytest.raises(AssertionError):
        crash_everywhere(Keep.NOTHING, new_epochs=new_epochs, sync_is_noop=True)


def crash_everywhere(policy: Keep, *, new_epochs: bool, sync_is_noop: bool) -> None:
    for number in range(1, operations(new_epochs=new_epochs) + 1):
        files = FaultyFiles(random.Random(number), crash_at=number, sync_is_noop=sync_is_noop)
        history = History(files, new_epochs=new_epochs)
        with pytest.raises(Crash):
            history.play()
        history.check(files.after_crash(policy, random.Random(number)))


def test_the_whole_history() -> None:
    for new_epochs in (True, False):
        files = FaultyFiles()
        history = History(files, new_epochs=new_epochs)
        history.play()
        assert history.ended == list(range(COUNT))
        history.check(files.after_crash(Keep.NOTHING, random.Random(1)))


@pytest.mark.parametrize("new_epochs", [True, False], ids=["newer", "older"])
def test_a_partition_that_is_damaged_for_a_while_gets_its_markers_when_it_is_whole(
    new_epochs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.partition.CHECKPOINT_BATCHES", 1_000)  # all is looked at
    damaged = ended_later = 0
    for number in range(1, operations(new_epochs=new_epochs) + 1):
        files = FaultyFiles(random.Random(number), crash_at=number)
        history = History(files, new_epochs=new_epochs)
        with pytest.raises(Crash):
            history.play()
        left = files.after_crash(Keep.NOTHING, random.Random(number))
        if not flip(left):
            continue
        log = Log(left)
        if not isinstance(log.broker.topic("b").partitions[0], DamagedLogError):
            continue  # it was cut: nobody was told that it is there
        damaged += 1
        log.commit()
        ended_later += end_open(history, log)
        end_another(history, log)
        log.restart(clean=True)
        log.broker.close()
        assert flip(left)
        history.check(left)
    assert damaged > COUNT
    assert ended_later


def flip(files: MemoryFiles) -> bool:
    """Damage the first batch of a partition, or undo it."""
    path = DATA / "topics" / "b-0" / f"{0:020d}.log"
    if not files.exists(path) or not files.open(path).size():
        return False
    file = files.open(path)
    byte = file.pread(1, CHECKSUM_AT)
    file.pwrite([bytes([byte[0] ^ 0xFF])], CHECKSUM_AT)
    return True


def end_open(history: History, log: Log) -> bool:
    """The client asks again for what it was not answered, if that is still open."""
    transaction = log.broker.transactions.get(NAME)
    left = history.asked[len(history.ended) :]
    if transaction is None or transaction.state is not State.OPEN or not left:
        return False
    history.end(log, transaction.producer, left[0])
    return True


def end_another(history: History, log: Log) -> None:
    """The id is used again, for a transaction that touches no partition."""
    producer = history.register(log)
    answers: list[object] = []
    offset = {log.broker.topic("a").partition(0).identity: Committed(1, -1, "", NOW)}
    log.broker.transactions.hold_offsets(
        NAME, producer, "others", offset, answers.append, begins=True
    )
    log.commit_until(answers)
    answers.clear()
    log.broker.transactions.end(
        NAME,
        producer,
        lambda error, _: answers.append(error),
        commit=False,
        new_epoch=history.new_epochs,
    )
    log.commit_until(answers)
    assert answers == [None]
    log.commit()
