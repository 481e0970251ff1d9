"""A group's settings: Kafka's names, defaults and rules, in one table.

They belong to a name: they can be set before the group exists and stay when it is deleted, as in Kafka.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.broker.errors import InvalidConfigError
from penstock.broker.queues.queue import Rules
from penstock.broker.topic_config import Kind, Setting, boolean, choice, integer
from penstock.limits import (
    CONSUMER_HEARTBEAT_SECONDS,
    CONSUMER_SESSION_SECONDS,
    GROUP_CONFIGS_MAX,
    SHARE_DELIVERIES,
    SHARE_DELIVERIES_MAX,
    SHARE_LOCK_SECONDS,
    SHARE_LOCKS,
    SHARE_LOCKS_MAX,
)
from penstock.log.store import LogStore

_log = logging.getLogger(__name__)
_STRING = 2
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?=[\dT])(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


def _check_reset(value: str) -> str | None:
    if value in ("earliest", "latest") or _duration_ms(value) is not None:
        return None
    return "it must be earliest, latest or by_duration:PnDTnHnMn.nS"


def _duration_ms(value: str) -> int | None:
    found = value.startswith(_BY_DURATION) and _DURATION.fullmatch(value[len(_BY_DURATION) :])
    if not found:
        return None
    return int(sum(float(found[unit] or 0) * ms for unit, ms in _UNITS_MS.items()))


def _seconds(default: float, low: int, high: int, help_: str) -> Setting:
    return Setting(str(round(default * 1000)), integer(low, high, 3), help_)


GROUP_SETTINGS: Final[dict[str, Setting]] = {
    "consumer.heartbeat.interval.ms": _seconds(
        CONSUMER_HEARTBEAT_SECONDS,
        1000,
        15_000,
        "How often a consumer group's members are heard of.",
    ),
    "consumer.session.timeout.ms": _seconds(
        CONSUMER_SESSION_SECONDS, 6000, 60_000, "After this a silent member of one is out."
    ),
    "share.auto.offset.reset": Setting(
        "latest",
        Kind(_STRING, _check_reset),
        "Where a share group begins: earliest, latest, by_duration:P1DT2H3M4S.",
    ),
    "share.delivery.count.limit": Setting(
        str(SHARE_DELIVERIES),
        integer(2, SHARE_DELIVERIES_MAX, 3),
        "How often a record is delivered before it is given up.",
    ),
    "share.heartbeat.interval.ms": _seconds(
        CONSUMER_HEARTBEAT_SECONDS, 1000, 15_000, "How often a share group's members are heard of."
    ),
    "share.isolation.level": Setting(
        "read_uncommitted",
        choice("read_committed", "read_uncommitted"),
        "Whether records of open and aborted transactions are delivered.",
    ),
    "share.partition.max.record.locks": Setting(
        str(SHARE_LOCKS),
        integer(100, SHARE_LOCKS_MAX, 3),
        "Records of a partition that may be on their way at the same time.",
    ),
    "share.record.lock.duration.ms": _seconds(
        SHARE_LOCK_SECONDS, 1000, 3_600_000, "How long a member may keep a record."
    ),
    "share.renew.acknowledge.enable": Setting(
        "true", boolean(), "Whether a member may ask for more time."
    ),
    "share.session.timeout.ms": _seconds(
        CONSUMER_SESSION_SECONDS, 6000, 60_000, "After this a silent member of one is out."
    ),
}


class Begin(Enum):
    """Where a share group begins that has never read a partition."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A group's settings, read once."""

    overrides: dict[str, str]
    consumer_heartbeat_seconds: float | None
    """None: as the broker sees fit."""
    consumer_session_seconds: float
    share_heartbeat_seconds: float
    share_session_seconds: float
    begin: Begin
    begin_before_ms: int
    """For BY_DURATION: how far back."""
    committed_only: bool
    may_renew: bool
    rules: Rules

    def value(self, name: str) -> str:
        """What is in force."""
        return self.overrides.get(name, GROUP_SETTINGS[name].default)


def parse(overrides: Mapping[str, str]) -> GroupConfig:
    """Check settings and read them.

    Raises:
        InvalidConfigError: an unknown name, or a value its setting cannot have.
    """
    plain: dict[str, str] = {}
    for name, override in overrides.items():
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            raise InvalidConfigError(f"set {name[:60]}", f"there is no group setting {name[:60]}")
        plain[name] = setting.kind.plain(override)
        wrong = setting.kind.check(plain[name])
        if wrong is not None:
            raise InvalidConfigError(f"set {name}", f"{name}={override}: {wrong}")

    def value(name: str) -> str:
        return plain.get(name, GROUP_SETTINGS[name].default)

    def seconds(name: str) -> float:
        return int(value(name)) / 1000

    config = GroupConfig(
        overrides=plain,
        consumer_heartbeat_seconds=(
            seconds("consumer.heartbeat.interval.ms")
            if "consumer.heartbeat.interval.ms" in overrides
            else None
        ),
        consumer_session_seconds=seconds("consumer.session.timeout.ms"),
        share_heartbeat_seconds=seconds("share.heartbeat.interval.ms"),
        share_session_seconds=seconds("share.session.timeout.ms"),
        begin=Begin(value("share.auto.offset.reset").split(":")[0]),
        begin_before_ms=_duration_ms(value("share.auto.offset.reset")) or 0,
        committed_only=value("share.isolation.level") == "read_committed",
        may_renew=value("share.renew.acknowledge.enable") == "true",
        rules=Rules(
            hold_seconds=seconds("share.record.lock.duration.ms"),
            deliveries_max=int(value("share.delivery.count.limit")),
            unfinished_max=int(value("share.partition.max.record.locks")),
        ),
    )
    for kind in ("consumer", "share"):
        if seconds(f"{kind}.heartbeat.interval.ms") >= seconds(f"{kind}.session.timeout.ms"):
            raise InvalidConfigError(
                f"set {kind}.heartbeat.interval.ms",
                f"it must be below {kind}.session.timeout.ms, "
                f"which is {value(f'{kind}.session.timeout.ms')}",
            )
    return config


_DEFAULTS: Final = parse({})


class GroupConfigs:
    """The settings of all groups that have some of their own; durable after the next round."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._configs = {
            name: _loaded(name, config) for name, config in store.catalog.group_configs.items()
        }

    def names(self) -> list[str]:
        """The groups that have settings of their own."""
        return sorted(self._configs)

    def of(self, group: str) -> GroupConfig:
        """What is in force for a group."""
        return self._configs.get(group, _DEFAULTS)

    def check(self, group: str, overrides: Mapping[str, str]) -> GroupConfig:
        """Read new settings for a group, or raise InvalidConfigError."""
        if not group:
            raise InvalidConfigError("configure a group", "its name is empty")
        if group not in self._configs and len(self._configs) >= GROUP_CONFIGS_MAX:
            raise InvalidConfigError(
                f"configure group {group[:60]}",
                f"{GROUP_CONFIGS_MAX} groups have settings already",
                "remove some",
            )
        return parse(overrides)

    def configure(self, group: str, overrides: Mapping[str, str]) -> None:
        """Replace a group's settings."""
        config = self.check(group, overrides)
        self._store.put_group_config(group, config.overrides)
        if overrides:
            self._configs[group] = config
        else:
            self._configs.pop(group, None)


def _loaded(group: str, config: Mapping[str, str]) -> GroupConfig:
    """Settings from the catalog; those this version cannot have are reported and not in force."""
    try:
        return parse(config)
    except InvalidConfigError as error:
        _log.error("group %s has the default settings: %s", group, error)
        return _DEFAULTS
