"""Writes the pages of docs/reference that the code knows best.

    python -m tools.reference            rewrites them
    python -m tools.reference --check    exits 1 if they are not what the code says

Topic settings come from `penstock.broker.topic_config`, requests and versions from the table that
ApiVersions answers with, and the known gaps are what that table does not have.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock.broker.topic_config import SETTINGS, Kind, Setting
from penstock.kafka.apis import APIS, Api

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "reference"
_GENERATED: Final = (
    "<!-- Written by `python -m tools.reference`; change the code, not this page. -->"
)

# -- topic settings

_TYPES: Final = {1: "boolean", 2: "string", 3: "int", 5: "long", 6: "double", 7: "list"}
_NO_EFFECT: Final = re.compile(r"Kept; ")
_MUST_BE: Final = "it must be "
_NO_LIMIT: Final = str(2**63 - 1)
_UNITS_MS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))
_UNITS_BYTES: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))

_SETTINGS_HEAD: Final = f"""# Topic settings

{_GENERATED}

Kafka's names, defaults and rules. Set them when a topic is created or later:

```
penstock topics create orders --partitions 3 --config retention.ms=86400000
penstock topics configure orders --set retention.ms=-1
penstock topics describe orders
```

or with any Kafka client or tool (CreateTopics, AlterConfigs, IncrementalAlterConfigs). A name that is
not on this page, or a value its setting cannot have, is refused with INVALID_CONFIG. Blanks around a
value, and around the items of a list, do not count; numbers are plain digits (`1_000` is refused).
"""
_OWN: Final = """
`penstock.durability` is Penstock's own: see [durability](../guide/durability.md). `memory` can only be
chosen when a topic is created.
"""
_KEPT_HEAD: Final = """
## Without effect

These are accepted, checked and shown, because tools set them. On one node that syncs before it
acknowledges they change nothing.
"""


def topic_settings() -> str:
    """The page of topic settings."""
    effective = {n: s for n, s in SETTINGS.items() if not _NO_EFFECT.match(s.help)}
    kept = {n: s for n, s in SETTINGS.items() if n not in effective}
    return (
        _SETTINGS_HEAD
        + "\n"
        + _settings_table(effective)
        + _OWN
        + _KEPT_HEAD
        + "\n"
        + _settings_table(kept)
    )


def _settings_table(settings: Mapping[str, Setting]) -> str:
    rows = ["| setting | type | default | values | |", "|---|---|---|---|---|"]
    for name, setting in settings.items():
        cells = (
            f"`{name}`",
            _TYPES[setting.kind.code],
            _readable(name, setting.default),
            _values(setting.kind),
            _NO_EFFECT.sub("", setting.help).capitalize()
            if _NO_EFFECT.match(setting.help)
            else setting.help,
        )
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _values(kind: Kind) -> str:
    """What a setting can be, in the words with which it refuses everything else."""
    for wrong in ("?", str(10**30)):
        refusal = kind.check(wrong) or ""
        if refusal.startswith(_MUST_BE):
            words = refusal.removeprefix(_MUST_BE).replace(f"to {_NO_LIMIT}", "on")
            return ", ".join(words.split(" or "))
    return "any"


def _readable(name: str, value: str) -> str:
    """A default as tools show it, and what it means where that is hard to see."""
    shown = f"`{value}`"
    if value == _NO_LIMIT:
        return f"{shown} (no limit)"
    if not value.isdigit():
        return shown
    number = int(value)
    for size, unit in _UNITS_MS if name.endswith(".ms") else ():
        if number and number % size == 0:
            count = number // size
            return f"{shown} ({count} {unit}{'s' if count > 1 else ''})"
    for size, unit in _UNITS_BYTES if name.endswith(".bytes") else ():
        if number and number % size == 0:
            return f"{shown} ({number // size} {unit})"
    return shown


# -- requests


class Gap(NamedTuple):
    """Requests of Kafka's that belong together, and what it means not to have them."""

    what: str
    requests: Mapping[int, str]
    meaning: str


