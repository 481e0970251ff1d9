"""The topic `_schemas`: all that the registry knows is read from it, all it decides is written to it.

The state is what has been read, so that nothing is ever shown that is not durable, and records that
somebody else writes to the topic (a copy of another registry, for example) count as well.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.errors import UnknownTopicError
from penstock.broker.topic import Topic
from penstock.clock import Clock
from penstock.errors import StorageError
from penstock.log.partition import Partition
from penstock.log.reading import NotCachedError, read
from penstock.record.batch import InvalidBatchError, parse
from penstock.record.decode import decode as decode_batch
from penstock.record.encode import NewRecord, encode
from penstock.registry.records import StoredRecord, decode
from penstock.registry.state import State

NAME: Final = "_schemas"
_COMPACTED: Final = {"cleanup.policy": "compact"}
_FOR_EVER: Final = (-1, -1)
_log = logging.getLogger(__name__)


class SchemaTopic:
    """See the module."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._partition: Partition | None = None
        self._next = 0
        self.state = State()

    def catch_up(self) -> None:
        """Read what has become durable since the last time."""
        partition = self._current()
        if partition is not self._partition:
            # Made, or deleted and made again.
            self._partition, self.state, self._next = partition, State(), 0
        if partition is None:
            return
        self._next = max(self._next, partition.start_offset)
        while self._next < partition.durable_offset:
            self._take(partition)

    def _current(self) -> Partition | None:
        try:
            topic = self._broker.topic(NAME)
        except UnknownTopicError:
            return None
        self._keep(topic)
        return topic.partition(0)

    def _keep(self, topic: Topic) -> None:
        """Whoever made the topic, a client that copied another registry perhaps: nothing gets old."""
        log = topic.config.log
        if log.delete_old_segments and (log.retention_ms, log.retention_bytes) != _FOR_EVER:
            _log.warning("topic %s would have lost old schemas: its settings were changed", NAME)
            wanted = {"retention.ms": "-1", "retention.bytes": "-1"} | _COMPACTED
            self._broker.configure(topic, topic.entry.config | wanted)

    def _take(self, partition: Partition) -> None:
        """Read the batch at the place where reading goes on."""
        try:
            data = bytes(read(partition, self._next, 1))
        except NotCachedError as cold:
            # Once, after a start: it is a few kilobytes, and nothing can be answered before.
            cold.warm()
            return
        start, self._next = self._next, parse(data).last_offset + 1
        try:
            records = decode_batch(data)
        except InvalidBatchError as error:
            # Batches are stored unopened: a client can have written anything.
            _log.warning("offset %d of %s was passed over: %s", start, NAME, error)
            return
        for record in records:
            stored = decode(record.key, record.value)
            if stored is None:
                _log.warning("offset %d of %s is not a registry's record", record.offset, NAME)
            elif record.offset >= start:
                self.state.apply(stored)

    def append(self, records: Sequence[StoredRecord]) -> None:
        """Write records, all or none; they count when the next commit round has made them durable.

        Raises:
            PenstockError: they cannot be written.
        """
        topic = self._topic()
        now = self._clock.wall_ms()
        new = []
        for record in records:
            key, value = record.encode()
            new.append(NewRecord(value, key, now))
        self._broker.appender.append(topic, topic.partition(0), encode(new))

    def check_durable(self) -> None:
        """Raise StorageError if what was written has not become durable in its round."""
        failed = self._broker.commit.metadata_failed
        partition = self._current()
        cause = str(failed) if failed else partition.offline if partition else "it was deleted"
        if cause is not None:
            raise StorageError(f"write to {NAME}", cause, "restart the server")

    def _topic(self) -> Topic:
        try:
            return self._broker.topic(NAME)
        except UnknownTopicError:
            return self._broker.create_topic(NAME, 1, _COMPACTED)
