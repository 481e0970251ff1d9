"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from kafka.protocol.admin import (
    AlterConfigsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)

from penstock.broker.broker import Broker
from penstock.broker.broker_config import BROKER_NAMES, BROKER_SETTINGS
from penstock.broker.errors import InvalidConfigError
from penstock.broker.group_config import GROUP_SETTINGS, GroupConfig
from penstock.broker.topic import Topic, check_name
from penstock.broker.topic_config import SETTINGS, Setting
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
from penstock.wire.codec import Message, MessageClass

_TOPIC, _BROKER, _GROUP = 2, 4, 32
_DYNAMIC_TOPIC_CONFIG, _DEFAULT_CONFIG, _DYNAMIC_GROUP_CONFIG = 1, 5, 8
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_LIST: Final = SETTINGS["cleanup.policy"].kind.code
# Settings that Kafka's brokers have no default for under a name of their own.
_ONLY_OF_GROUPS: Final = frozenset(
    {"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"}
)
_RESULT: Final = DescribeConfigsResponse.DescribeConfigsResult
_ENTRY: Final = _RESULT.DescribeConfigsResourceResult


# -- DescribeConfigs


async def describe_configs(call: Call, request: Message) -> Message:
    """Every setting with its value and where that comes from."""
    # Each once: thirteen bytes of a request are worth three thousand of the answer.
    wanted = {
        (r.resource_type, r.resource_name, _keys(r)): r async for r in call.each(request.resources)
    }
    return DescribeConfigsResponse(
        results=[
            _describe(call.context.broker, request, each)
            async for each in call.each(wanted.values())
        ]
    )


def _keys(wanted: Message) -> tuple[str, ...] | None:
    return None if wanted.configuration_keys is None else tuple(wanted.configuration_keys)


def _describe(broker: Broker, request: Message, wanted: Message) -> Message:
    outcome = DONE
    entries: list[Message] = []
    try:
        if wanted.resource_type == _TOPIC:
            entries = _topic_entries(request, wanted, _topic(broker, wanted.resource_name))
        elif wanted.resource_type == _GROUP:
            config = broker.groups.configs.of(_group(wanted.resource_name))
            entries = _group_entries(request, wanted, config)
        else:
            _check_broker(wanted)
            entries = _broker_entries(request, wanted)
    except PenstockError as error:
        outcome = failure(error)
    return _RESULT(
        error_code=outcome.code,
        error_message=outcome.message or "",  # Kafka's way to say that there is none, here
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=entries,
    )


def _topic(broker: Broker, name: str) -> Topic:
    check_name(name)
    return broker.topic(name)


def _group(name: str) -> str:
    """Groups need not exist to have settings."""
    if not name:
        raise RefusedError(Code.INVALID_REQUEST, "use a group's settings", "it has no name")
    return name


def _check_broker(resource: Message) -> None:
    operation = f"use the settings of {resource.resource_name[:60]!r}"
    if resource.resource_type != _BROKER:
        raise RefusedError(
            Code.INVALID_REQUEST,
            operation,
            f"resources of type {resource.resource_type} have none here",
        )
    if resource.resource_name not in ("", str(NODE_ID)):
        raise RefusedError(Code.INVALID_REQUEST, operation, f"the only broker is {NODE_ID}")


def _wanted_names(wanted: Message, names: Iterable[str]) -> list[str]:
    """The settings asked for; none means all."""
    keys = wanted.configuration_keys
    return [name for name in names if name in keys] if keys else list(names)


def _topic_entries(request: Message, wanted: Message, topic: Topic) -> list[Message]:
    entries: list[Message] = []
    for name in _wanted_names(wanted, SETTINGS):
        setting = SETTINGS[name]
        synonyms = [(BROKER_NAMES.get(name, name), setting.default, _DEFAULT_CONFIG)]
        if name in topic.config.overrides:
            synonyms.insert(0, (name, topic.config.value(name), _DYNAMIC_TOPIC_CONFIG))
        entries.append(_entry(request, name, setting, synonyms, read_only=False))
    return entries


def _group_entries(request: Message, wanted: Message, config: GroupConfig) -> list[Message]:
    entries: list[Message] = []
    for name in _wanted_names(wanted, GROUP_SETTINGS):
        setting = GROUP_SETTINGS[name]
        broker_name = name if name in _ONLY_OF_GROUPS else f"group.{name}"
        synonyms = [(broker_name, setting.default, _DEFAULT_CONFIG)]
        if name in config.overrides:
            synonyms.insert(0, (name, config.value(name), _DYNAMIC_GROUP_CONFIG))
        entries.append(_entry(request, name, setting, synonyms, read_only=False))
    return entries


def _broker_entries(request: Message, wanted: Message) -> list[Message]:
    entries: list[Message] = []
    for name in _wanted_names(wanted, BROKER_SETTINGS):
        setting = BROKER_SETTINGS[name]
        synonyms = [(name, setting.default, _DEFAULT_CONFIG)]
        entries.append(_entry(request, name, setting, synonyms, read_only=True))
    return entries


def _entry(
    request: Message,
    name: str,
    setting: Setting,
    synonyms: list[tuple[str, str, int]],
    *,
    read_only: bool,
) -> Message:
    """One setting; the first synonym is the one in force."""
    _, value, source = synonyms[0]
    shown = synonyms if request.include_synonyms else []
    return _ENTRY(
        name=name,
        value=value,
        read_only=read_only,
        config_source=source,
        is_sensitive=False,
        synonyms=[_ENTRY.DescribeConfigsSynonym(name=n, value=v, source=s) for n, v, s in shown],
        config_type=setting.kind.code,
        documentation=setting.help if request.include_documentation else None,
    )


