"""Every advertised version of every API works, and ApiVersions itself follows its rules."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from tests.clients import admin_requests as admin
from tests.clients.contract import Code, eventually, numbered
from tests.clients.wire import (
    LATEST,
    Wire,
    build_batch,
    fetch_request,
    list_offsets_request,
    produce_request,
)

pytestmark = pytest.mark.compat

Make = Callable[[str, uuid.UUID], Any]

REQUESTS: dict[str, Make] = {
    "Produce": lambda topic, topic_id: produce_request(
        topic, {0: build_batch(numbered(3))}, topic_id=topic_id
    ),
    "Fetch": lambda topic, topic_id: fetch_request(topic, {0: 0}, topic_id=topic_id),
    "ListOffsets": lambda topic, _: list_offsets_request(topic, {0: LATEST}),
    "Metadata": lambda topic, topic_id: MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(topic_id=uuid.UUID(int=0), name=topic)],
        allow_auto_topic_creation=False,
    ),
    "FindCoordinator": lambda topic, _: admin.find_coordinator(topic),
    "ApiVersions": lambda *_: api_versions(),
    "CreateTopics": lambda *_: admin.create_topics(f"made-{uuid.uuid4().hex}"),
    "DeleteTopics": lambda topic, _: admin.delete_topic(topic),
    "DeleteRecords": lambda topic, _: admin.delete_records(topic, -1),
    "InitProducerId": lambda *_: admin.init_producer_id(),
    "OffsetForLeaderEpoch": lambda topic, _: admin.offset_for_epoch(topic, 0),
    "DescribeConfigs": lambda topic, _: admin.describe_configs(topic, everything=True),
    "AlterConfigs": lambda topic, _: admin.alter_configs(topic, {"retention.ms": "60000"}),
    "DescribeLogDirs": lambda topic, _: admin.describe_log_dirs(topic),
    "CreatePartitions": lambda topic, _: admin.create_partitions(topic, 2, validate_only=True),
    "IncrementalAlterConfigs": lambda topic, _: admin.change_configs(
        topic, [("retention.ms", admin.SET, "60000")]
    ),
    "DescribeCluster": lambda *_: DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=1, include_fenced_brokers=False
    ),
    "DescribeTopicPartitions": lambda topic, _: admin.describe_partitions(topic),
}
FIRST = {"Produce": 3}
"""Versions below are advertised, for the sake of old clients, but refused."""

STARTING = {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE}


def api_versions(name: str = "wire", version: str = "1.0") -> Any:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


def error_codes(message: Any) -> Iterator[int]:
    """All error codes in a message, however deep."""
    for key, value in message.items() if isinstance(message, dict) else enumerate(message):
        if key == "error_code":
            yield value
        elif isinstance(value, dict | list):
            yield from error_codes(value)


@pytest.mark.parametrize("api", REQUESTS)
def test_every_version(wire: Wire, topic: str, api: str) -> None:
    topic_id = wire.metadata(topic).topic_id
    wire.write(topic, numbered(3))
    request = REQUESTS[api](topic, topic_id)
    low, high = wire.versions()[request.API_KEY]
    assert high <= request.max_version
    for version in range(max(low, FIRST.get(api, 0)), high + 1):
        if api == "DeleteTopics" and version > low:
            wire.create_topic(topic)

        def answered(version: int = version) -> bool | None:
            answer = wire.call(REQUESTS[api](topic, topic_id), version)
            codes = set(error_codes(answer.to_dict()))
            if codes & STARTING:
                return None  # a Kafka starts its coordinators when they are first asked for
            assert codes <= {Code.NONE}, f"{api} {version}: {answer}"
            return True

        eventually(answered, f"{api} {version}")


def test_advertised_like_kafka(wire: Wire) -> None:
    """The highest versions are those of Kafka 4.3: clients infer from them what they may do."""
    highest = {
        0: 13, 1: 18, 2: 11, 3: 13, 10: 6, 18: 4, 19: 7, 20: 6, 21: 2, 22: 5, 23: 4, 29: 3, 30: 3,
        31: 3, 32: 4, 33: 2, 35: 5, 37: 3, 43: 2, 44: 1, 45: 1, 46: 0, 48: 1, 49: 1, 50: 0, 51: 0,
        57: 2, 60: 2, 61: 0, 74: 1, 75: 0, 76: 1, 77: 1, 78: 2, 79: 2, 90: 1, 91: 0, 92: 0,
    }  # fmt: skip
    offered = wire.versions()
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
    offered = wire.versions()  # of which a Kafka lists ApiVersions only
    assert listed[18] == offered[18]
    assert all(offered[key] == versions for key, versions in listed.items())


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
