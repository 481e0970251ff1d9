"""ApiVersions: what a client learns before it knows anything."""

from __future__ import annotations

import struct

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from tests.unit.kafka.exchange import CORRELATION, PEER, Exchange, Slot, versions

from penstock.kafka.apis import APIS
from penstock.kafka.errors import Code

KEY = 18


def request(name: str = "unit", version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@pytest.mark.parametrize("version", versions(KEY))
def test_lists_the_table(exchange: Exchange, version: int) -> None:
    response = exchange.send(request(), version)
    assert response.error_code == Code.NONE
    offered = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert offered == {key: (api.advertised_lowest, api.highest) for key, api in APIS.items()}


def test_produce_is_advertised_from_0(exchange: Exchange) -> None:
    """Or librdkafka sends uncompressed (KAFKA-18659)."""
    offered = {api.api_key: api.min_version for api in exchange.send(request(), 4).api_keys}
    assert offered[0] == 0


@pytest.mark.parametrize("version", [3, 4])
def test_no_feature_switches_clients_to_what_is_not_there(exchange: Exchange, version: int) -> None:
    response = exchange.send(request(), version)
    assert response.finalized_features_epoch == 0
    levels = {"metadata.version": 30, "transaction.version": 2} | dict.fromkeys(
        ("group.version", "share.version"), 1
    )
    assert {f.name: f.max_version_level for f in response.finalized_features} == levels
    supported = {f.name: (f.min_version, f.max_version) for f in response.supported_features}
    assert supported.pop("metadata.version") == (7, 30)
    # Java clients that know version 3 only cannot read a lowest level of 0 (KAFKA-17492).
    expected = {name: (0, levels[name]) for name in levels if name != "metadata.version"}
    assert supported == (expected if version >= 4 else {})


@pytest.mark.parametrize("version", [3, 4])
def test_the_header_has_no_tagged_fields(exchange: Exchange, version: int) -> None:
    data = exchange.begin(request(), version).data
    assert data is not None
    assert struct.unpack_from(">iih", data) == (len(data) - 4, CORRELATION, Code.NONE)


@pytest.mark.parametrize(
    ("name", "software"),
    [("", "1"), ("unit", ""), ("-unit", "1"), ("unit", "1-"), ("my unit", "1"), ("unit", "1\n")],
)
def test_bad_software_names_are_refused(exchange: Exchange, name: str, software: str) -> None:
    for version in (3, 4):
        data = exchange.begin(request(name, software), version).data
        assert data is not None
        assert struct.unpack_from(">h", data, 8) == (Code.INVALID_REQUEST,)


def test_software_names_that_pass(exchange: Exchange) -> None:
    for name in ("a", "apache-kafka-java", "confluent-kafka-python", "a.b-c"):
        assert exchange.send(request(name, "2.16.1-librdkafka-2.16"), 3).error_code == Code.NONE


@pytest.mark.parametrize("version", [5, 99])
def test_a_version_too_high_is_answered_in_version_0(exchange: Exchange, version: int) -> None:
    frame = struct.pack(">hhih4s", KEY, version, CORRELATION, 4, b"unit") + b"\x00what ever"
    slot = Slot()
    exchange.dispatcher.handle(memoryview(frame), PEER, slot)
    response = ApiVersionsResponse.decode(slot.data, version=0, header=True, framed=True)
    assert response.error_code == Code.UNSUPPORTED_VERSION
    (own,) = response.api_keys
    assert (own.api_key, own.min_version, own.max_version) == (KEY, 0, 4)
