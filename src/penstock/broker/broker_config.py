"""The broker's settings as Kafka names them: read-only, for the tools that ask.

Most are the defaults of topic settings, under the name they have on a Kafka broker.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.assignors import ASSIGNORS
from penstock.broker.broker import DEFAULT_PARTITIONS
from penstock.broker.topic_config import SETTINGS, Kind, Setting
from penstock.limits import (
    CONNECTIONS_MAX,
    CONSUMER_HEARTBEAT_SECONDS,
    CONSUMER_SESSION_SECONDS,
    FETCH_RESPONSE_BYTES_MAX,
    FRAME_BYTES_MAX,
    GROUP_MEMBERS_MAX,
    IDLE_SECONDS_MAX,
    OFFSET_METADATA_CHARS_MAX,
    OFFSETS_RETENTION_MINUTES,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
)

BROKER_NAMES: Final[dict[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""The name of a topic setting's default on a Kafka broker."""


def _fixed(code: int, value: object, help_: str) -> Setting:
    """A setting that cannot be changed, so that no value needs a check."""
    return Setting(str(value), Kind(code, lambda _: "it cannot be changed"), help_)


_BOOLEAN, _STRING, _INT, _LONG, _LIST = 1, 2, 3, 5, 7

BROKER_SETTINGS: Final[dict[str, Setting]] = dict(
    sorted(
        {
            "auto.create.topics.enable": _fixed(
                _BOOLEAN, "true", "Topics are made when a client asks for them and allows it."
            ),
            "broker.id": _fixed(_INT, 1, "This node."),
            "broker.rack": _fixed(_STRING, "", "There is one node."),
            "connections.max.idle.ms": _fixed(
                _LONG, int(IDLE_SECONDS_MAX * 1000), "Idle connections are closed after this."
            ),
            "default.replication.factor": _fixed(_INT, 1, "There is one node."),
            "delete.topic.enable": _fixed(_BOOLEAN, "true", "Topics can be deleted."),
            "fetch.max.bytes": _fixed(_INT, FETCH_RESPONSE_BYTES_MAX, "Most that one fetch gets."),
            "group.consumer.assignors": _fixed(
                _LIST, ",".join(ASSIGNORS), "What shares out the work; the first by default."
            ),
            "group.consumer.heartbeat.interval.ms": _fixed(
                _INT,
                round(CONSUMER_HEARTBEAT_SECONDS * 1000),
                "How often members are heard of, or oftener.",
            ),
            "group.consumer.max.size": _fixed(_INT, GROUP_MEMBERS_MAX, "Most members of a group."),
            "group.consumer.migration.policy": _fixed(
                _STRING, "bidirectional", "Members change a group's protocol one by one."
            ),
            "group.consumer.session.timeout.ms": _fixed(
                _INT, round(CONSUMER_SESSION_SECONDS * 1000), "After this a silent member is out."
            ),
            "group.initial.rebalance.delay.ms": _fixed(
                _INT, 0, "A group's first members start at once."
            ),
            "group.max.session.timeout.ms": _fixed(
                _INT, SESSION_TIMEOUT_MS_MAX, "Longest session of a group's member."
            ),
            "group.max.size": _fixed(_INT, GROUP_MEMBERS_MAX, "Most members of a group."),
            "group.min.session.timeout.ms": _fixed(
                _INT, SESSION_TIMEOUT_MS_MIN, "Shortest session of a group's member."
            ),
            "max.connections": _fixed(_INT, CONNECTIONS_MAX, "Connections beyond are refused."),
            "node.id": _fixed(_INT, 1, "This node."),
            "num.partitions": _fixed(
                _INT, DEFAULT_PARTITIONS, "Partitions of a topic that does not say."
            ),
            "offset.metadata.max.bytes": _fixed(
                _INT, OFFSET_METADATA_CHARS_MAX, "Most words with a committed offset."
            ),
            "offsets.retention.minutes": _fixed(
                _INT, OFFSETS_RETENTION_MINUTES, "Kept for a group without members."
            ),
            "socket.request.max.bytes": _fixed(_INT, FRAME_BYTES_MAX, "Largest request."),
            **{broker: SETTINGS[topic] for topic, broker in BROKER_NAMES.items()},
        }.items()
    )
)
