"""Metadata (3), FindCoordinator (10), DescribeCluster (60), DescribeTopicPartitions (75).

The cluster is one node that leads every partition and coordinates everything.
"""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin import DescribeClusterResponse, DescribeTopicPartitionsResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from penstock.broker.broker import DEFAULT_PARTITIONS
from penstock.broker.errors import UnknownTopicError
from penstock.broker.topic import Topic, check_name
from penstock.errors import DamagedLogError, PenstockError
from penstock.kafka.call import NODE_ID, Call
from penstock.kafka.errors import Code
from penstock.kafka.outcome import DONE, Outcome, failure, reply_when_durable
from penstock.wire.codec import Message, MessageClass

_NO_LEADER = -1
# What Kafka reports when there is no authorizer: every operation the resource knows.
_TOPIC_OPERATIONS: Final = frozenset({3, 4, 5, 6, 7, 8, 10, 11})
_CLUSTER_OPERATIONS: Final = frozenset({5, 7, 8, 9, 10, 11, 12})
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_KINDS: Final = {_SHARE: "share groups"}
_BROKERS, _CONTROLLERS = 1, 2
_PARTITIONS_MAX = 2000  # Kafka's max.request.partition.size.limit


def advertised_address(call: Call) -> tuple[str, int]:
    """Where clients find this node: as told, or where this one found it."""
    return call.context.advertised or (call.peer.local_host, call.peer.local_port)


# -- Metadata


async def metadata(call: Call, request: Message) -> Message | None:
    """Topics and where they are; topics that are missed are made if the client allows it."""
    if request.topics is None or (call.version == 0 and not request.topics):
        known = call.context.broker.topics()
        return _metadata(
            call, request, [await _topic(call, request, t) async for t in call.each(known)]
        )
    found: list[Message] = []
    made: list[Topic] = []
    # Each once: an answer can be far larger than the name.
    wanted = {(t.name, t.topic_id): None async for t in call.each(request.topics)}
    async for name, topic_id in call.each(wanted):
        try:
            if name is None:
                topic = call.context.broker.topic_by_id(topic_id)
            else:
                topic = _find_or_make(call, request, name, made)
            found.append(await _topic(call, request, topic))
        except (PenstockError, OSError) as error:
            found.append(_missing(call, name, topic_id, failure(error)))
    if not made:
        return _metadata(call, request, found)
    reply_when_durable(
        call, lambda durable: _metadata(call, request, _checked(call, found, made, durable))
    )
    return None


def _find_or_make(call: Call, request: Message, name: str, made: list[Topic]) -> Topic:
    broker = call.context.broker
    try:
        return broker.topic(name)
    except UnknownTopicError:
        check_name(name)
        if not request.allow_auto_topic_creation:
            raise
    topic = broker.create_topic(name, DEFAULT_PARTITIONS, {})
    made.append(topic)
    return topic


def _checked(
    call: Call, found: list[Message], made: list[Topic], durable: Outcome
) -> list[Message]:
    """The topics to answer with, once it is known whether the new ones will stay."""
    if durable.ok:
        return found
    names = {topic.name for topic in made}
    return [
        _missing(call, entry.name, None, durable) if entry.name in names else entry
        for entry in found
    ]


def _metadata(call: Call, request: Message, topics: list[Message]) -> Message:
    host, port = advertised_address(call)
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=NODE_ID, host=host, port=port)],
        cluster_id=call.context.broker.cluster_id,
        controller_id=NODE_ID,
        topics=topics,
        authorized_operations=(
            _CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else None
        ),
    )


async def _topic(call: Call, request: Message, topic: Topic) -> Message:
    message = MetadataResponse.MetadataResponseTopic
    return message(
        name=topic.name,
        topic_id=topic.entry.id,
        partitions=[
            _partition(call, message.MetadataResponsePartition, topic, number)
            async for number in call.each(range(len(topic.partitions)))
        ],
        authorized_operations=(
            _TOPIC_OPERATIONS if request.include_topic_authorized_operations else None
        ),
    )


def _partition(call: Call, message: MessageClass, topic: Topic, number: int) -> Message:
    if isinstance(topic.partitions[number], DamagedLogError):
        # Without a leader, clients leave this partition alone and go on with the others.
        return message(
            error_code=Code.LEADER_NOT_AVAILABLE,
            partition_index=number,
            leader_id=_NO_LEADER,
            leader_epoch=call.context.broker.epoch,
            replica_nodes=[NODE_ID],
            isr_nodes=[],
            offline_replicas=[NODE_ID],
        )
    return message(
        partition_index=number,
        leader_id=NODE_ID,
        leader_epoch=call.context.broker.epoch,
        replica_nodes=[NODE_ID],
        isr_nodes=[NODE_ID],
        offline_replicas=[],
    )


