"""Which texts a setting takes, and as what it keeps them: what Kafka 4.3 takes and shows."""

from __future__ import annotations

import pytest

from penstock.broker import group_config, topic_config
from penstock.broker.errors import InvalidConfigError
from penstock.broker.topic_config import SETTINGS


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("retention.ms", " 1000\t", "1000"),
        ("retention.ms", "+1000", "1000"),
        ("retention.ms", "007", "7"),
        ("segment.bytes", "\n4096 ", "4096"),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("cleanup.policy", " compact ,\tdelete ", "compact,delete"),
        ("cleanup.policy", "compact,compact", "compact"),
        ("cleanup.policy", "", ""),
        ("compression.type", " gzip ", "gzip"),
        ("preallocate", " TRUE", "true"),
        ("min.cleanable.dirty.ratio", " .5 ", "0.5"),
        ("min.cleanable.dirty.ratio", "5e-1", "0.5"),
        ("message.timestamp.type", " LogAppendTime", "LogAppendTime"),
    ],
)
def test_taken(name: str, given: str, kept: str) -> None:
    config = topic_config.parse({name: given})
    assert config.overrides == {name: kept}
    assert config.value(name) == kept


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("retention.ms", "1_000"),
        ("retention.ms", "1 000"),
        ("retention.ms", "\u0663"),  # a digit, but not one of ours
        ("retention.ms", "1.0"),
        ("retention.ms", ""),
        ("retention.ms", "9" * 5000),
        ("retention.ms", "\u00a01000"),  # a space that Java does not trim
        ("cleanup.policy", "compact,,delete"),
        ("cleanup.policy", "delete,"),
        ("cleanup.policy", "compact delete"),
        ("compression.type", "GZIP"),
        ("message.timestamp.type", "logappendtime"),
        ("min.cleanable.dirty.ratio", "0_1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "1.1"),
    ],
)
def test_refused(name: str, given: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"^set {name}: "):
        topic_config.parse({name: given})


def test_defaults_are_kept_as_they_are() -> None:
    assert all(one.kind.plain(one.default) == one.default for one in SETTINGS.values())
    settings = group_config.GROUP_SETTINGS.values()
    assert all(one.kind.plain(one.default) == one.default for one in settings)


def test_the_read_values_are_those_that_are_kept() -> None:
    config = topic_config.parse({"cleanup.policy": "compact, delete", "retention.ms": " 5 "})
    assert (config.log.compact, config.log.delete_old_segments) == (True, True)
    assert config.log.retention_ms == 5


def test_groups_read_values_alike() -> None:
    name = "share.record.lock.duration.ms"
    given = {name: " 5000", "share.renew.acknowledge.enable": "False "}
    config = group_config.parse(given)
    assert config.overrides == {name: "5000", "share.renew.acknowledge.enable": "false"}
    assert (config.rules.hold_seconds, config.may_renew) == (5, False)
    for wrong in ("5_000", "\u0665000"):
        with pytest.raises(InvalidConfigError):
            group_config.parse({name: wrong})
    with pytest.raises(InvalidConfigError):
        group_config.parse({"share.auto.offset.reset": "by_duration:P\u0663D"})
