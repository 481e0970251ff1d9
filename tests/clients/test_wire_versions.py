"""ApiVersions follows its rules; every version of every API is in test_advertised.py."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from tests.clients.brokers import Broker
from tests.clients.contract import Code
from tests.clients.wire import Wire

pytestmark = pytest.mark.compat


def api_versions(name: str = "wire", version: str = "1.0") -> Any:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


def test_advertised_like_kafka(broker: Broker, wire: Wire) -> None:
    """The highest versions are those of Kafka 4.3: clients infer from them what they may do.

    Except InitProducerId 6, which a Kafka 4.3 has but keeps to itself (two-phase transactions).
    """
    highest = {
        0: 13, 1: 18, 2: 11, 3: 13, 10: 6, 18: 4, 19: 7, 20: 6, 21: 2, 23: 4, 29: 3, 30: 3,
        31: 3, 32: 4, 33: 2, 35: 5, 37: 3, 43: 2, 44: 1, 45: 1, 46: 0, 48: 1, 49: 1, 50: 0, 51: 0,
        57: 2, 60: 2, 61: 0, 74: 1, 75: 0, 76: 1, 77: 1, 78: 2, 79: 2, 90: 1, 91: 0, 92: 0,
    }  # fmt: skip
    offered = wire.versions()
    assert offered[22][1] == (6 if broker.name == "penstock" else 5)
    assert {key: offered[key][1] for key in highest} == highest
    assert offered[0][0] == 0  # or librdkafka does not compress


@pytest.mark.parametrize("version", [5, 99])
def test_api_versions_too_new(wire: Wire, version: int) -> None:
    """The answer has version 0's form and names the right range, so that the client asks again."""
    header = struct.pack(">hhih4sB", 18, version, 7, 4, b"wire", 0)
    body = b"\x05wire\x041.0\x00"
    wire.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
    (size,) = struct.unpack(">i", wire.exactly(4))
    correlation, code, count = struct.unpack(">ihi", (data := wire.exactly(size))[:10])
    assert (correlation, code) == (7, Code.UNSUPPORTED_VERSION)
    assert size == 10 + 6 * count
    keys = [struct.unpack_from(">hhh", data, 10 + 6 * index) for index in range(count)]
    listed = {key: (low, high) for key, low, high in keys}
    assert listed == {18: wire.versions()[18]}


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("bad name", "1"), ("good", "-1")])
def test_api_versions_with_bad_names(wire: Wire, name: str, version: str) -> None:
    wire.send(api_versions(name, version), 3)
    (size,) = struct.unpack(">i", wire.exactly(4))
    _correlation, code = struct.unpack(">ih", wire.exactly(size)[:6])
    assert code == Code.INVALID_REQUEST


@pytest.mark.parametrize("version", [3, 4])
def test_features(wire: Wire, version: int) -> None:
    answer = wire.call(api_versions(), version)
    assert isinstance(answer, ApiVersionsResponse)
    assert answer.error_code == Code.NONE
    assert answer.finalized_features_epoch >= 0


def test_unknown_api_closes_the_connection(wire: Wire) -> None:
    request = struct.pack(">hhih4s", 999, 0, 7, 4, b"wire")
    wire.socket.sendall(struct.pack(">i", len(request)) + request)
    assert wire.closed_by_peer()


def test_unknown_version_closes_the_connection(wire: Wire) -> None:
    request = struct.pack(">hhih4si", 3, 99, 7, 4, b"wire", -1)
    wire.socket.sendall(struct.pack(">i", len(request)) + request)
    assert wire.closed_by_peer()
