"""One way to ask for every API that Penstock advertises, at any of its versions.

A stage holds what a request needs to make sense (a topic with records, a group with a member, an
open transaction), so that nearly all of them succeed. `test_advertised.py` asks all of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kafka.protocol import admin, consumer, producer
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from tests.clients import admin_requests as simple
from tests.clients.contract import eventually, numbered
from tests.clients.test_wire_groups import Member
from tests.clients.test_wire_share_groups import ACCEPT, configure
from tests.clients.test_wire_share_groups import Member as ShareMember
from tests.clients.wire import LATEST, Wire, build_batch, fetch_request, produce_request
from tests.clients.wire import list_offsets_request as list_offsets

from penstock.wire.consumer_group_messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from penstock.wire.share_group_messages import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

TIMEOUT_MS = 30_000
TRANSACTION = 1
STARTING = {14, 15, 16, 51}
"""A Kafka loads its coordinators when they are first asked for, and ends transactions on the side."""


@dataclass
class Stage:
    """Where one request is asked."""

    wire: Wire
    topic: str
    group: str
    version: int

    @cached_property
    def topic_id(self) -> uuid.UUID:
        found: uuid.UUID = self.wire.metadata(self.topic).topic_id
        return found

    @cached_property
    def node(self) -> int:
        return int(self.wire.metadata(self.topic).partitions[0].leader_id)

    @cached_property
    def member(self) -> Member:
        """One that has joined the group and got its share."""
        member = Member(self.wire, self.group, 9)
        member.join()
        assert member.sync(5).error_code == 0
        return member

    def commit(self) -> None:
        """Let the group exist, with an offset and without members."""
        (topic,) = self.wire.call(offset_commit(self)).topics
        assert topic.partitions[0].error_code == 0

    @cached_property
    def transaction(self) -> dict[str, Any]:
        """A producer with a transaction that has written to the topic and is open."""
        made = self.patient(init_producer_id(self), 4)
        who = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        self.transaction = {"transactional_id": self.group, **who}
        self.patient(add_partitions_to_txn(self), 3)
        return self.transaction

    def patient(self, request: Any, version: int) -> Any:
        """The answer of a coordinator that has started."""

        def ready() -> Any | None:
            answer = self.wire.call(request, version)
            return None if set(error_codes(answer.to_dict())) & STARTING else answer

        return eventually(ready, f"{type(request).__name__} {version}")


def error_codes(message: Any) -> list[int]:
    """All error codes in a message, however deep."""
    if isinstance(message, list):
        return [code for item in message for code in error_codes(item)]
    if not isinstance(message, dict):
        return []
    inside = [code for value in message.values() for code in error_codes(value)]
    return inside + ([message["error_code"]] if "error_code" in message else [])


# ---- topics and the cluster ------------------------------------------------------------------


def metadata(stage: Stage) -> Any:
    wanted = MetadataRequest.MetadataRequestTopic(topic_id=uuid.UUID(int=0), name=stage.topic)
    return MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)


def elect_leaders(stage: Stage) -> Any:
    place = admin.ElectLeadersRequest.TopicPartitions(topic=stage.topic, partitions=[0])
    return admin.ElectLeadersRequest(
        election_type=0, topic_partitions=[place], timeout_ms=TIMEOUT_MS
    )


def reassign(stage: Stage) -> Any:
    topic = admin.AlterPartitionReassignmentsRequest.ReassignableTopic
    place = topic.ReassignablePartition(partition_index=0, replicas=[stage.node])
    return admin.AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS,
        allow_replication_factor_change=True,
        topics=[topic(name=stage.topic, partitions=[place])],
    )


def describe_producers(stage: Stage) -> Any:
    message = admin.DescribeProducersRequest.TopicRequest
    return admin.DescribeProducersRequest(topics=[message(name=stage.topic, partition_indexes=[0])])


def update_features(_: Stage) -> Any:
    update = admin.UpdateFeaturesRequest.FeatureUpdateKey(
        feature="no.such.version", max_version_level=1, allow_downgrade=False, upgrade_type=1
    )
    return admin.UpdateFeaturesRequest(
        timeout_ms=TIMEOUT_MS, feature_updates=[update], validate_only=False
    )


# ---- access and quotas -----------------------------------------------------------------------

FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
RULE = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def create_acls(_: Stage) -> Any:
    return admin.CreateAclsRequest(creations=[admin.CreateAclsRequest.AclCreation(**RULE)])


def delete_acls(_: Stage) -> Any:
    return admin.DeleteAclsRequest(filters=[admin.DeleteAclsRequest.DeleteAclsFilter(**FILTER)])


def describe_quotas(stage: Stage) -> Any:
    stage.wire.call(alter_quotas(stage))
    component = admin.DescribeClientQuotasRequest.ComponentData(
        entity_type="client-id", match_type=0, match=stage.group
    )
    request = admin.DescribeClientQuotasRequest(components=[component], strict=True)
    eventually(lambda: stage.wire.call(request).entries or None, "a Kafka has taken note")
    return request


def alter_quotas(stage: Stage) -> Any:
    entry = admin.AlterClientQuotasRequest.EntryData
    whose = entry.EntityData(entity_type="client-id", entity_name=stage.group)
    rate = entry.OpData(key="producer_byte_rate", value=1e6, remove=False)
    entries = [entry(entity=[whose], ops=[rate])]
    return admin.AlterClientQuotasRequest(entries=entries, validate_only=False)


def describe_scram(stage: Stage) -> Any:
    user = admin.DescribeUserScramCredentialsRequest.UserName(name="alice")
    return admin.DescribeUserScramCredentialsRequest(users=[user])


def alter_scram(stage: Stage) -> Any:
    deletion = admin.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    return admin.AlterUserScramCredentialsRequest(
        deletions=[deletion(name="alice", mechanism=1)], upsertions=[]
    )


# ---- groups ----------------------------------------------------------------------------------


def offset_commit(stage: Stage) -> Any:
    message = consumer.OffsetCommitRequest.OffsetCommitRequestTopic
    partition = message.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=0, committed_metadata=""
    )
    topic = message(name=stage.topic, topic_id=stage.topic_id, partitions=[partition])
    return consumer.OffsetCommitRequest(
        group_id=stage.group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )


def offset_fetch(stage: Stage) -> Any:
    stage.commit()
    request = consumer.OffsetFetchRequest
    if stage.version < 8:
        old = request.OffsetFetchRequestTopic(name=stage.topic, partition_indexes=[0])
        return request(group_id=stage.group, topics=[old])
    group = request.OffsetFetchRequestGroup
    wanted = group.OffsetFetchRequestTopics(
        name=stage.topic, topic_id=stage.topic_id, partition_indexes=[0]
    )
    return request(groups=[group(group_id=stage.group, topics=[wanted])])


def offset_delete(stage: Stage) -> Any:
    stage.commit()
    message = consumer.OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = message.OffsetDeleteRequestPartition(partition_index=0)
    return consumer.OffsetDeleteRequest(
        group_id=stage.group, topics=[message(name=stage.topic, partitions=[partition])]
    )


def join_group(stage: Stage) -> Any:
    # A static member is not sent back for a member id first.
    return Member(stage.wire, stage.group, stage.version, "one").request()


def sync_group(stage: Stage) -> Any:
    member = stage.member
    return consumer.SyncGroupRequest(
        group_id=stage.group,
        generation_id=member.generation,
        member_id=member.id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )


def heartbeat(stage: Stage) -> Any:
    member = stage.member
    return consumer.HeartbeatRequest(
        group_id=stage.group, generation_id=member.generation, member_id=member.id
    )


def leave_group(stage: Stage) -> Any:
    who = stage.member.id
    identity = consumer.LeaveGroupRequest.MemberIdentity(member_id=who)
    return consumer.LeaveGroupRequest(group_id=stage.group, member_id=who, members=[identity])


def describe_groups(stage: Stage) -> Any:
    assert stage.member.generation > 0
    return admin.DescribeGroupsRequest(groups=[stage.group], include_authorized_operations=True)


def list_groups(stage: Stage) -> Any:
    stage.commit()
    return admin.ListGroupsRequest(states_filter=[], types_filter=[])


def delete_groups(stage: Stage) -> Any:
    stage.commit()
    return admin.DeleteGroupsRequest(groups_names=[stage.group])


def consumer_heartbeat(stage: Stage) -> Any:
    return ConsumerGroupHeartbeatRequest(
        group_id=stage.group,
        member_id=str(uuid.uuid4()),
        member_epoch=0,
        rebalance_timeout_ms=TIMEOUT_MS,
        subscribed_topic_names=[stage.topic],
        topic_partitions=[],
    )


def consumer_describe(stage: Stage) -> Any:
    joined = stage.wire.call(consumer_heartbeat(stage))
    assert joined.error_code == 0
    return ConsumerGroupDescribeRequest(
        group_ids=[stage.group], include_authorized_operations=False
    )


# ---- share groups ----------------------------------------------------------------------------


def share_member(stage: Stage) -> ShareMember:
    """One that has been given the topic's three records."""
    assert configure(stage.wire, stage.group, share_auto_offset_reset="earliest") == [0]
    member = ShareMember(stage.wire, stage.group, stage.topic)
    member.join()
    assert member.got() == [(0, 2, 1)]
    member.version = stage.version
    return member


