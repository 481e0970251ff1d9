"""The options of the source, in the names of Spark's own Kafka source, checked before all else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from penstock.client.cluster import EARLIEST, LATEST, Place
from penstock.client.schemas import Registry
from penstock.client.security import NAMES as SECURITY_NAMES
from penstock.client.security import Security
from penstock.client.topics import did_you_mean
from penstock.errors import UsageError
from penstock.spark.time.durations import duration_ms
from penstock.spark.time.watermarks import Rules

READ: Final = "cannot read topics"
_NAMES: Final = (
    "kafka.bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "kafka.isolation.level",
    "valueFormat",
    "malformed",
    "valueSchema",
    "valueMessage",
    "schemaRegistryUrl",
    "schemaRegistryUserInfo",
    *(f"kafka.{name}" for name in SECURITY_NAMES),
    "eventTimeColumn",
    "watermarkDelay",
    "idleTimeout",
)
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_ISOLATION: Final = {"read_committed": True, "read_uncommitted": False}


class ValueFormat(Enum):
    """What is in the values of records."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Fate(Enum):
    """What becomes of a record whose value does not fit the schema."""

    FAIL = "fail"
    COLUMN = "column"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends.

    Offsets may be EARLIEST or LATEST. Where neither offsets nor times name a partition, all counts.
    """

    all: int
    offsets: Mapping[Place, int]
    time_ms: int | None
    times_ms: Mapping[Place, int]


@dataclass(frozen=True, slots=True)
class EventTime:
    """Which column is the time of a row, and how the watermark follows it."""

    column: str
    rules: Rules


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the user asked for."""

    bootstrap: str
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[Place, ...]
    starting: Bound
    ending: Bound
    bounded: bool
    """A stream that reads to the ending offsets and no further."""
    offsets_per_trigger: int | None
    partitions_min: int | None
    fail_on_data_loss: bool
    headers: bool
    committed: bool
    value_format: ValueFormat | None
    """None: raw, unless a schema was given."""
    security: Security
    malformed: Fate | None
    """None: as the schema says."""
    dead_letters: str
    """The topic for what is malformed, or nothing."""
    value_schema: str
    """Of Avro or Protobuf, as the user gave it, or nothing."""
    value_message: str
    """Of the Protobuf schema; nothing: the first."""
    registry: Registry | None
    event_time: EventTime | None


