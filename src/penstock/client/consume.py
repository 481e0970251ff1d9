"""Reading a topic partition by partition, without a consumer group.

Where to start is resolved to offsets before the first read. Offsets that were deleted before they
could be read are never skipped silently: each such gap is noticed and kept. Only records of
committed transactions are returned.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Final, Protocol

from penstock.client.connection import connect, library, translated
from penstock.client.topics import out_of_service, topic_partitions
from penstock.errors import DamagedLogError, NotFoundError, PenstockError, UnavailableError

POLL_MS: Final = 500
RECORDS_PER_POLL_MAX: Final = 2_000
# A topic that stays silent for this long is looked at: is it, and the cluster, still there?
SILENCE_SECONDS: Final = 5.0
# Reading up to a known end, this much silence means that the rest does not come.
STALL_SECONDS_MAX: Final = 30.0
# How soon a follower learns of new partitions.
METADATA_AGE_MS: Final = 10_000
# The client library has only a text for us that says which batch it is.
_DAMAGED_BATCH: Final = re.compile(r"partition=(\d+)\) at offset (\d+) failed crc check")


class Origin(Enum):
    """What the value of a Start counts."""

    START = "start"
    END = "end"
    OFFSET = "offset"
    TAIL = "tail"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading starts, in every partition."""

    origin: Origin
    value: int = 0
    """OFFSET: the offset. TAIL: records before the end. TIME: milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that were asked for and are no longer there."""

    topic: str
    partition: int
    first: int
    last: int

    def __str__(self) -> str:
        count = self.last - self.first + 1
        offsets = f"offset {self.first}" if count == 1 else f"offsets {self.first} to {self.last}"
        records = "1 record" if count == 1 else f"{count:,} records"
        return (
            f"{offsets} of {self.topic} partition {self.partition} {'is' if count == 1 else 'are'} "
            f"gone: {records} deleted by retention or on request; "
            f"reading goes on at offset {self.last + 1}"
        )