def share_heartbeat(stage: Stage) -> Any:
    # Not the first: a Kafka shares out the work somewhat later, Penstock at once.
    member = share_member(stage)
    return ShareGroupHeartbeatRequest(
        group_id=stage.group, member_id=member.id, member_epoch=member.epoch
    )


def share_describe(stage: Stage) -> Any:
    share_member(stage)
    return ShareGroupDescribeRequest(group_ids=[stage.group], include_authorized_operations=False)


def share_offsets(stage: Stage) -> Any:
    share_member(stage)
    message = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    topic = message.DescribeShareGroupOffsetsRequestTopic(topic_name=stage.topic, partitions=[0])
    return DescribeShareGroupOffsetsRequest(groups=[message(group_id=stage.group, topics=[topic])])


def alter_share_offsets(stage: Stage) -> Any:
    share_member(stage).beat(member_epoch=-1)
    message = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    place = message.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=2)
    topic = message(topic_name=stage.topic, partitions=[place])
    return AlterShareGroupOffsetsRequest(group_id=stage.group, topics=[topic])


def delete_share_offsets(stage: Stage) -> Any:
    share_member(stage).beat(member_epoch=-1)
    message = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    topics = [message(topic_name=stage.topic)]
    return DeleteShareGroupOffsetsRequest(group_id=stage.group, topics=topics)