# -- AlterConfigs and IncrementalAlterConfigs


class Alteration(NamedTuple):
    """What became of one resource of the request."""

    resource_type: int
    resource_name: str
    outcome: Outcome


class Configured(NamedTuple):
    """What has settings: a topic or a group."""

    name: str
    settings: Mapping[str, Setting]
    overrides: Mapping[str, str]


Change = Callable[[Configured, Message], dict[str, str]]


async def alter_configs(call: Call, request: Message) -> Message | None:
    """Replace all settings of a topic or a group."""
    return await _alter(call, request, _replacement, AlterConfigsResponse)


async def incremental_alter_configs(call: Call, request: Message) -> Message | None:
    """Change some settings of a topic or a group."""
    return await _alter(call, request, _increment, IncrementalAlterConfigsResponse)


async def _alter(
    call: Call, request: Message, change: Change, response_class: MessageClass
) -> Message | None:
    counts = Counter(
        [(r.resource_type, r.resource_name) async for r in call.each(request.resources)]
    )
    altered: list[Alteration] = []
    async for resource in call.each(request.resources):
        key = resource.resource_type, resource.resource_name
        if counts[key] == 1:
            action = partial(
                _configure, call.context.broker, resource, change, request.validate_only
            )
            altered.append(Alteration(*key, attempt(action)))
    twice = Outcome(Code.INVALID_REQUEST, "the resource is named more than once")
    altered += [Alteration(*key, twice) for key, count in counts.items() if count > 1]
    if request.validate_only or not any(item.outcome.ok for item in altered):
        return await _altered(call, response_class, altered, DONE)
    reply_when_durable(call, partial(_altered, call, response_class, altered))
    return None


def _configure(broker: Broker, resource: Message, change: Change, validate_only: bool) -> None:
    if resource.resource_type == _TOPIC:
        topic = _topic(broker, resource.resource_name)
        _check_changes(resource)
        known = Configured(topic.name, SETTINGS, topic.config.overrides)
        overrides = change(known, resource)
        if validate_only:
            broker.check_config(topic, overrides)
        else:
            broker.configure(topic, overrides)
    elif resource.resource_type == _GROUP:
        group, configs = _group(resource.resource_name), broker.groups.configs
        _check_changes(resource)
        known = Configured(group, GROUP_SETTINGS, configs.of(group).overrides)
        overrides = change(known, resource)
        if validate_only:
            configs.check(group, overrides)
        else:
            configs.configure(group, overrides)
    else:
        _check_broker(resource)
        _check_broker_stays(resource)


def _check_broker_stays(resource: Message) -> None:
    """What was never set can be taken back: kafka-reassign-partitions does so when it has verified."""
    if all(getattr(config, "config_operation", _SET) == _DELETE for config in resource.configs):
        return
    raise RefusedError(
        Code.INVALID_REQUEST,
        "alter the broker's settings",
        "they cannot be altered while it runs",
        "see `penstock serve --help`, or set the topic's",
    )


def _check_changes(resource: Message) -> None:
    operation = f"configure {resource.resource_name}"
    counts = Counter(config.name for config in resource.configs)
    for config in resource.configs:
        if counts[config.name] > 1:
            raise RefusedError(
                Code.INVALID_REQUEST, operation, f"{config.name} is named more than once"
            )


def _replacement(known: Configured, resource: Message) -> dict[str, str]:
    return {config.name: _value(known, config) for config in resource.configs}


def _value(known: Configured, config: Message) -> str:
    value: str | None = config.value
    if value is None:
        raise RefusedError(
            Code.INVALID_REQUEST, f"configure {known.name}", f"{config.name} has no value"
        )
    return value


def _increment(known: Configured, resource: Message) -> dict[str, str]:
    overrides = dict(known.overrides)
    for config in resource.configs:
        operation = config.config_operation
        if operation == _DELETE:
            overrides.pop(config.name, None)
        elif operation == _SET:
            overrides[config.name] = _value(known, config)
        elif operation in (_APPEND, _SUBTRACT):
            items = _items(known, overrides, config.name)
            given = [item.strip() for item in _value(known, config).split(",") if item.strip()]
            kept = [item for item in items if item not in given]
            if operation == _APPEND:
                kept = items + [item for item in given if item not in items]
            overrides[config.name] = ",".join(kept)
        else:
            raise RefusedError(
                Code.INVALID_REQUEST, f"configure {known.name}", f"operation {operation} is unknown"
            )
    return overrides


def _items(known: Configured, overrides: Mapping[str, str], name: str) -> list[str]:
    """The present value of a list."""
    setting = known.settings.get(name)
    if setting is None or setting.kind.code != _LIST:
        raise InvalidConfigError(
            f"configure {known.name}", f"{name} is not a list", "set it as a whole"
        )
    value = overrides.get(name, setting.default)
    return value.split(",") if value else []


async def _altered(
    call: Call, response_class: MessageClass, altered: list[Alteration], durable: Outcome
) -> Message:
    responses = []
    async for item in call.each(altered):
        outcome = durable if item.outcome.ok else item.outcome
        responses.append(
            response_class.AlterConfigsResourceResponse(
                error_code=outcome.code,
                error_message=outcome.message,
                resource_type=item.resource_type,
                resource_name=item.resource_name,
            )
        )
    return response_class(responses=responses)
