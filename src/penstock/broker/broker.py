"""The broker: owns the topics, decides what may be appended, and keeps the retention.

Synchronous and single-threaded: the loop that calls it owns everything here. What must be durable
before it is answered goes through `commit.after`.

This module may run compiled (setup.py), with the C types that stand in broker.pxd.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

from penstock.broker import topic_config
from penstock.broker.appending import Appender
from penstock.broker.dialect import Dialect, NoDialect
from penstock.broker.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicNameError,
    PolicyError,
    TopicExistsError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from penstock.broker.groups import Groups
from penstock.broker.producers import ProducerTable
from penstock.broker.quotas import Quotas
from penstock.broker.timers import CallLater, NoTimers
from penstock.broker.topic import Topic, check_name, metric_name
from penstock.broker.topic_config import TopicConfig
from penstock.broker.transactions import Transactions
from penstock.clock import Clock
from penstock.errors import DamagedLogError, OfflineError
from penstock.limits import PARTITIONS_PER_TOPIC_MAX
from penstock.log.catalog import TopicEntry
from penstock.log.commit import GroupCommit
from penstock.log.partition import Partition
from penstock.log.positions import PartitionId
from penstock.log.reading import OffsetOutOfRangeError
from penstock.log.settings import Durability
from penstock.log.store import LogStore

DEFAULT_PARTITIONS = 1
_PRODUCER_ID_BLOCK = 1000
_log = logging.getLogger(__name__)


class Broker:
    """See the module."""

    def __init__(
        self,
        store: LogStore,
        clock: Clock,
        *,
        call_later: CallLater | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._metric_names: dict[str, str] = {}
        self._deleting: set[str] = set()
        self._damaged: set[PartitionId] = set()
        self._next_producer_id = store.catalog.next_producer_id
        self._producer_ids_end = self._next_producer_id
        self.appender = Appender(store.commit, store.space, clock)
        """What stores batches."""
        self.commit: GroupCommit = store.commit
        """What makes things durable."""
        self.quotas = Quotas(store, clock)
        """What clients may write and read in a second."""
        timers = call_later or NoTimers()
        self._groups = Groups(store, clock, timers, dialect or NoDialect())
        self._transactions = Transactions(
            store,
            clock,
            timers,
            groups=self._groups,
            appender=self.appender,
            find=self._partition_of,
            damaged=self._damaged,
            new_producer_id=self.new_producer_id,
        )
        self.appender.enlist = self._transactions.enlist
        store.memory.make_room = self._make_room_in_memory

    @property
    def cluster_id(self) -> str:
        """The id clients know this broker's data by."""
        return self._store.cluster_id

    @property
    def folder(self) -> Path:
        """Where the data is."""
        return self._store.folder

    @property
    def epoch(self) -> int:
        """Kafka's leader epoch, of every partition: it grows with every start."""
        return self._store.epoch

    def free_bytes(self) -> int:
        """Room left on the disk that holds the data."""
        return self._store.free_bytes()

    def total_bytes(self) -> int:
        """Size of the disk that holds the data."""
        return self._store.total_bytes()

    @property
    def groups(self) -> Groups:
        """Consumer groups and what they have committed."""
        return self._groups

    @property
    def transactions(self) -> Transactions:
        """The coordinator of transactions."""
        return self._transactions

    def open(self) -> None:
        """Open every topic of the catalog. Damaged partitions are reported and left out.

        Raises:
            StorageError: the machine lacks what every partition needs.
        """
        for entry in self._store.catalog.topics.values():
            config = _known_settings(entry)
            partitions: list[Partition | DamagedLogError] = []
            for number in range(entry.partitions):
                try:
                    partitions.append(
                        self._store.open_partition(entry, number, config.log, self._new_table())
                    )
                except DamagedLogError as error:
                    _log.error("%s", error)
                    partitions.append(error)
                    self._damaged.add(PartitionId(entry.id, number))
            self._add(Topic(entry, config, partitions))
        self._skip_known_producers()
        self._groups.open(self._by_id, self._end_of)
        self.commit.on_everything_failed = self._fail_everything
        self._store.begin()
        self._transactions.open(self.partitions())

    def _new_table(self) -> ProducerTable:
        return ProducerTable(self._clock)

    def _skip_known_producers(self) -> None:
        """Never give an id out twice, even if the catalog that counts them was damaged."""
        known = max((self.appender.producers(p).newest_id for p in self.partitions()), default=-1)
        if known >= self._next_producer_id:
            self._next_producer_id = self._producer_ids_end = known + _PRODUCER_ID_BLOCK

    def _fail_everything(self, error: OSError) -> None:
        for partition in self.partitions():
            partition.fail(f"sync failed: {error}")

    def close(self) -> None:
        """Leave the folder in order. No commit round may be running."""
        self._store.close(self.partitions())

    # -- looking

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def partitions(self) -> Iterator[Partition]:
        """Every partition that is in service."""
        for topic in self._topics.values():
            yield from topic.whole_partitions()

    def topic(self, name: str) -> Topic:
        """The topic of that name, or UnknownTopicError."""
        try:
            return self._topics[name]
        except KeyError:
            raise UnknownTopicError(f"use topic {name[:60]}", "it does not exist") from None

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """The topic of that id, or UnknownTopicIdError."""
        try:
            return self._by_id[topic_id]
        except KeyError:
            raise UnknownTopicIdError(f"use topic {topic_id}", "no topic has that id") from None

    def _partition_of(self, identity: PartitionId) -> Partition | None:
        topic = self._by_id.get(identity.topic_id)
        if topic is None or identity.partition >= len(topic.partitions):
            return None
        partition = topic.partitions[identity.partition]
        return None if isinstance(partition, DamagedLogError) else partition

    def _end_of(self, identity: PartitionId) -> int | None:
        partition = self._partition_of(identity)
        return None if partition is None else partition.end_offset

    # -- topics

    def plan_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> TopicConfig:
        """Check everything create_topic checks, and change nothing."""
        check_name(name)
        if name in self._topics:
            raise TopicExistsError(f"create topic {name}", "it already exists")
        if name in self._deleting:
            raise TopicExistsError(f"create topic {name}", "it is being deleted", "try again")
        twin = self._metric_names.get(metric_name(name))
        if twin is not None:
            raise InvalidTopicNameError(
                f"create topic {name}",
                f"it differs from topic {twin} only in '.' and '_'",
                "choose a name that monitoring can tell from it",
            )
        if not 1 <= partitions <= PARTITIONS_PER_TOPIC_MAX:
            raise InvalidPartitionsError(
                f"create topic {name} with {partitions} partitions",
                f"a topic has 1 to {PARTITIONS_PER_TOPIC_MAX} partitions",
            )
        return topic_config.parse(config)

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
        """Make a topic; durable after the next commit round."""
        parsed = self.plan_topic(name, partitions, config)
        self._store.space.check()
        entry = TopicEntry(name, uuid4(), partitions, parsed.overrides)
        made = self._store.create_partitions(entry, range(partitions), parsed.log, self._new_table)
        topic = Topic(entry, parsed, list(made))
        self._add(topic)
        _log.info("created topic %s with %d partitions", name, partitions)
        return topic

    def delete_topic(self, topic: Topic) -> None:
        """Remove a topic and its data; durable after the next commit round."""
        self._store.delete_topic(
            topic.entry, topic.whole_partitions(), partial(self._deleting.discard, topic.name)
        )
        self._deleting.add(topic.name)
        del self._topics[topic.name]
        del self._by_id[topic.entry.id]
        self._damaged -= {p for p in self._damaged if p.topic_id == topic.entry.id}
        del self._metric_names[metric_name(topic.name)]
        self._groups.topic_deleted(topic.name, topic.entry.id)
        _log.info("deleted topic %s", topic.name)

    def check_partitions(self, topic: Topic, total: int) -> None:
        """Raise InvalidPartitionsError unless a topic can grow to total partitions."""
        if total <= len(topic.partitions):
            raise InvalidPartitionsError(
                f"give {topic.name} {total} partitions",
                f"{topic.name} has {len(topic.partitions)} partition(s)",
                "partitions can only be added",
            )
        if total > PARTITIONS_PER_TOPIC_MAX:
            raise InvalidPartitionsError(
                f"give {topic.name} {total} partitions", f"the most is {PARTITIONS_PER_TOPIC_MAX}"
            )

    def add_partitions(self, topic: Topic, total: int) -> None:
        """Grow a topic; durable after the next commit round."""
        self.check_partitions(topic, total)
        self._store.space.check()
        old = len(topic.partitions)
        entry = replace(topic.entry, partitions=total, revision=topic.entry.revision + 1)
        topic.partitions += self._store.create_partitions(
            entry, range(old, total), topic.config.log, self._new_table
        )
        topic.entry = entry
        self._groups.topics.put(topic.name, entry.id, total)

    def check_config(self, topic: Topic, overrides: Mapping[str, str]) -> TopicConfig:
        """Read new settings for a topic, or raise InvalidConfigError."""
        config = topic_config.parse(overrides)
        old, new = topic.config.log.durability, config.log.durability
        if old is not new and Durability.MEMORY in (old, new):
            raise InvalidConfigError(
                f"set penstock.durability={new.value} on {topic.name}",
                f"it was created with {old.value}",
                "memory is chosen when a topic is created; make a new topic",
            )
        return config

    def configure(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Replace a topic's settings; durable after the next commit round."""
        config = self.check_config(topic, overrides)
        entry = replace(topic.entry, config=config.overrides, revision=topic.entry.revision + 1)
        self._store.put(entry)
        topic.entry = entry
        topic.config = config
        for partition in topic.whole_partitions():
            partition.settings = config.log

    def _add(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._by_id[topic.entry.id] = topic
        self._metric_names[metric_name(topic.name)] = topic.name
        self._groups.topics.put(topic.name, topic.entry.id, len(topic.partitions))

    # -- producers

    def new_producer_id(self) -> int:
        """An id nobody had before; durable, as any append that uses it, after the next round."""
        if self._next_producer_id == self._producer_ids_end:
            end = self._producer_ids_end + _PRODUCER_ID_BLOCK
            self._store.catalog.reserve_producer_ids(end)
            self._producer_ids_end = end
            self._store.commit.metadata_changed(self._store.catalog.sync)
        self._next_producer_id += 1
        return self._next_producer_id - 1

    # -- retention

    def delete_records(self, partition: Partition, before: int) -> int:
        """Make records below an offset unreadable; returns the new start offset."""
        if partition.offline is not None:
            raise OfflineError(
                f"delete records of {partition}", partition.offline, "restart the server"
            )
        if not partition.settings.delete_old_segments:
            raise PolicyError(
                f"delete records of {partition}",
                "its cleanup.policy is compact",
                "write a tombstone for each key, or add delete to the policy",
            )
        offset = partition.durable_offset if before == -1 else before
        if not 0 <= offset <= partition.durable_offset:
            raise OffsetOutOfRangeError(
                f"delete records of {partition} below {before}",
                f"its durable end is {partition.durable_offset}",
            )
        if offset > partition.start_offset:
            partition.advance_start(offset)
            self._store.commit.start_moved(partition)
        return partition.start_offset

    def keeps_start(self, partition: Partition) -> bool:
        """Whether the start of a partition is there after a crash, once a round for it has ended.

        Not if its sync failed, as the start was not recorded then; nor if that could not be written.
        """
        return partition.offline is None and not self._store.positions.owes(partition.identity)

    def keep_retention(self) -> None:
        """Drop what is no longer kept, and record what is. Called now and then."""
        self._groups.expire()
        self._transactions.expire()
        self._store.commit.record_ends()
        self._store.space.watch()
        now = self._clock.wall_ms()
        for partition in list(self.partitions()):
            try:
                if self._store.space.full:
                    partition.give_back_room()
                self._drop_expired(partition, now)
            except OSError as error:
                # Others may have much to remove, and so make the room that this one lacks.
                _log.error("%s: retention failed and is tried again: %s", partition, error)
        if self._store.compactor is not None and not self._store.space.full:
            self._store.compactor.look(self.partitions)

    def _make_room_in_memory(self) -> None:
        """Memory is full in less time than lies between two looks after the retention."""
        now = self._clock.wall_ms()
        for partition in self.partitions():
            if partition.memory is not None:
                self._drop_expired(partition, now)

    def _drop_expired(self, partition: Partition, now_ms: int) -> None:
        partition.let_go_of_sealed_files()
        if partition.roll_if_expired(now_ms):
            self._store.commit.appended(partition)
        expired = partition.expired_segments(now_ms)
        if expired:
            partition.drop(expired)
            self.appender.producers(partition).forget_aborted(partition.start_offset)
            self._store.commit.start_moved(partition)
            self._store.remove_segments(partition, expired)
            _log.info("%s: removed %d old segments", partition, len(expired))


def _known_settings(entry: TopicEntry) -> TopicConfig:
    """A topic's settings; ones this version does not know are reported, and the topic still opens."""
    known: dict[str, str] = {}
    for name, value in entry.config.items():
        try:
            topic_config.accept(name, value)
        except InvalidConfigError as error:
            _log.error("topic %s: %s", entry.name, error)
        else:
            known[name] = value
    return topic_config.parse(known)
