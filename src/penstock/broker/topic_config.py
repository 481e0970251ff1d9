"""A topic's settings: Kafka's names, defaults and rules, in one table.

Settings marked as kept are accepted and shown because tools set them, and have no effect on one node
that syncs before it acknowledges; docs/reference/topic-settings.md says so for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.broker.errors import InvalidConfigError
from penstock.limits import BATCH_BYTES_MAX, GIB
from penstock.log.settings import Durability, LogSettings

_CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_DAY_MS = 24 * 3600 * 1000


_BOOLEAN, _INT, _LONG, _DOUBLE, _LIST = 1, 3, 5, 6, 7
# Python takes more than this for a number, such as 1_000, and Kafka does not.
_WHOLE = re.compile(r"[+-]?[0-9]{1,100}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,100}\.?[0-9]{0,100}|\.[0-9]{1,100})([eE][+-]?[0-9]{1,3})?")
_BLANKS = "".join(map(chr, range(0x21)))


class Kind(NamedTuple):
    """A type of value: its number in DescribeConfigs, and what it accepts."""

    code: int
    check: Callable[[str], str | None]
    """What is wrong with a value in its plain form, or None."""

    def plain(self, text: str) -> str:
        """A value as it is kept and shown, without what does not count: Kafka shows it so, too."""
        text = text.strip(_BLANKS)
        if self.code == _BOOLEAN:
            return text.lower()
        if self.code in (_INT, _LONG) and _WHOLE.fullmatch(text):
            return str(int(text))
        if self.code == _DOUBLE and _DECIMAL.fullmatch(text):
            return str(float(text))
        if self.code == _LIST:
            return ",".join(dict.fromkeys(item.strip(_BLANKS) for item in text.split(",")))
        return text


def integer(low: int, high: int, code: int) -> Kind:
    """A whole number."""

    def check(value: str) -> str | None:
        if not _WHOLE.fullmatch(value):
            return "it is not a whole number"
        return None if low <= int(value) <= high else f"it must be from {low} to {high}"

    return Kind(code, check)


def choice(*choices: str) -> Kind:
    """One of some words."""

    def check(value: str) -> str | None:
        return None if value in choices else f"it must be {' or '.join(choices)}"

    return Kind(2, check)


def _cleanup_policy(value: str) -> str | None:
    known = value == "" or set(value.split(",")) <= {"delete", "compact"}
    return None if known else "it must be delete, compact or both"


def _ratio(value: str) -> str | None:
    if not _DECIMAL.fullmatch(value):
        return "it is not a number"
    return None if 0 <= float(value) <= 1 else "it must be from 0 to 1"


def _int32(low: int = 0, high: int = _INT32_MAX) -> Kind:
    return integer(low, high, _INT)


def _int64(low: int = 0) -> Kind:
    return integer(low, _INT64_MAX, _LONG)


def boolean() -> Kind:
    """Yes or no."""
    return Kind(_BOOLEAN, choice("true", "false").check)


class Setting(NamedTuple):
    """One row of the table."""

    default: str
    kind: Kind
    help: str


SETTINGS: Final[dict[str, Setting]] = {
    "cleanup.policy": Setting(
        "delete", Kind(_LIST, _cleanup_policy), "Old segments go, or are compacted, or both."
    ),
    "compression.gzip.level": Setting("-1", integer(-1, 9, 3), "Level where type is gzip."),
    "compression.lz4.level": Setting("9", integer(1, 17, 3), "Level where type is lz4."),
    "compression.type": Setting(
        "producer",
        choice("producer", "uncompressed", *_CODECS),
        "Stored as sent, or packed anew by the broker, which costs time.",
    ),
    "compression.zstd.level": Setting("3", integer(-131072, 22, 3), "Level where type is zstd."),
    "delete.retention.ms": Setting(str(_DAY_MS), _int64(), "How long compaction keeps tombstones."),
    "file.delete.delay.ms": Setting("60000", _int64(), "Kept; removed segments go at once."),
    "flush.messages": Setting(str(_INT64_MAX), _int64(1), "Kept; see penstock.durability."),
    "flush.ms": Setting(str(_INT64_MAX), _int64(), "Kept; see penstock.durability."),
    "index.interval.bytes": Setting("4096", _int32(), "Bytes between two index entries."),
    "max.compaction.lag.ms": Setting(
        str(_INT64_MAX), _int64(1), "Age at which records are compacted at the latest."
    ),
    "max.message.bytes": Setting(
        "1048588", _int32(high=BATCH_BYTES_MAX), "Largest batch accepted."
    ),
    "message.timestamp.after.max.ms": Setting(
        "3600000", _int64(), "How far in the future a record's time may lie."
    ),
    "message.timestamp.before.max.ms": Setting(
        str(_INT64_MAX), _int64(), "How far in the past a record's time may lie."
    ),
    "message.timestamp.type": Setting(
        "CreateTime", choice("CreateTime", "LogAppendTime"), "Whose time a record carries."
    ),
    "min.cleanable.dirty.ratio": Setting(
        "0.5", Kind(_DOUBLE, _ratio), "New part of the data above which it is compacted."
    ),
    "min.compaction.lag.ms": Setting("0", _int64(), "Age below which records are not compacted."),
    "min.insync.replicas": Setting("1", _int32(1), "Kept; there is one copy."),
    "penstock.durability": Setting(
        "fsync",
        choice(*(d.value for d in Durability)),
        "When an append counts: on disk, in the system's cache, or in memory.",
    ),
    "preallocate": Setting("false", boolean(), "Kept; segments grow as they are written."),
    "remote.storage.enable": Setting("false", choice("false"), "Not available."),
    "retention.bytes": Setting("-1", _int64(-1), "Bytes a partition keeps; -1 for no limit."),
    "retention.ms": Setting(str(7 * _DAY_MS), _int64(-1), "Time records are kept; -1 for ever."),
    "segment.bytes": Setting(str(GIB), _int32(14), "Size at which a new segment starts."),
    "segment.index.bytes": Setting("10485760", _int32(4), "Kept; indexes grow as needed."),
    "segment.jitter.ms": Setting("0", _int64(), "Kept; segments roll without jitter."),
    "segment.ms": Setting(str(7 * _DAY_MS), _int64(1), "Age at which a new segment starts."),
    "unclean.leader.election.enable": Setting("false", boolean(), "Kept; there is one leader."),
}


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's settings, read once so that an append need not parse them."""

    overrides: dict[str, str]
    log: LogSettings
    codec: int | None
    """What batches are packed with; None for what the producer chose."""
    codec_level: int | None
    max_message_bytes: int
    append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int

    def value(self, name: str) -> str:
        """What is in force."""
        return self.overrides.get(name, SETTINGS[name].default)


