"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from kafka.protocol.admin import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
)

from penstock.broker.broker import DEFAULT_PARTITIONS, Broker
from penstock.broker.errors import InvalidConfigError, InvalidReplicationError
from penstock.broker.topic import Topic
from penstock.broker.topic_config import SETTINGS, TopicConfig
from penstock.errors import PenstockError
from penstock.kafka.call import NODE_ID, Call
from penstock.kafka.errors import Code
from penstock.kafka.outcome import (
    DONE,
    Outcome,
    RefusedError,
    attempt,
    failure,
    reply_when_durable,
)
from penstock.limits import PARTITIONS_PER_CREATION_MAX
from penstock.wire.codec import Message

_UNSET = -1
_DYNAMIC_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5


# -- CreateTopics


class Creation(NamedTuple):
    """What became of one topic of the request."""

    name: str
    outcome: Outcome
    topic_id: UUID | None = None
    partitions: int = _UNSET
    config: TopicConfig | None = None


async def create_topics(call: Call, request: Message) -> Message | None:
    """Make topics, or say whether they could be made."""
    counts = Counter([topic.name async for topic in call.each(request.topics)])
    if (
        sum(max(0, _partition_count(topic)) for topic in request.topics)
        > PARTITIONS_PER_CREATION_MAX
    ):
        too_many = Outcome(
            Code.POLICY_VIOLATION,
            f"more than {PARTITIONS_PER_CREATION_MAX} partitions are too many for one request",
        )
        return await _created(call, [Creation(name, too_many) for name in counts], DONE)
    made = [
        _create(call.context.broker, topic, validate_only=request.validate_only)
        async for topic in call.each(request.topics)
        if counts[topic.name] == 1
    ]
    made += [Creation(name, _twice("create", name)) for name, n in counts.items() if n > 1]
    if not any(item.topic_id for item in made):
        return await _created(call, made, DONE)
    reply_when_durable(call, partial(_created, call, made))
    return None


def _create(broker: Broker, wanted: Message, *, validate_only: bool) -> Creation:
    try:
        partitions = _partition_count(wanted)
        overrides = _overrides(wanted)
        config = broker.plan_topic(wanted.name, partitions, overrides)
        _check_replication(wanted)
        if validate_only:
            return Creation(wanted.name, DONE, None, partitions, config)
        topic = broker.create_topic(wanted.name, partitions, overrides)
    except (PenstockError, OSError) as error:
        return Creation(wanted.name, failure(error))
    return Creation(wanted.name, DONE, topic.entry.id, partitions, config)


def _partition_count(wanted: Message) -> int:
    count: int = wanted.num_partitions
    if wanted.assignments:
        return len(wanted.assignments)
    return DEFAULT_PARTITIONS if count == _UNSET else count


def _overrides(wanted: Message) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for config in wanted.configs:
        if config.value is None:
            raise InvalidConfigError(f"create topic {wanted.name}", f"{config.name} has no value")
        overrides[config.name] = config.value
    return overrides


def _check_replication(wanted: Message) -> None:
    operation = f"create topic {wanted.name}"
    if not wanted.assignments:
        if wanted.replication_factor not in (_UNSET, 1):
            raise InvalidReplicationError(
                operation,
                f"replication factor {wanted.replication_factor} on one broker",
                "ask for 1, or -1 for the default",
            )
        return
    if wanted.num_partitions != _UNSET or wanted.replication_factor != _UNSET:
        raise RefusedError(
            Code.INVALID_REQUEST,
            operation,
            "with manual assignments, partitions and replication factor must be -1",
        )
    numbers = sorted(assignment.partition_index for assignment in wanted.assignments)
    if numbers != list(range(len(numbers))):
        raise RefusedError(
            Code.INVALID_REPLICA_ASSIGNMENT, operation, "partitions must be numbered from 0 on"
        )
    _check_assignments(operation, wanted.assignments)


def _check_assignments(operation: str, assignments: Sequence[Message]) -> None:
    for assignment in assignments:
        if assignment.broker_ids != [NODE_ID]:
            raise RefusedError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                operation,
                f"replicas {assignment.broker_ids}",
                f"the only broker is {NODE_ID}",
            )


async def _created(call: Call, made: list[Creation], durable: Outcome) -> Message:
    return CreateTopicsResponse(topics=[_creation(item, durable) async for item in call.each(made)])


def _creation(item: Creation, durable: Outcome) -> Message:
    outcome = durable if item.topic_id else item.outcome
    message = CreateTopicsResponse.CreatableTopicResult
    if not outcome.ok:
        return message(
            name=item.name,
            error_code=outcome.code,
            error_message=outcome.message,
            configs=[],
        )
    assert item.config is not None
    return message(
        name=item.name,
        topic_id=item.topic_id,
        error_code=Code.NONE,
        error_message=None,
        num_partitions=item.partitions,
        replication_factor=1,
        configs=_configs(item.config),
    )


