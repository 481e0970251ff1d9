"""ListConfigResources (74): what has settings that can be asked for or changed."""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin import ListConfigResourcesResponse

from penstock.kafka.call import NODE_ID, Call
from penstock.kafka.errors import Code
from penstock.wire.codec import Message

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_KNOWN: Final = (_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)


async def list_config_resources(call: Call, request: Message) -> Message:
    """Topics, groups with settings of their own, this node; loggers and client metrics have none."""
    # Version 0 is about client metrics alone.
    wanted = set(request.resource_types or _KNOWN) if call.version >= 1 else {_CLIENT_METRICS}
    if not wanted <= set(_KNOWN):
        return ListConfigResourcesResponse(error_code=Code.UNSUPPORTED_VERSION, config_resources=[])
    found: list[tuple[int, str]] = []
    if _TOPIC in wanted:
        found += [(_TOPIC, topic.name) for topic in call.context.broker.topics()]
    if _BROKER in wanted:
        found.append((_BROKER, str(NODE_ID)))
    if _GROUP in wanted:
        found += [(_GROUP, name) for name in call.context.broker.groups.configs.names()]
    return ListConfigResourcesResponse(
        error_code=Code.NONE,
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            async for kind, name in call.each(found)
        ],
    )
