"""Every version of every API that Penstock advertises, asked on the wire, answered as Kafka does.

The list of tests is made from the table that ApiVersions answers with: a new row, or a new version,
is a test that fails until `advertised.py` says how to ask for it. What a Kafka answers is kept in
`answers.json`: all error codes, and for the rest the fields with their types. On a Kafka the tests
check that record (and write down what is missing in it), on Penstock they compare with it.
"""

from __future__ import annotations

import json
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.api_header import ResponseClassRegistry
from tests.clients.advertised import ASKED, STARTING, Stage, error_codes
from tests.clients.brokers import Broker
from tests.clients.contract import eventually, numbered
from tests.clients.wire import Wire

from penstock.kafka.apis import APIS

ANSWERS = Path(__file__).with_name("answers.json")
OFFERED_BY_PENSTOCK_ONLY = {(22, 6)}
"""Two-phase transactions, which a Kafka 4.3 keeps to itself: test_kafka_two_phase.py has them."""
EVERY = [
    pytest.param(key, version, id=f"{api.request.__name__.removesuffix('Request')}-{version}")
    for key, api in APIS.items()
    for version in range(api.lowest, api.highest + 1)
    if (key, version) not in OFFERED_BY_PENSTOCK_ONLY
]


def shape(value: Any, name: str = "") -> Any:
    """Fields and their types; error codes as they are; of a list, what its items have in common."""
    if isinstance(value, dict):
        return {key: shape(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        items = [shape(item) for item in value]
        return [_merged(items)] if items else []
    if name == "error_code":
        return str(value)
    return "null" if value is None else type(value).__name__


def _merged(items: list[Any]) -> Any:
    first = items[0]
    if isinstance(first, dict):
        return {key: _merged([item[key] for item in items]) for key in first}
    if isinstance(first, list):
        inner = [one for item in items for one in item]
        return [_merged(inner)] if inner else []
    return "|".join(sorted({part for item in items for part in item.split("|")}))


def differences(ours: Any, kafkas: Any, path: str = "") -> list[str]:
    """Where an answer is not like a Kafka's; fewer kinds of values in a list are fine."""
    if isinstance(ours, dict) and isinstance(kafkas, dict) and ours.keys() == kafkas.keys():
        return [d for key in ours for d in differences(ours[key], kafkas[key], f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(kafkas, list) and len(ours) == len(kafkas):
        pairs = zip(ours, kafkas, strict=True)
        return [d for one, other in pairs for d in differences(one, other, f"{path}[]")]
    if isinstance(ours, str) and isinstance(kafkas, str):
        unknown = set(ours.split("|")) - set(kafkas.split("|"))
        return [f"{path}: {', '.join(sorted(unknown))} and not {kafkas}"] if unknown else []
    return [f"{path}: {ours} and not {kafkas}"]


def ask(wire: Wire, request: Any, version: int) -> Any:
    """The answer, of which not a byte may be left."""
    wire.send(request, version)
    (size,) = struct.unpack(">i", wire.exactly(4))
    data = BytesIO(wire.exactly(size))
    answer = ResponseClassRegistry.get_response_class(request.header)
    answer.parse_header(data, version=version)
    flexible = answer.flexible_version_q(version)
    message = answer._struct.decode(
        data, version=version, compact=flexible, tagged=flexible, data_class=answer[None]
    )
    assert data.read() == b"", "the answer is longer than its version says"
    message.API_VERSION = version
    return message


def answered(stage: Stage, key: int) -> Any:
    """The shape of an answer by a broker whose coordinators have started."""
    request = ASKED[key](stage)

    def ready() -> Any | None:
        found = ask(stage.wire, request, stage.version).to_dict()
        return None if set(error_codes(found)) & STARTING else found

    return shape(eventually(ready, f"{type(request).__name__} {stage.version}"))


def recorded(broker: Broker, entry: str, found: Any) -> Any:
    """What a Kafka answers; where that is not known yet and this is one, it is written down."""
    known = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    if entry not in known:
        assert broker.name == "kafka", f"run this test on a Kafka first, which records {entry}"
        known[entry] = found
        lines = (f"{json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known))
        ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return known[entry]


@pytest.mark.parametrize(("key", "version"), EVERY)
def test_answered_like_kafka(
    broker: Broker, wire: Wire, topic: str, group: str, key: int, version: int
) -> None:
    wire.write(topic, numbered(3))
    found = answered(Stage(wire, topic, group, version), key)
    name = APIS[key].request.__name__.removesuffix("Request")
    assert differences(found, recorded(broker, f"{name} {version}", found)) == []


def test_the_table_is_what_is_advertised(broker: Broker, wire: Wire) -> None:
    """A Kafka has more; what both have, Penstock has in the same versions or fewer."""
    table = {key: (api.advertised_lowest, api.highest) for key, api in APIS.items()}
    offered = wire.versions()
    if broker.name == "penstock":
        assert offered == table
    for key, (lowest, highest) in table.items():
        shared = highest - ((key, highest) in OFFERED_BY_PENSTOCK_ONLY)
        assert offered[key][0] <= lowest <= shared <= offered[key][1], key


@pytest.mark.parametrize(
    "key", [key for key, api in APIS.items() if api.advertised_lowest < api.lowest]
)
def test_advertised_for_old_clients_but_refused(wire: Wire, topic: str, key: int) -> None:
    request = ASKED[key](Stage(wire, topic, "", 0))
    wire.send(request, APIS[key].advertised_lowest)
    assert wire.closed_by_peer()