GAPS: Final = (
    Gap(
        "Consumer groups",
        {
            8: "OffsetCommit",
            9: "OffsetFetch",
            11: "JoinGroup",
            12: "Heartbeat",
            13: "LeaveGroup",
            14: "SyncGroup",
            15: "DescribeGroups",
            16: "ListGroups",
            42: "DeleteGroups",
            47: "OffsetDelete",
        },
        "Consumers assign partitions themselves and keep their own offsets; `subscribe` finds no group.",
    ),
    Gap(
        "Consumer groups, new protocol",
        {68: "ConsumerGroupHeartbeat", 69: "ConsumerGroupDescribe"},
        "Consumers with `group.protocol=consumer` (KIP-848) are refused; the default is `classic`.",
    ),
    Gap(
        "Access control",
        {
            17: "SaslHandshake",
            29: "DescribeAcls",
            30: "CreateAcls",
            31: "DeleteAcls",
            36: "SaslAuthenticate",
            38: "CreateDelegationToken",
            39: "RenewDelegationToken",
            40: "ExpireDelegationToken",
            41: "DescribeDelegationToken",
            50: "DescribeUserScramCredentials",
            51: "AlterUserScramCredentials",
        },
        "Nobody is asked who they are, which is why only loopback is served without `--insecure`. "
        "Access rules are answered with SECURITY_DISABLED.",
    ),
    Gap(
        "Quotas",
        {48: "DescribeClientQuotas", 49: "AlterClientQuotas"},
        "No client is slowed down for another; throttle times are always 0.",
    ),
    Gap(
        "Share groups",
        {
            76: "ShareGroupHeartbeat",
            77: "ShareGroupDescribe",
            78: "ShareFetch",
            79: "ShareAcknowledge",
            90: "DescribeShareGroupOffsets",
            91: "AlterShareGroupOffsets",
            92: "DeleteShareGroupOffsets",
        },
        "Kafka's queues.",
    ),
    Gap(
        "Replicas and log folders",
        {
            34: "AlterReplicaLogDirs",
            43: "ElectLeaders",
            45: "AlterPartitionReassignments",
            46: "ListPartitionReassignments",
        },
        "There is one node with one folder, which leads every partition.",
    ),
    Gap(
        "Client telemetry",
        {71: "GetTelemetrySubscriptions", 72: "PushTelemetry"},
        "Clients keep their metrics to themselves.",
    ),
)

_API_HEAD: Final = f"""# Kafka requests and versions

{_GENERATED}

What a client finds in ApiVersions. The ranges are those of Kafka 4.3, so that clients take the broker
for one, and InitProducerId 6 for two-phase transactions, which no client uses unless it wants them; a
request or a version that is not here closes the connection, except that ApiVersions itself answers with
the versions it has.

| request | key | versions |
|---|---|---|
"""
_GAPS_HEAD: Final = """
## Known gaps

What is not implemented is not advertised, so that clients find out before they rely on it.

| | requests | |
|---|---|---|
"""


def kafka_api() -> str:
    """The page of requests."""
    requests = "".join(_api_row(key, api) for key, api in sorted(APIS.items()))
    gaps = "".join(row for gap in GAPS if (row := _gap_row(gap)))
    return _API_HEAD + requests + _GAPS_HEAD + gaps


def _api_row(key: int, api: Api) -> str:
    versions = f"{api.lowest}-{api.highest}" if api.highest > api.lowest else f"{api.lowest}"
    if api.advertised_lowest < api.lowest:
        versions += (
            f"; advertised from {api.advertised_lowest}, as Kafka does for older librdkafka, and "
            f"refused below {api.lowest}"
        )
    return f"| {request_name(api)} | {key} | {versions} |\n"


def request_name(api: Api) -> str:
    """The name Kafka's protocol guide gives it."""
    return str(api.request.__name__).removesuffix("Request")


def _gap_row(gap: Gap) -> str:
    missing = [f"{name} ({key})" for key, name in gap.requests.items() if key not in APIS]
    return f"| {gap.what} | {', '.join(missing)} | {gap.meaning} |\n" if missing else ""


# -- the command


PAGES: Final = {"topic-settings.md": topic_settings, "kafka-api.md": kafka_api}


def main() -> int:
    """Rewrite or check the pages; the exit code."""
    summary, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description=summary)
    parser.add_argument("--check", action="store_true", help="exit 1 if a page is not current")
    only_check = parser.parse_args().check
    stale = 0
    for name, write in PAGES.items():
        path, text = FOLDER / name, write()
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        if only_check:
            print(f"docs/reference/{name} is not current; run `python -m tools.reference`")
        else:
            path.write_text(text)
            print(f"wrote docs/reference/{name}")
    return 1 if only_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