# ---- transactions ----------------------------------------------------------------------------


def init_producer_id(stage: Stage) -> Any:
    # Which is what makes a Kafka start one.
    stage.patient(simple.find_coordinator(stage.group, kind=TRANSACTION), 4)
    return producer.InitProducerIdRequest(
        transactional_id=stage.group,
        transaction_timeout_ms=TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )


def add_partitions_to_txn(stage: Stage) -> Any:
    topic = producer.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return producer.AddPartitionsToTxnRequest(
        **{f"v3_and_below_{name}": value for name, value in stage.transaction.items()},
        v3_and_below_topics=[topic(name=stage.topic, partitions=[0])],
    )


def add_offsets_to_txn(stage: Stage) -> Any:
    return producer.AddOffsetsToTxnRequest(**stage.transaction, group_id=stage.group)


def txn_offset_commit(stage: Stage) -> Any:
    stage.patient(add_offsets_to_txn(stage), 4)
    message = producer.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = message.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=0, committed_metadata=""
    )
    return producer.TxnOffsetCommitRequest(
        **stage.transaction,
        group_id=stage.group,
        generation_id=-1,
        member_id="",
        topics=[message(name=stage.topic, partitions=[partition])],
    )


def end_txn(stage: Stage) -> Any:
    return producer.EndTxnRequest(**stage.transaction, committed=True)