def parse(overrides: Mapping[str, str]) -> TopicConfig:
    """Check settings and read them.

    Raises:
        InvalidConfigError: an unknown name, or a value its setting cannot have.
    """
    plain = {name: accept(name, override) for name, override in overrides.items()}

    def value(name: str) -> str:
        return plain.get(name, SETTINGS[name].default)

    if "compact" in value("cleanup.policy") and value("penstock.durability") == "memory":
        raise InvalidConfigError(
            "set cleanup.policy",
            "a topic that is kept in memory is not compacted",
            "use penstock.durability=os, or cleanup.policy=delete",
        )
    return TopicConfig(
        overrides=plain,
        log=LogSettings(
            segment_bytes=int(value("segment.bytes")),
            segment_ms=int(value("segment.ms")),
            retention_ms=int(value("retention.ms")),
            retention_bytes=int(value("retention.bytes")),
            index_interval_bytes=int(value("index.interval.bytes")),
            durability=Durability(value("penstock.durability")),
            delete_old_segments="delete" in value("cleanup.policy"),
            compact="compact" in value("cleanup.policy"),
            min_dirty_ratio=float(value("min.cleanable.dirty.ratio")),
            min_compaction_lag_ms=int(value("min.compaction.lag.ms")),
            max_compaction_lag_ms=int(value("max.compaction.lag.ms")),
            delete_retention_ms=int(value("delete.retention.ms")),
        ),
        codec=({"uncompressed": 0} | _CODECS).get(value("compression.type")),
        codec_level=_level(value),
        max_message_bytes=int(value("max.message.bytes")),
        append_time=value("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=int(value("message.timestamp.before.max.ms")),
        timestamp_after_max_ms=int(value("message.timestamp.after.max.ms")),
    )


def _level(value: Callable[[str], str]) -> int | None:
    """The level of the topic's own codec; None where it has none, or the codec's default."""
    name = f"compression.{value('compression.type')}.level"
    level = int(value(name)) if name in SETTINGS else -1
    return None if level == -1 else level


def accept(name: str, value: str) -> str:
    """The plain form of a value; InvalidConfigError unless the setting exists and can have it."""
    setting = SETTINGS.get(name)
    if setting is None:
        raise InvalidConfigError(
            f"set {name}",
            f"there is no topic setting {name}",
            "see `penstock topics describe`",
        )
    plain = setting.kind.plain(value)
    wrong = setting.kind.check(plain)
    if wrong is not None:
        raise InvalidConfigError(f"set {name}", f"{name}={value}: {wrong}")
    return plain