class IncomingRecord(Protocol):
    """A record as kafka-python returns it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class TopicReader:
    """Reads partitions of one topic; use it in a `with` block and iterate over `batches`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        start: Start,
        partitions: Iterable[int] = (),
        follow: bool = False,
        notice: Callable[[str], None],
    ) -> None:
        """Connect and find the offsets to start at, and to end at unless following.

        Args:
            bootstrap: Addresses of the cluster.
            topic: An existing topic.
            start: Where to start in every partition.
            partitions: Which to read; all of them, and new ones when following, if empty.
            follow: Go on with what is written later.
            notice: Told, in a sentence, what the reader of the records has to know.

        Raises:
            NotFoundError: there is no such topic or partition.
            PenstockError: the cluster could not be asked.
        """
        self.gaps: list[Gap] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._operation = f"cannot consume {topic}"
        self._follow = follow
        self._all = not partitions
        self._notice = notice
        self._away = False
        chosen = self._choose(sorted(set(partitions)))
        self._kafka = library()
        self._consumer = connect(
            "KafkaConsumer",
            bootstrap,
            self._operation,
            group_id=None,
            enable_auto_commit=False,
            # Not 'earliest' or 'latest': falling off the end must be an error, see _fell_off.
            auto_offset_reset="none",
            isolation_level="read_committed",
            max_poll_records=RECORDS_PER_POLL_MAX,
            metadata_max_age_ms=METADATA_AGE_MS,
        )
        with self._served():
            keys = [self._kafka.TopicPartition(topic, index) for index in chosen]
            self._consumer.assign(keys)
            self._ends: dict[Any, int] = self._consumer.end_offsets(keys)
            self._seek(keys, start)
            # Unless following: the partitions that have not been read to their end.
            self._unread = {key for key in keys if self._consumer.position(key) < self._ends[key]}

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with translated(self._operation):
            self._consumer.close(autocommit=False)

    def batches(self) -> Iterator[Sequence[IncomingRecord]]:
        """Records as they come, in order within each partition.

        Ends at the offsets that were the ends when reading started; never, when following.

        Raises:
            NotFoundError: the topic was deleted.
            DamagedLogError: a batch is not what was written.
            PenstockError: the cluster stopped answering (not when following), or lost records.
        """
        heard = looked = time.monotonic()
        while self._follow or self._unread:
            found = self._poll()
            now = time.monotonic()
            if found:
                heard = looked = now
                self._back()
            elif now - looked > SILENCE_SECONDS:
                self._look()
                looked = now
            if not self._follow and now - heard > STALL_SECONDS_MAX:
                raise self._stalled()
            for key, records in found.items():
                wanted = records if self._follow else self._up_to_end(key, records)
                if wanted:
                    yield wanted

    @contextlib.contextmanager
    def _served(self) -> Iterator[None]:
        """As `translated`, for questions to the brokers that lead partitions: is there none?"""
        try:
            with translated(self._operation):
                yield
        except UnavailableError as error:
            problem = out_of_service(self._bootstrap, self._topic, self._operation)
            if problem is None:
                raise
            raise problem from error

    def _choose(self, partitions: list[int]) -> list[int]:
        existing = topic_partitions(self._bootstrap, self._topic, self._operation)
        for index in partitions:
            if index not in existing:
                cause = f"it has no partition {index}"
                remedy = f"use one from 0 to {len(existing) - 1}"
                raise NotFoundError(self._operation, cause, remedy)
        return partitions or existing

    def _seek(self, keys: Sequence[Any], start: Start) -> None:
        """Give every partition the offset that start means for it."""
        consumer = self._consumer
        begins: dict[Any, int] = consumer.beginning_offsets(keys)
        times: dict[Any, Any] = {}
        if start.origin is Origin.TIME:
            times = consumer.offsets_for_times(dict.fromkeys(keys, start.value))
        for key in keys:
            begin, end = begins[key], self._ends[key]
            match start.origin:
                case Origin.START:
                    offset = begin
                case Origin.END:
                    offset = end
                case Origin.TAIL:
                    offset = max(begin, end - start.value)
                case Origin.TIME:
                    # None where every record is older.
                    offset = times[key].offset if times.get(key) else end
                case Origin.OFFSET:
                    offset = self._within(key, start.value, begin, end)
            consumer.seek(key, offset)

    def _within(self, key: Any, wanted: int, begin: int, end: int) -> int:
        if wanted < begin:
            self._lost(Gap(self._topic, key.partition, wanted, begin - 1))
            return begin
        if wanted > end:
            partition = f"{self._topic} partition {key.partition}"
            self._notice(f"{partition} has no offset {wanted} yet: it ends at {end}")
            return end
        return wanted

    def _poll(self) -> dict[Any, list[IncomingRecord]]:
        errors = library("kafka.errors")
        found: dict[Any, list[IncomingRecord]] = {}
        with translated(self._operation):
            try:
                found = self._consumer.poll(timeout_ms=POLL_MS)
            except errors.OffsetOutOfRangeError as error:
                for key, offset in error.args[0].items():
                    self._fell_off(key, offset)
            except errors.LogTruncationError as error:
                for key in error.divergent_offsets:
                    raise self._shrunk(key, self._consumer.position(key)) from error
            except errors.CorruptRecordError as error:
                raise self._damaged(str(error)) from error
            except errors.UnknownTopicOrPartitionError as error:
                # Its error is only the name. Metadata is not asked: Kafka's may still know the topic.
                cause = f"there is no topic {self._topic} any more"
                remedy = "if it was created anew, start again"
                raise NotFoundError(self._operation, cause, remedy) from error
            if self._follow:
                self._adopt_new_partitions()
            else:
                self._drop_finished()
        return found

    def _fell_off(self, key: Any, offset: int) -> None:
        """Go on behind the gap that retention left, or say that the log has become shorter."""
        begin = self._consumer.beginning_offsets([key])[key]
        if offset >= begin:
            raise self._shrunk(key, offset)
        self._lost(Gap(self._topic, key.partition, offset, begin - 1))
        self._consumer.seek(key, begin)

    def _shrunk(self, key: Any, offset: int) -> PenstockError:
        """The error for a partition that ends before where we are, unless the topic is gone."""
        topic_partitions(self._bootstrap, self._topic, self._operation)
        end = self._consumer.end_offsets([key])[key]
        cause = f"partition {key.partition} ends at {end}, but {offset} was already reached"
        remedy = "the topic was created anew or lost records; start again with --from start"
        return PenstockError(self._operation, cause, remedy)

    def _stalled(self) -> PenstockError:
        # A broker that cannot read its files is asked again and again by the client library, which
        # says nothing of it: all we know is where that is.
        key = min(self._unread)
        place = f"partition {key.partition} from offset {self._consumer.position(key)} on"
        cause = f"nothing of {place} came within {STALL_SECONDS_MAX:g} s"
        remedy = "try again, or check the broker's files with `penstock log verify DIR`"
        return UnavailableError(self._operation, cause, remedy)

    def _damaged(self, said: str) -> PenstockError:
        cause, read_on = said, "read on with a later --from"
        if found := _DAMAGED_BATCH.search(said):
            cause = (
                f"partition {found[1]} is damaged at offset {found[2]}: "
                "the checksum of the batch does not match its bytes"
            )
            read_on = f"read on behind it with --partition {found[1]} and a later --from"
        remedy = f"check the broker's files with `penstock log verify DIR`, or {read_on}"
        return DamagedLogError(self._operation, cause, remedy)

    def _lost(self, gap: Gap) -> None:
        self.gaps.append(gap)
        self._notice(str(gap))

    def _drop_finished(self) -> None:
        # The position and not the last record tells: the end may be a transaction's marker or
        # records that compaction removed.
        finished = {key for key in self._unread if self._consumer.position(key) >= self._ends[key]}
        if finished:
            self._consumer.pause(*finished)
            self._unread -= finished

    def _up_to_end(self, key: Any, records: Sequence[IncomingRecord]) -> Sequence[IncomingRecord]:
        end = self._ends[key]
        if records[-1].offset < end:
            return records
        return [record for record in records if record.offset < end]

    def _adopt_new_partitions(self) -> None:
        if not self._all:
            return
        assigned = self._consumer.assignment()
        known = self._consumer.partitions_for_topic(self._topic)
        keys = {self._kafka.TopicPartition(self._topic, index) for index in known}
        if new := sorted(keys - assigned):
            self._consumer.assign([*assigned, *new])
            for key in new:
                # All of it is new: whoever follows wants it from the start.
                self._consumer.seek(key, 0)
                self._notice(f"{self._topic} has a new partition {key.partition}")

    def _look(self) -> None:
        """After a silence: raise if the topic is gone, or the cluster (waited for if following)."""
        try:
            topic_partitions(self._bootstrap, self._topic, self._operation)
        except UnavailableError as error:
            if not self._follow:
                raise
            if not self._away:
                self._away = True
                self._notice(f"{error.operation}: {error.cause}; waiting for it")
        else:
            self._back()

    def _back(self) -> None:
        if self._away:
            self._away = False
            self._notice(f"{self._bootstrap} answers again")