def write_markers(stage: Stage) -> Any:
    message = producer.WriteTxnMarkersRequest.WritableTxnMarker
    topic = message.WritableTxnMarkerTopic(name=stage.topic, partition_indexes=[0])
    transaction = stage.transaction
    marker = message(
        producer_id=transaction["producer_id"],
        producer_epoch=transaction["producer_epoch"],
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=0,
        transaction_version=0,
    )
    return producer.WriteTxnMarkersRequest(markers=[marker])


def describe_transactions(stage: Stage) -> Any:
    assert stage.transaction
    return admin.DescribeTransactionsRequest(transactional_ids=[stage.group])


def list_transactions(stage: Stage) -> Any:
    assert stage.transaction
    return admin.ListTransactionsRequest(state_filters=[], producer_id_filters=[])


# ---- all of them -----------------------------------------------------------------------------

ASKED: dict[int, Callable[[Stage], Any]] = {
    0: lambda s: produce_request(s.topic, {0: build_batch(numbered(3))}, topic_id=s.topic_id),
    1: lambda s: fetch_request(s.topic, {0: 0}, topic_id=s.topic_id),
    2: lambda s: list_offsets(s.topic, {0: LATEST}),
    3: metadata,
    8: offset_commit,
    9: offset_fetch,
    10: lambda s: simple.find_coordinator(s.group),
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    18: lambda _: ApiVersionsRequest(client_software_name="x", client_software_version="1"),
    19: lambda s: simple.create_topics(f"{s.topic}-made"),
    20: lambda s: simple.delete_topic(s.topic),
    21: lambda s: simple.delete_records(s.topic, -1),
    22: init_producer_id,
    23: lambda s: simple.offset_for_epoch(s.topic, 0),
    24: add_partitions_to_txn,
    25: add_offsets_to_txn,
    26: end_txn,
    27: write_markers,
    28: txn_offset_commit,
    29: lambda _: admin.DescribeAclsRequest(**FILTER),
    30: create_acls,
    31: delete_acls,
    32: lambda s: simple.describe_configs(s.topic, everything=True),
    33: lambda s: simple.alter_configs(s.topic, {"retention.ms": "60000"}),
    35: lambda s: simple.describe_log_dirs(s.topic),
    37: lambda s: simple.create_partitions(s.topic, 2),
    42: delete_groups,
    43: elect_leaders,
    44: lambda s: simple.change_configs(s.topic, [("retention.ms", simple.SET, "60000")]),
    45: reassign,
    46: lambda _: admin.ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None),
    47: offset_delete,
    48: describe_quotas,
    49: alter_quotas,
    50: describe_scram,
    51: alter_scram,
    57: update_features,
    60: lambda _: admin.DescribeClusterRequest(
        include_cluster_authorized_operations=True, endpoint_type=1, include_fenced_brokers=False
    ),
    61: describe_producers,
    65: describe_transactions,
    66: list_transactions,
    68: consumer_heartbeat,
    69: consumer_describe,
    74: lambda _: admin.ListConfigResourcesRequest(resource_types=[2]),
    75: lambda s: simple.describe_partitions(s.topic),
    76: share_heartbeat,
    77: share_describe,
    78: lambda s: share_member(s).fetch_request(),
    79: lambda s: share_member(s).acknowledge_request((0, 2, [ACCEPT])),
    90: share_offsets,
    91: alter_share_offsets,
    92: delete_share_offsets,
}
