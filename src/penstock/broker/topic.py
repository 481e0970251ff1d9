"""A topic: its catalog entry, its settings, and its partitions, of which some may be damaged.

This module may run compiled (setup.py), with the C types that stand in topic.pxd.
"""

from __future__ import annotations

import re

from penstock.broker.errors import InvalidTopicNameError, UnknownTopicError
from penstock.broker.topic_config import TopicConfig
from penstock.errors import DamagedLogError
from penstock.limits import TOPIC_NAME_CHARS_MAX
from penstock.log.catalog import TopicEntry
from penstock.log.partition import Partition

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Kafka's rule, applied before a name becomes part of a path."""
    if not _NAME.fullmatch(name) or name in (".", "..") or len(name) > TOPIC_NAME_CHARS_MAX:
        raise InvalidTopicNameError(
            f"name a topic {name[:60]!r}",
            f"{name[:60]!r} cannot be one: a name has 1 to {TOPIC_NAME_CHARS_MAX} characters of "
            "a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'",
        )


def metric_name(name: str) -> str:
    """What a name is in monitoring, where '.' becomes '_'; Kafka lets no two topics share it."""
    return name.replace(".", "_")


class Topic:
    """What clients address by name or id."""

    def __init__(
        self, entry: TopicEntry, config: TopicConfig, partitions: list[Partition | DamagedLogError]
    ) -> None:
        self.entry = entry
        self.config = config
        self.partitions = partitions

    @property
    def config(self) -> TopicConfig:
        """The settings in force."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self.largest_batch = min(config.max_message_bytes, config.log.segment_bytes)
        """Bytes above which no batch is taken."""
        self.takes_batches_as_they_are = config.codec is None and not config.append_time
        """Whether batches are stored as they come, neither packed anew nor stamped."""
        self.needs_keys = config.log.compact
        """Whether batches are opened, to refuse records without a key."""

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.entry.name

    def partition(self, number: int) -> Partition:
        """One partition.

        Raises:
            UnknownTopicError: there is none of that number.
            DamagedLogError: it was refused at opening, damaged or unreadable.
        """
        if not 0 <= number < len(self.partitions):
            raise UnknownTopicError(
                f"use partition {number} of {self.name}", f"it has {len(self.partitions)}"
            )
        partition = self.partitions[number]
        if isinstance(partition, DamagedLogError):
            raise partition
        return partition

    def whole_partitions(self) -> list[Partition]:
        """Those that are in service."""
        return [p for p in self.partitions if isinstance(p, Partition)]