def _configs(config: TopicConfig) -> list[Message]:
    return [
        CreateTopicsResponse.CreatableTopicResult.CreatableTopicConfigs(
            name=name,
            value=config.value(name),
            read_only=False,
            config_source=_DYNAMIC_TOPIC_CONFIG if name in config.overrides else _DEFAULT_CONFIG,
            is_sensitive=False,
        )
        for name in SETTINGS
    ]


# -- DeleteTopics


class Deletion(NamedTuple):
    """What became of one topic of the request."""

    name: str | None
    topic_id: UUID | None
    outcome: Outcome


async def delete_topics(call: Call, request: Message) -> Message | None:
    """Remove topics, by name or id."""
    if call.version < 6:
        wanted = [(name, None) async for name in call.each(request.topic_names)]
    else:
        wanted = [(topic.name, topic.topic_id) async for topic in call.each(request.topics)]
    gone: list[Deletion] = []
    async for (name, topic_id), count in call.each(Counter(wanted).items()):
        if count > 1:
            outcome = _twice("delete", str(name or topic_id))
            gone.append(Deletion(name, topic_id, outcome))
        else:
            gone.append(_delete(call.context.broker, name, topic_id))
    if not any(item.outcome.ok for item in gone):
        return await _deleted(call, gone, DONE)
    reply_when_durable(call, partial(_deleted, call, gone))
    return None


def _delete(broker: Broker, name: str | None, topic_id: UUID | None) -> Deletion:
    try:
        topic = _find(broker, name, topic_id)
        broker.delete_topic(topic)
    except (PenstockError, OSError) as error:
        return Deletion(name, topic_id, failure(error))
    return Deletion(topic.name, topic.entry.id, DONE)


def _find(broker: Broker, name: str | None, topic_id: UUID | None) -> Topic:
    if name is not None and topic_id is None:
        return broker.topic(name)
    if name is not None or topic_id is None:
        raise RefusedError(
            Code.INVALID_REQUEST, "delete a topic", "give its name or its id, and not both"
        )
    return broker.topic_by_id(topic_id)


async def _deleted(call: Call, gone: list[Deletion], durable: Outcome) -> Message:
    responses = []
    async for name, topic_id, done in call.each(gone):
        outcome = durable if done.ok else done
        responses.append(
            DeleteTopicsResponse.DeletableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=outcome.code,
                error_message=outcome.message,
            )
        )
    return DeleteTopicsResponse(responses=responses)


# -- CreatePartitions


async def create_partitions(call: Call, request: Message) -> Message | None:
    """Add partitions to topics, or say whether they could be added."""
    counts = Counter([topic.name async for topic in call.each(request.topics)])
    grown: list[tuple[str, Outcome]] = []
    async for wanted in call.each(request.topics):
        if counts[wanted.name] == 1:
            action = _growth(call.context.broker, wanted, validate_only=request.validate_only)
            grown.append((wanted.name, attempt(action)))
    grown += [(name, _twice("grow", name)) for name, count in counts.items() if count > 1]
    if request.validate_only or not any(outcome.ok for _, outcome in grown):
        return await _grown(call, grown, DONE)
    reply_when_durable(call, partial(_grown, call, grown))
    return None


def _growth(broker: Broker, wanted: Message, *, validate_only: bool) -> Callable[[], None]:
    def grow() -> None:
        topic = broker.topic(wanted.name)
        broker.check_partitions(topic, wanted.count)
        if wanted.assignments is not None:
            operation = f"give {topic.name} {wanted.count} partitions"
            if len(wanted.assignments) != wanted.count - len(topic.partitions):
                raise RefusedError(
                    Code.INVALID_REPLICA_ASSIGNMENT,
                    operation,
                    f"{len(wanted.assignments)} assignments do not fit",
                    f"it has {len(topic.partitions)} partitions now",
                )
            _check_assignments(operation, wanted.assignments)
        if not validate_only:
            broker.add_partitions(topic, wanted.count)

    return grow


async def _grown(call: Call, grown: list[tuple[str, Outcome]], durable: Outcome) -> Message:
    results = []
    async for name, done in call.each(grown):
        outcome = durable if done.ok else done
        results.append(
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=name, error_code=outcome.code, error_message=outcome.message
            )
        )
    return CreatePartitionsResponse(results=results)


def _twice(verb: str, name: str) -> Outcome:
    return Outcome(Code.INVALID_REQUEST, f"{verb} topic {name[:60]}: it is named more than once")
