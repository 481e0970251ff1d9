"""A transactional producer over a broker in memory (tests.support.log)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.log import NOW, Log

from penstock.broker.appending import Appender
from penstock.broker.topic import Topic
from penstock.broker.transaction import NO_PRODUCER, Producer
from penstock.errors import PenstockError
from penstock.log.reading import read
from penstock.record.batch import TRANSACTIONAL_FLAG, BatchHeader, parse
from penstock.record.decode import Record, decode
from penstock.record.encode import NewRecord, encode

Pair = tuple[bytes, bytes | None]


class Writer:
    """Uses one transactional id, in the newer protocol or the older one."""

    def __init__(self, log: Log, name: str = "writer", *, new_epochs: bool = True) -> None:
        self.log = log
        self.name = name
        self.new_epochs = new_epochs
        self.sequence = 0
        found: list[Producer] = []
        log.broker.transactions.register(
            name, 60_000, NO_PRODUCER, lambda error, producer, left: found.append(producer)
        )
        log.commit()
        (self.producer,) = found

    def write(self, topic: Topic, *pairs: Pair, timestamp: int = NOW) -> int:
        """One batch, in the transaction that is open or begins with it; its first offset."""
        if not self.new_epochs:
            self._enlist(topic)
        data = encode(
            [NewRecord(value, key, timestamp) for key, value in pairs],
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            base_sequence=self.sequence,
            attributes=TRANSACTIONAL_FLAG,
        )
        self.sequence += len(pairs)
        appender = self.log.broker.appender
        return appender.append(topic, topic.partition(0), data, self.new_epochs).base_offset

    def _enlist(self, topic: Topic) -> None:
        answers: list[PenstockError | None] = []
        partitions = [topic.partition(0).identity]
        transactions = self.log.broker.transactions
        transactions.add_partitions(self.name, self.producer, partitions, answers.append)
        self.log.commit_until(answers)
        assert answers == [None]

    def end(self, *, commit: bool) -> None:
        found: list[Producer] = []

        def done(error: PenstockError | None, following: Producer) -> None:
            assert error is None
            found.append(following)

        self.log.broker.transactions.end(
            self.name, self.producer, done, commit=commit, new_epoch=self.new_epochs
        )
        self.log.commit()
        (self.producer,) = found
        if self.new_epochs:
            self.sequence = 0

    def transaction(self, topic: Topic, *pairs: Pair, commit: bool = True) -> int:
        """A whole one, with one batch."""
        base = self.write(topic, *pairs)
        self.end(commit=commit)
        return base


def batches(topic: Topic) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Every batch that a reader gets, with its records."""
    partition = topic.partition(0)
    offset = partition.start_offset
    while offset < partition.durable_offset:
        data = bytes(read(partition, offset, 1))
        header = parse(data)
        yield header, decode(data[: header.size])
        offset = header.last_offset + 1


def committed(topic: Topic) -> list[Record]:
    """What a reader of committed records sees, by Kafka's rule for clients.

    An aborted transaction begins where the broker says so and ends with the next marker of its
    producer, whatever that is the end of.
    """
    partition = topic.partition(0)
    producers = Appender.producers(partition)
    end = producers.last_stable_offset(partition.durable_offset)
    start = partition.start_offset
    aborted = sorted(producers.aborted_between(start, end), key=lambda one: one.first_offset)
    found: list[Record] = []
    hidden: set[int] = set()
    for header, records in batches(topic):
        if header.base_offset >= end:
            break
        while aborted and aborted[0].first_offset <= header.last_offset:
            hidden.add(aborted.pop(0).producer_id)
        if header.is_control:
            hidden.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL_FLAG and header.producer_id in hidden):
            found += records
    return found
