"""Administration of what a single node does not have: exact answers in every version."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol import admin
from tests.unit.kafka.exchange import NOW, Exchange, versions

from penstock.errors import DamagedLogError
from penstock.kafka.errors import Code
from penstock.record.encode import NewRecord, encode


def elections(kind: int, *places: tuple[str, int]) -> Any:
    message = admin.ElectLeadersRequest.TopicPartitions
    return admin.ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[message(topic=topic, partitions=[one]) for topic, one in places] or None,
        timeout_ms=1000,
    )


def elected(answer: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, one.partition_id): one.error_code
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }


@pytest.mark.parametrize("version", versions(43))
def test_elections(exchange: Exchange, version: int) -> None:
    exchange.topic("a", 2)
    assert elected(exchange.send(elections(0), version)) == {}
    answer = exchange.send(elections(0, ("a", 1), ("a", 2), ("b", 0)), version)
    assert elected(answer) == {
        ("a", 1): Code.ELECTION_NOT_NEEDED,
        ("a", 2): Code.UNKNOWN_TOPIC_OR_PARTITION,
        ("b", 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize(
    ("kind", "code"),
    [(0, Code.PREFERRED_LEADER_NOT_AVAILABLE), (1, Code.ELIGIBLE_LEADERS_NOT_AVAILABLE)],
)
def test_a_damaged_partition_has_no_leader(exchange: Exchange, kind: int, code: Code) -> None:
    topic = exchange.topic("a", 2)
    topic.partitions[0] = DamagedLogError("open", "it is damaged")
    assert elected(exchange.send_highest(elections(kind))) == {("a", 0): code}


def test_an_election_of_no_known_kind(exchange: Exchange) -> None:
    assert exchange.send_highest(elections(7)).error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(45))
@pytest.mark.parametrize(
    ("name", "replicas", "code"),
    [
        ("a", [1], Code.NONE),
        ("a", None, Code.NO_REASSIGNMENT_IN_PROGRESS),
        ("a", [], Code.INVALID_REPLICA_ASSIGNMENT),
        ("a", [2], Code.INVALID_REPLICA_ASSIGNMENT),
        ("a", [1, 1], Code.INVALID_REPLICA_ASSIGNMENT),
        ("b", [1], Code.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_reassignments(
    exchange: Exchange, version: int, name: str, replicas: list[int] | None, code: Code
) -> None:
    exchange.topic("a")
    message = admin.AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = message.ReassignablePartition(partition_index=0, replicas=replicas)
    request = admin.AlterPartitionReassignmentsRequest(
        timeout_ms=1000,
        allow_replication_factor_change=False,
        topics=[message(name=name, partitions=[partition])],
    )
    answer = exchange.send(request, version)
    ((result,),) = [topic.partitions for topic in answer.responses]
    assert result.error_code == code
    assert bool(result.error_message) == (code is not Code.NONE)
    if version >= 1:
        assert not answer.allow_replication_factor_change
    listing = admin.ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None)
    assert exchange.send_highest(listing).topics == []


def test_producers(exchange: Exchange) -> None:
    topic = exchange.topic("a", 2)
    batch = encode(
        [NewRecord(b"v", None, NOW), NewRecord(b"v", None, NOW)],
        producer_id=5,
        producer_epoch=3,
        base_sequence=7,
    )
    exchange.broker.appender.append(topic, topic.partition(1), batch)
    exchange.drain()
    message = admin.DescribeProducersRequest.TopicRequest
    request = admin.DescribeProducersRequest(
        topics=[message(name="a", partition_indexes=[0, 1, 1, 2])]
    )
    (answer,) = exchange.send_highest(request).topics
    empty, written, absent = answer.partitions
    assert (empty.error_code, empty.active_producers) == (Code.NONE, [])
    assert absent.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    (state,) = written.active_producers
    assert (state.producer_id, state.producer_epoch) == (5, 3)
    assert (state.last_sequence, state.last_timestamp) == (8, NOW)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)


@pytest.mark.parametrize("version", versions(29))
def test_there_are_no_rules(exchange: Exchange, version: int) -> None:
    facts: dict[str, Any] = {"operation": 3, "permission_type": 3}
    described = exchange.send(
        admin.DescribeAclsRequest(
            resource_type_filter=2, pattern_type_filter=3, resource_name_filter=None, **facts
        ),
        version,
    )
    creation = admin.CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name="a",
        resource_pattern_type=3,
        principal="User:x",
        host="*",
        **facts,
    )
    created = exchange.send(admin.CreateAclsRequest(creations=[creation] * 2), version)
    wanted = admin.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=2, pattern_type_filter=3, **facts
    )
    deleted = exchange.send(admin.DeleteAclsRequest(filters=[wanted]), version)
    for answer in (described, *created.results, *deleted.filter_results):
        assert answer.error_code == Code.SECURITY_DISABLED
        assert answer.error_message == "there is no access control: every client may do everything"
    assert len(created.results) == 2


def test_there_are_no_users(exchange: Exchange) -> None:
    everybody = admin.DescribeUserScramCredentialsRequest(users=None)
    assert exchange.send_highest(everybody).results == []
    name = admin.DescribeUserScramCredentialsRequest.UserName
    somebody = admin.DescribeUserScramCredentialsRequest(users=[name(name="x"), name(name="x")])
    (found,) = exchange.send_highest(somebody).results
    assert (found.user, found.error_code) == ("x", Code.RESOURCE_NOT_FOUND)
    request = admin.AlterUserScramCredentialsRequest
    change = request(
        deletions=[request.ScramCredentialDeletion(name="x", mechanism=1)],
        upsertions=[
            request.ScramCredentialUpsertion(
                name="y", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p"
            )
        ],
    )
    codes = {one.user: one.error_code for one in exchange.send_highest(change).results}
    assert codes == {"x": Code.RESOURCE_NOT_FOUND, "y": Code.SECURITY_DISABLED}


@pytest.mark.parametrize("version", versions(57))
@pytest.mark.parametrize(
    ("feature", "level", "code"),
    [
        ("metadata.version", 30, Code.NONE),
        ("metadata.version", 29, Code.INVALID_UPDATE_VERSION),
        ("x", 1, Code.INVALID_UPDATE_VERSION),
    ],
)
def test_features(exchange: Exchange, version: int, feature: str, level: int, code: Code) -> None:
    update = admin.UpdateFeaturesRequest.FeatureUpdateKey(
        feature=feature, max_version_level=level, allow_downgrade=False, upgrade_type=1
    )
    request = admin.UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update])
    answer = exchange.send(request, version)
    assert answer.error_code == code
    assert bool(answer.error_message) == (code is not Code.NONE)
    if version < 2:
        assert [one.feature for one in answer.results] == ([feature] if code is Code.NONE else [])


def test_config_resources(exchange: Exchange) -> None:
    exchange.topic("a")

    def listed(version: int, *types: int) -> list[tuple[int, str]]:
        request = admin.ListConfigResourcesRequest(resource_types=list(types))
        answer = exchange.send(request, version)
        assert answer.error_code == Code.NONE
        return [(one.resource_type, one.resource_name) for one in answer.config_resources]

    assert listed(0) == []
    assert listed(1) == [(2, "a"), (4, "1")]
    assert listed(1, 4) == [(4, "1")]
    assert listed(1, 16, 32, 8) == []
    request = admin.ListConfigResourcesRequest(resource_types=[2, 3])
    assert exchange.send(request, 1).error_code == Code.UNSUPPORTED_VERSION