def parse_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read and check all options.

    Args:
        given: as the user wrote them; names in any case, as everywhere in Spark.
        streaming: a stream starts at the end unless told otherwise, a batch reads everything.

    Raises:
        UsageError: one is missing, unknown or makes no sense; the message says what to write.
    """
    options = _Options(given)
    options.check_names()
    topics = tuple(
        name.strip() for name in options.text("subscribe", "").split(",") if name.strip()
    )
    pattern = options.text("subscribePattern", "") or None
    malformed, dead_letters = options.malformed()
    assigned = options.assigned()
    if sum(map(bool, (topics, pattern, assigned))) != 1:
        cause = "it is not said which topics"
        raise UsageError(READ, cause, "set one of subscribe, subscribePattern and assign")
    return SourceOptions(
        bootstrap=options.bootstrap(),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=options.bound("starting", LATEST if streaming else EARLIEST),
        ending=options.bound("ending", LATEST),
        bounded=options.has("ending"),
        offsets_per_trigger=options.count("maxOffsetsPerTrigger"),
        partitions_min=options.count("minPartitions"),
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        headers=options.flag("includeHeaders", False),
        committed=options.choice("kafka.isolation.level", _ISOLATION, "read_committed"),
        value_format=options.value_format(),
        security=parse_security(given, READ),
        malformed=malformed,
        dead_letters=dead_letters,
        value_schema=options.text("valueSchema", ""),
        value_message=options.text("valueMessage", ""),
        registry=options.registry(),
        event_time=options.event_time(),
    )


def parse_security(given: Mapping[str, str], operation: str) -> Security:
    """What the options kafka.security.protocol, kafka.sasl.* and kafka.ssl.* say; others are ignored.

    Raises:
        UsageError: they make no sense.
    """
    values = {name.lower(): value for name, value in given.items()}
    named = {name: values[f"kafka.{name}"] for name in SECURITY_NAMES if f"kafka.{name}" in values}
    return Security.parse(named, operation)


class _Options:
    """Values by lower-case name."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}
        self.names = list(given)

    def check_names(self) -> None:
        known = {name.lower() for name in _NAMES}
        # What comes with load(path) is Spark's own.
        unknown = [name for name in self.names if name.lower() not in known | {"path"}]
        if unknown:
            remedy = (
                _of_java(unknown[0])
                or did_you_mean(unknown, _NAMES)
                or f"there are {', '.join(_NAMES)}"
            )
            raise UsageError(READ, f"there is no option {unknown[0]}", remedy)

    def has(self, beginning: str) -> bool:
        return any(name.startswith(beginning) for name in self._values)

    def text(self, name: str, default: str) -> str:
        return self._values.get(name.lower(), default).strip()

    def bootstrap(self) -> str:
        found = self.text("kafka.bootstrap.servers", "")
        if not found:
            cause = "there is no address of a broker"
            raise UsageError(READ, cause, 'set kafka.bootstrap.servers, such as "127.0.0.1:9092"')
        return found

    def count(self, name: str) -> int | None:
        text = self.text(name, "")
        if not text:
            return None
        if not text.isdecimal() or int(text) < 1:
            raise _wrong(name, text, "a number above 0")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, {"true": True, "false": False}, str(default).lower())

    def choice(self, name: str, choices: Mapping[str, bool], default: str) -> bool:
        text = self.text(name, default).lower()
        if text not in choices:
            raise _wrong(name, text, " or ".join(choices))
        return choices[text]

    def value_format(self) -> ValueFormat | None:
        text = self.text("valueFormat", "").lower()
        if not text:
            return None
        names = [one.value for one in ValueFormat]
        if text not in names:
            raise _wrong("valueFormat", text, " or ".join(names))
        return ValueFormat(text)

    def registry(self) -> Registry | None:
        url = self.text("schemaRegistryUrl", "")
        if url and not url.startswith(("http://", "https://")):
            raise _wrong("schemaRegistryUrl", url, "such as http://127.0.0.1:8080")
        return Registry(url, self.text("schemaRegistryUserInfo", "")) if url else None

    def malformed(self) -> tuple[Fate | None, str]:
        text = self.text("malformed", "")
        word, _, topic = text.partition(":")
        fates = {one.value: one for one in Fate}
        if not text:
            return None, ""
        if word not in fates or (fates[word] is Fate.TOPIC) != bool(topic):
            raise _wrong("malformed", text, "fail, column or topic:NAME")
        return fates[word], topic

    def event_time(self) -> EventTime | None:
        column = self.text("eventTimeColumn", "")
        delay, idle = self.text("watermarkDelay", ""), self.text("idleTimeout", "")
        if not column and (delay or idle):
            cause = "there is a watermarkDelay or an idleTimeout, but no time that it is about"
            raise UsageError(READ, cause, "set eventTimeColumn")
        if not column:
            return None
        delay_ms = duration_ms(READ, "watermarkDelay", delay or "0 seconds")
        idle_ms = duration_ms(READ, "idleTimeout", idle) if idle else None
        if idle_ms == 0:
            raise _wrong("idleTimeout", idle, "a duration above 0, or leave it out")
        return EventTime(column, Rules(delay_ms, idle_ms))

    def assigned(self) -> tuple[Place, ...]:
        text = self.text("assign", "")
        if not text:
            return ()
        found = _json("assign", text, _ASSIGN_EXAMPLE)
        try:
            return tuple(Place(str(t), int(p)) for t, some in found.items() for p in some)
        except (TypeError, ValueError):
            raise _wrong("assign", text, _ASSIGN_EXAMPLE) from None

    def bound(self, which: str, default: int) -> Bound:
        """What stands in the options startingOffsets and so on, or endingOffsets and so on."""
        offsets, everywhere = self._offsets(f"{which}Offsets", default)
        times = self._by_place(f"{which}OffsetsByTimestamp")
        time = self.text(f"{which}Timestamp", "")
        if time and not time.isdecimal():
            raise _wrong(f"{which}Timestamp", time, "milliseconds since 1970")
        given = [
            self.text(which + end, "") for end in ("Offsets", "Timestamp", "OffsetsByTimestamp")
        ]
        if sum(map(bool, given)) > 1:
            remedy = f"set one of {which}Offsets, {which}Timestamp and {which}OffsetsByTimestamp"
            raise UsageError(READ, f"it is said twice where reading is {which}", remedy)
        return Bound(everywhere, offsets, int(time) if time else None, times)

    def _offsets(self, name: str, default: int) -> tuple[dict[Place, int], int]:
        text = self.text(name, "")
        if text.lower() in _WORDS:
            return {}, _WORDS[text.lower()]
        return self._by_place(name), default

    def _by_place(self, name: str) -> dict[Place, int]:
        text = self.text(name, "")
        if not text:
            return {}
        example = '{"topic": {"0": 23, "1": -2}}'
        if name.endswith("Offsets"):
            example = f"earliest, latest or {example}"
        found = _json(name, text, example)
        try:
            return {
                Place(str(topic), int(partition)): int(offset)
                for topic, some in found.items()
                for partition, offset in some.items()
            }
        except (AttributeError, TypeError, ValueError):
            raise _wrong(name, text, example) from None


def _of_java(name: str) -> str:
    """What to write for an option that names a key store of Java."""
    if not name.lower().startswith(("kafka.ssl.truststore", "kafka.ssl.keystore")):
        return ""
    return "name PEM files in kafka.ssl.ca.location, ssl.certificate.location and ssl.key.location"


_ASSIGN_EXAMPLE = '{"topic": [0, 1]}'


def _json(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise _wrong(name, text, example) from None
    if not isinstance(found, dict):
        raise _wrong(name, text, example)
    return found


def _wrong(name: str, text: str, example: str) -> UsageError:
    return UsageError(READ, f"{name} is '{text}'", f"write {example}")
