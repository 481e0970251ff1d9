"""Administrative requests as the bare protocol knows them, for one topic."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.admin import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import InitProducerIdRequest

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
TIMEOUT = 30_000


def create_topics(
    *names: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str | None] | None = None,
    validate_only: bool = False,
) -> Any:
    topic = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[
            topic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                assignments=[
                    topic.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
                    for index, ids in (assignments or {}).items()
                ],
                configs=[
                    topic.CreatableTopicConfig(name=key, value=value)
                    for key, value in (configs or {}).items()
                ],
            )
            for name in names
        ],
        timeout_ms=TIMEOUT,
        validate_only=validate_only,
    )


def delete_topic(name: str | None = None, topic_id: uuid.UUID | None = None) -> Any:
    state = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id or uuid.UUID(int=0))
    return DeleteTopicsRequest(topics=[state], topic_names=[name], timeout_ms=TIMEOUT)


def create_partitions(
    topic: str,
    count: int,
    *,
    assignments: Sequence[Sequence[int]] | None = None,
    validate_only: bool = False,
) -> Any:
    new = CreatePartitionsRequest.CreatePartitionsTopic
    given = None
    if assignments is not None:
        given = [new.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments]
    return CreatePartitionsRequest(
        topics=[new(name=topic, count=count, assignments=given)],
        timeout_ms=TIMEOUT,
        validate_only=validate_only,
    )


def delete_records(topic: str, offset: int, partition: int = 0) -> Any:
    deleted = DeleteRecordsRequest.DeleteRecordsTopic
    place = deleted.DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(
        topics=[deleted(name=topic, partitions=[place])], timeout_ms=TIMEOUT
    )


def describe_configs(
    name: str, *, kind: int = TOPIC, keys: Sequence[str] | None = None, everything: bool = False
) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind,
        resource_name=name,
        configuration_keys=None if keys is None else list(keys),
    )
    return DescribeConfigsRequest(
        resources=[resource], include_synonyms=everything, include_documentation=everything
    )


def alter_configs(
    name: str, configs: Mapping[str, str | None], *, kind: int = TOPIC, validate_only: bool = False
) -> Any:
    resource = AlterConfigsRequest.AlterConfigsResource
    entries = [resource.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    changed = resource(resource_type=kind, resource_name=name, configs=entries)
    return AlterConfigsRequest(resources=[changed], validate_only=validate_only)


def change_configs(
    name: str,
    changes: Sequence[tuple[str, int, str | None]],
    *,
    kind: int = TOPIC,
    validate_only: bool = False,
) -> Any:
    """IncrementalAlterConfigs: each change is a setting, an operation and a value."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    entries = [
        resource.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    changed = resource(resource_type=kind, resource_name=name, configs=entries)
    return IncrementalAlterConfigsRequest(resources=[changed], validate_only=validate_only)


def describe_log_dirs(topic: str, partitions: Sequence[int] = (0,)) -> Any:
    wanted = DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=list(partitions))
    return DescribeLogDirsRequest(topics=[wanted])


def describe_partitions(
    *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    request = DescribeTopicPartitionsRequest
    start = request.Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None
    return request(
        topics=[request.TopicRequest(name=name) for name in topics],
        response_partition_limit=limit,
        cursor=start,
    )


def offset_for_epoch(topic: str, epoch: int, *, current: int = -1, partition: int = 0) -> Any:
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    place = wanted.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[wanted(topic=topic, partitions=[place])]
    )


def find_coordinator(key: str, *, kind: int = 0) -> Any:
    return FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])


def init_producer_id() -> Any:
    return InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
