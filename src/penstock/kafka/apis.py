"""The table of requests this broker answers: what is not in it is not advertised.

The ranges are those of Kafka 4.3, so that clients take the broker for one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from kafka.protocol import admin, consumer, metadata, producer

from penstock.kafka import (
    active_producers,
    api_versions,
    cluster,
    config_resources,
    configs,
    consumer_groups,
    features,
    fetch,
    group_offsets,
    groups,
    log_dirs,
    markers,
    offset_commit,
    offsets,
    produce,
    producer_ids,
    quotas,
    records,
    replicas,
    security,
    share_acknowledging,
    share_fetch,
    share_groups,
    share_offsets,
    topics,
    transactions,
)
from penstock.kafka.call import Call
from penstock.kafka.pace import LargeRequest, Made
from penstock.limits import LARGE_REQUEST_BYTES_MIN
from penstock.wire import codec
from penstock.wire import share_group_messages as share
from penstock.wire.codec import Message, MessageClass
from penstock.wire.consumer_group_messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)

Handler = Callable[[Call, Message], Made]


class Api(NamedTuple):
    """One row: a request, its versions, and who answers."""

    request: MessageClass
    lowest: int
    highest: int
    handle: Callable[[Call], None]
    advertised_lowest: int
    flexible_from: int


def _plain(request: MessageClass, lowest: int, highest: int, handler: Handler) -> Api:
    """A request that is decoded and answered by the schema codec."""

    def handle(call: Call) -> None:
        pace = call.context.pace
        if len(call.frame) < LARGE_REQUEST_BYTES_MIN:
            pace.handled(call, handler(call, codec.decode(request, call.body, call.version)))
        else:
            decode = partial(codec.decode_bounded, request, call.body, call.version)
            pace.take(LargeRequest(call, decode, partial(handler, call)))

    return _api(request, lowest, highest, handle, advertised_lowest=lowest)


def _api(
    request: MessageClass,
    lowest: int,
    highest: int,
    handle: Callable[[Call], None],
    *,
    advertised_lowest: int,
) -> Api:
    versions = range(lowest, highest + 1)
    flexible_from = next((v for v in versions if codec.is_flexible(request, v)), highest + 1)
    return Api(request, lowest, highest, handle, advertised_lowest, flexible_from)


APIS: Final[dict[int, Api]] = {
    # Advertised from 0 although 0-2 are refused: librdkafka sends uncompressed otherwise (KAFKA-18659).
    0: _api(producer.ProduceRequest, 3, 13, produce.handle, advertised_lowest=0),
    1: _api(consumer.FetchRequest, 4, 18, fetch.handle, advertised_lowest=4),
    2: _plain(consumer.ListOffsetsRequest, 1, 11, offsets.list_offsets),
    3: _plain(metadata.MetadataRequest, 0, 13, cluster.metadata),
    8: _api(consumer.OffsetCommitRequest, 2, 10, offset_commit.handle, advertised_lowest=2),
    9: _plain(consumer.OffsetFetchRequest, 1, 10, group_offsets.offset_fetch),
    10: _plain(metadata.FindCoordinatorRequest, 0, 6, cluster.find_coordinator),
    11: _plain(consumer.JoinGroupRequest, 0, 9, groups.join_group),
    12: _plain(consumer.HeartbeatRequest, 0, 4, groups.heartbeat),
    13: _plain(consumer.LeaveGroupRequest, 0, 5, groups.leave_group),
    14: _plain(consumer.SyncGroupRequest, 0, 5, groups.sync_group),
    15: _plain(admin.DescribeGroupsRequest, 0, 6, groups.describe_groups),
    16: _plain(admin.ListGroupsRequest, 0, 5, groups.list_groups),
    18: _plain(metadata.ApiVersionsRequest, 0, 4, api_versions.api_versions),
    19: _plain(admin.CreateTopicsRequest, 2, 7, topics.create_topics),
    20: _plain(admin.DeleteTopicsRequest, 1, 6, topics.delete_topics),
    21: _plain(admin.DeleteRecordsRequest, 0, 2, records.delete_records),
    # One more than Kafka 4.3 offers: what that brings is of no use to who does not ask for it.
    22: _plain(producer.InitProducerIdRequest, 0, 6, producer_ids.init_producer_id),
    23: _plain(consumer.OffsetForLeaderEpochRequest, 2, 4, offsets.offset_for_leader_epoch),
    24: _plain(producer.AddPartitionsToTxnRequest, 0, 3, transactions.add_partitions_to_txn),
    25: _plain(producer.AddOffsetsToTxnRequest, 0, 4, transactions.add_offsets_to_txn),
    26: _plain(producer.EndTxnRequest, 0, 5, transactions.end_txn),
    27: _plain(producer.WriteTxnMarkersRequest, 1, 2, markers.write_txn_markers),
    28: _plain(producer.TxnOffsetCommitRequest, 0, 5, transactions.txn_offset_commit),
    29: _plain(admin.DescribeAclsRequest, 1, 3, security.describe_acls),
    30: _plain(admin.CreateAclsRequest, 1, 3, security.create_acls),
    31: _plain(admin.DeleteAclsRequest, 1, 3, security.delete_acls),
    32: _plain(admin.DescribeConfigsRequest, 1, 4, configs.describe_configs),
    33: _plain(admin.AlterConfigsRequest, 0, 2, configs.alter_configs),
    35: _plain(admin.DescribeLogDirsRequest, 1, 5, log_dirs.describe_log_dirs),
    37: _plain(admin.CreatePartitionsRequest, 0, 3, topics.create_partitions),
    42: _plain(admin.DeleteGroupsRequest, 0, 2, groups.delete_groups),
    43: _plain(admin.ElectLeadersRequest, 0, 2, replicas.elect_leaders),
    44: _plain(admin.IncrementalAlterConfigsRequest, 0, 1, configs.incremental_alter_configs),
    45: _plain(
        admin.AlterPartitionReassignmentsRequest, 0, 1, replicas.alter_partition_reassignments
    ),
    46: _plain(
        admin.ListPartitionReassignmentsRequest, 0, 0, replicas.list_partition_reassignments
    ),
    47: _plain(consumer.OffsetDeleteRequest, 0, 0, group_offsets.offset_delete),
    48: _plain(admin.DescribeClientQuotasRequest, 0, 1, quotas.describe_client_quotas),
    49: _plain(admin.AlterClientQuotasRequest, 0, 1, quotas.alter_client_quotas),
    50: _plain(
        admin.DescribeUserScramCredentialsRequest, 0, 0, security.describe_user_scram_credentials
    ),
    51: _plain(admin.AlterUserScramCredentialsRequest, 0, 0, security.alter_user_scram_credentials),
    57: _plain(admin.UpdateFeaturesRequest, 0, 2, features.update_features),
    60: _plain(admin.DescribeClusterRequest, 0, 2, cluster.describe_cluster),
    61: _plain(admin.DescribeProducersRequest, 0, 0, active_producers.describe_producers),
    65: _plain(admin.DescribeTransactionsRequest, 0, 0, transactions.describe_transactions),
    66: _plain(admin.ListTransactionsRequest, 0, 2, transactions.list_transactions),
    68: _plain(ConsumerGroupHeartbeatRequest, 0, 1, consumer_groups.heartbeat),
    69: _plain(ConsumerGroupDescribeRequest, 0, 1, consumer_groups.describe),
    74: _plain(admin.ListConfigResourcesRequest, 0, 1, config_resources.list_config_resources),
    75: _plain(admin.DescribeTopicPartitionsRequest, 0, 0, cluster.describe_topic_partitions),
    76: _plain(share.ShareGroupHeartbeatRequest, 1, 1, share_groups.heartbeat),
    77: _plain(share.ShareGroupDescribeRequest, 1, 1, share_groups.describe),
    78: _plain(share.ShareFetchRequest, 1, 2, share_fetch.share_fetch),
    79: _plain(share.ShareAcknowledgeRequest, 1, 2, share_acknowledging.share_acknowledge),
    90: _plain(share.DescribeShareGroupOffsetsRequest, 0, 1, share_offsets.describe),
    91: _plain(share.AlterShareGroupOffsetsRequest, 0, 0, share_offsets.alter),
    92: _plain(share.DeleteShareGroupOffsetsRequest, 0, 0, share_offsets.delete),
}