def _missing(call: Call, name: str | None, topic_id: object, outcome: Outcome) -> Message:
    code = outcome.code
    if name is None:
        code = Code.UNKNOWN_TOPIC_ID
        # Before version 12 a name cannot be null.
        name = None if call.version >= 12 else ""
    return MetadataResponse.MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, partitions=[]
    )


# -- DescribeCluster


def describe_cluster(call: Call, request: Message) -> Message:
    """This node, as a broker. It has no controller endpoint."""
    outcome = DONE
    if request.endpoint_type == _CONTROLLERS:
        outcome = Outcome(
            Code.MISMATCHED_ENDPOINT_TYPE, "controllers were asked for, and this is a broker"
        )
    elif request.endpoint_type != _BROKERS:
        outcome = Outcome(
            Code.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {request.endpoint_type} is unknown"
        )
    host, port = advertised_address(call)
    node = DescribeClusterResponse.DescribeClusterBroker(broker_id=NODE_ID, host=host, port=port)
    return DescribeClusterResponse(
        error_code=outcome.code,
        error_message=outcome.message,
        endpoint_type=_BROKERS,
        cluster_id=call.context.broker.cluster_id,
        controller_id=NODE_ID,
        brokers=[node] if outcome.ok else [],
        authorized_operations=(
            _CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else None
        ),
    )


# -- FindCoordinator


async def find_coordinator(call: Call, request: Message) -> Message:
    """Who looks after groups and transactions: this node."""
    fields = _coordinator(call, request.key_type)
    if call.version < 4:
        return FindCoordinatorResponse(**fields)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(key=key, **fields)
            async for key in call.each(request.coordinator_keys)
        ]
    )


def _coordinator(call: Call, key_type: int) -> dict[str, object]:
    if key_type in (_GROUP, _TRANSACTION):
        host, port = advertised_address(call)
        return {"error_code": Code.NONE, "node_id": NODE_ID, "host": host, "port": port}
    return {
        "error_code": Code.INVALID_REQUEST,
        "error_message": f"{_KINDS.get(key_type, 'such coordinators')} are not available yet",
        "node_id": -1,
        "host": "",
        "port": -1,
    }


# -- DescribeTopicPartitions


async def describe_topic_partitions(call: Call, request: Message) -> Message:
    """Topics by name, as many partitions as fit, and where to go on."""
    broker = call.context.broker
    cursor = request.cursor
    wanted = request.topics or broker.topics()
    names = sorted({topic.name async for topic in call.each(wanted)})
    left = max(1, min(request.response_partition_limit, _PARTITIONS_MAX))
    if cursor is not None and cursor.partition_index < 0:
        return DescribeTopicPartitionsResponse(
            topics=[_undescribed(name, Code.INVALID_REQUEST) async for name in call.each(names)]
        )
    described: list[Message] = []
    async for name in call.each(names):
        if cursor is not None and name < cursor.topic_name:
            continue
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        try:
            check_name(name)
            topic = broker.topic(name)
        except PenstockError as error:
            described.append(_undescribed(name, failure(error).code))
            continue
        end = min(len(topic.partitions), first + left)
        if left == 0 and first < len(topic.partitions):
            return _described(described, name, first)
        described.append(_description(call, topic, first, end))
        left -= max(0, end - first)
        if end < len(topic.partitions):
            return _described(described, name, end)
    return DescribeTopicPartitionsResponse(topics=described)


def _described(topics: list[Message], next_topic: str, next_partition: int) -> Message:
    return DescribeTopicPartitionsResponse(
        topics=topics,
        next_cursor=DescribeTopicPartitionsResponse.Cursor(
            topic_name=next_topic, partition_index=next_partition
        ),
    )


def _description(call: Call, topic: Topic, first: int, end: int) -> Message:
    message = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    partitions = [
        _partition(call, message.DescribeTopicPartitionsResponsePartition, topic, number)
        for number in range(first, end)
    ]
    for partition in partitions:
        partition.eligible_leader_replicas = partition.last_known_elr = []
    return message(
        name=topic.name,
        topic_id=topic.entry.id,
        partitions=partitions,
        # Unlike in Metadata, kafka-python leaves this field a number.
        topic_authorized_operations=sum(1 << operation for operation in _TOPIC_OPERATIONS),
    )


def _undescribed(name: str, code: Code) -> Message:
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, partitions=[]
    )
