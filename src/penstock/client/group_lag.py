"""How far a group is behind, partition by partition: in records, bytes and time.

What cannot be known is None and never a guess. Bytes are the hard one: a broker tells the size of a
partition, not of a part of it, so that the whole is the bound of what is left to read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.client.connection import admin, connect, library, translated
from penstock.client.groups import Group, Member, Place, read_group, topic_partition
from penstock.client.topics import partition_offsets

# Reading the next record of every partition may take this long; what has not come is not known.
_READ_SECONDS_MAX: Final = 10.0
_POLL_MS: Final = 200
# Of the next batch only the first record is wanted; a larger batch comes all the same.
_FETCH_BYTES: Final = 16_384
_NEVER: Final = -1


@dataclass(frozen=True, slots=True)
class Retention:
    """For how long a topic keeps its records."""

    ms: int | None
    """None if age is no reason to delete."""
    by_size: bool
    """Whether size is a reason too, whatever the age."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a group stands in a partition."""

    topic: str
    partition: int
    committed: int | None
    """None if nothing was committed."""
    start: int | None
    """First offset that is retained; None if the partition is gone or out of service."""
    end: int | None
    """Offset that the next record gets; None likewise."""
    size: int | None
    """Bytes of the whole partition; None if the broker did not tell."""
    next_time: int | None
    """Timestamp of the next record to read; None if there is none, or it could not be read."""
    retention: Retention
    owner: Member | None
    counted: int | None = None
    """The lag as the broker counts it, of a share group, which finishes records in any order."""

    @property
    def lag(self) -> int | None:
        """Records that can be read and have not been; None without a committed offset."""
        if self.committed is None or self.start is None or self.end is None:
            return None
        if self.counted is not None:
            return self.counted
        return max(0, self.end - max(self.committed, self.start))

    @property
    def lost(self) -> int:
        """Records that were deleted before the group has read them."""
        if self.committed is None or self.start is None:
            return 0
        return max(0, self.start - self.committed)

    @property
    def beyond(self) -> int:
        """How far the group stands behind the end, as in a topic that was created anew."""
        if self.committed is None or self.end is None:
            return 0
        return max(0, self.committed - self.end)

    @property
    def lag_bytes(self) -> int | None:
        """The lag in bytes where it is certain: nothing, or a whole partition."""
        if self.lag == 0:
            return 0
        # A partition that starts later may still hold bytes of what was deleted from it.
        return self.size if self.lag is not None and self.committed == self.start == 0 else None

    @property
    def lag_bytes_max(self) -> int | None:
        """What the lag in bytes is at most."""
        return 0 if self.lag == 0 else self.size if self.lag is not None else None

    def lag_ms(self, now: int) -> int | None:
        """How long the next record to read has been waiting."""
        if self.lag == 0:
            return 0
        return None if self.next_time is None else max(0, now - self.next_time)

    def left_ms(self, now: int) -> int | None:
        """Time until age deletes the next record to read; None if that cannot be known, or never.

        At the earliest: records go by the segment, when the youngest of them is old enough.
        """
        if not self.lag or self.next_time is None or self.retention.ms is None:
            return None
        return max(0, self.next_time + self.retention.ms - now)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and where it stands."""

    group: Group
    standings: list[Standing]
    """By topic and partition: all partitions of the topics that the group has to do with."""


def describe_group(bootstrap: str, name: str) -> GroupDescription:
    """One group with its members and its lag.

    Raises:
        NotFoundError: there is no such group.
        PenstockError: the cluster could not be asked.
    """
    operation = f"cannot describe group {name}"
    with admin(bootstrap, operation) as client:
        group = read_group(client, name, operation)
        named = set(group.committed).union(*(member.partitions for member in group.members))
        existing = existing_places(client, {topic for topic, _ in named})
        # A topic may be gone, and what was committed for it still there.
        places = sorted(named | existing)
        starts, ends = partition_range(client, existing)
        sizes = _sizes(client, existing)
        retentions = _retentions(client, {topic for topic, _ in starts})
    unread = {
        place: max(group.committed[place].offset, starts[place])
        for place in places
        if place in starts and place in group.committed and place in ends
        if max(group.committed[place].offset, starts[place]) < ends[place]
    }
    times = _next_times(bootstrap, operation, unread)
    unlimited = Retention(None, by_size=False)
    standings = [
        Standing(
            topic=place[0],
            partition=place[1],
            committed=group.committed[place].offset if place in group.committed else None,
            start=starts.get(place),
            end=ends.get(place),
            size=sizes.get(place),
            next_time=times.get(place),
            retention=retentions.get(place[0], unlimited),
            owner=group.owner(place),
            counted=group.lags.get(place),
        )
        for place in places
    ]
    return GroupDescription(group, standings)


def partition_range(
    client: Any, places: Iterable[Place]
) -> tuple[dict[Place, int], dict[Place, int]]:
    """The first retained and the next offset of the partitions that are in service."""
    keys = [topic_partition(place) for place in places]
    spec = library().OffsetSpec
    earliest, latest = (
        {(key.topic, key.partition): offset for key, offset in found.items()}
        for found in (
            partition_offsets(client, keys, spec.EARLIEST),
            partition_offsets(client, keys, spec.LATEST),
        )
    )
    return earliest, latest


def existing_places(client: Any, topics: Iterable[str]) -> set[Place]:
    """All partitions of those of the topics that exist."""
    names = sorted(topics)
    return {
        (str(topic["name"]), int(one["partition_index"]))
        for topic in (client.describe_topics(names) if names else ())
        if not topic["error_code"]
        for one in topic["partitions"]
    }


def _sizes(client: Any, places: Iterable[Place]) -> dict[Place, int]:
    """Bytes of the partitions, of the largest replica; a broker may refuse to tell."""
    sizes: dict[Place, int] = {}
    wanted = set(places)
    refused = library("kafka.errors").KafkaError
    with contextlib.suppress(refused):
        for node in client.describe_log_dirs():
            for folder in node["log_dirs"]:
                for topic in folder["topics"]:
                    for one in topic["partitions"]:
                        place = (str(topic["name"]), int(one["partition_index"]))
                        if place in wanted and not one["is_future_key"]:
                            sizes[place] = max(sizes.get(place, 0), int(one["partition_size"]))
    return sizes


def _retentions(client: Any, topics: Iterable[str]) -> dict[str, Retention]:
    resource = library("kafka.admin").ConfigResource
    wanted = [resource("topic", name) for name in sorted(topics)]
    if not wanted:
        return {}
    answer = client.describe_configs(wanted, config_filter="all")["topic"]
    return {name: _retention(entries) for name, entries in answer.items()}


def _retention(entries: Mapping[str, Any]) -> Retention:
    def value(name: str, default: str) -> str:
        return str(entries[name]["value"]) if name in entries else default

    if "delete" not in value("cleanup.policy", "delete"):
        return Retention(None, by_size=False)
    ms = int(value("retention.ms", str(_NEVER)))
    by_size = int(value("retention.bytes", str(_NEVER))) != _NEVER
    return Retention(None if ms == _NEVER else ms, by_size)


def _next_times(bootstrap: str, operation: str, unread: Mapping[Place, int]) -> dict[Place, int]:
    """Timestamps of the records at the offsets, as far as they could be read in time."""
    if not unread:
        return {}
    times: dict[Place, int] = {}
    consumer = connect(
        "KafkaConsumer",
        bootstrap,
        operation,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=_FETCH_BYTES,
        max_poll_records=1,
    )
    with translated(operation), contextlib.closing(consumer):
        waiting = {topic_partition(place): offset for place, offset in unread.items()}
        consumer.assign(list(waiting))
        for key, offset in waiting.items():
            consumer.seek(key, offset)
        until = time.monotonic() + _READ_SECONDS_MAX
        while waiting and time.monotonic() < until:
            for key, records in consumer.poll(timeout_ms=_POLL_MS).items():
                times[key.topic, key.partition] = int(records[0].timestamp)
                consumer.pause(key)
                waiting.pop(key, None)
    # -1 for records of clients that gave none.
    return {place: moment for place, moment in times.items() if moment >= 0}
