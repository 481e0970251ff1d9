"""Share groups of a cluster: who works for them, where they begin, and how much is left.

kafka-python has no requests for them; ours go over its connections.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from penstock.client.connection import error_of_code

SHARE: Final = "share"
_UNKNOWN: Final = -1
Place = tuple[str, int]


class ShareStanding(NamedTuple):
    """Where a share group stands in a partition."""

    start: int
    """Everything below is finished."""
    lag: int | None
    """What is not finished; None if the broker does not count it."""


class ShareMember(NamedTuple):
    """A consumer of a share group."""

    id: str
    client_id: str
    host: str
    partitions: frozenset[Place]


def members(client: Any, name: str, operation: str) -> list[ShareMember]:
    """Who works for a group."""
    from penstock.wire.share_group_messages import (  # noqa: PLC0415 -- loads kafka-python
        ShareGroupDescribeRequest,
    )

    request = ShareGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    (found,) = _ask(client, name, request).groups
    _check(operation, found)
    return [
        ShareMember(
            member.member_id,
            member.client_id,
            member.client_host,
            frozenset(
                (topic.topic_name, number)
                for topic in member.assignment.topic_partitions
                for number in topic.partitions
            ),
        )
        for member in found.members
    ]


def standings(client: Any, name: str, operation: str) -> dict[Place, ShareStanding]:
    """Where a group stands in all partitions that it has ever read."""
    from penstock.wire.share_group_messages import (  # noqa: PLC0415 -- loads kafka-python
        DescribeShareGroupOffsetsRequest,
    )

    wanted = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    request = DescribeShareGroupOffsetsRequest(groups=[wanted(group_id=name, topics=None)])
    (found,) = _ask(client, name, request).groups
    _check(operation, found)
    known: dict[Place, ShareStanding] = {}
    for topic in found.topics:
        for one in topic.partitions:
            if one.error_code == 0 and one.start_offset != _UNKNOWN:
                lag = None if one.lag in (None, _UNKNOWN) else int(one.lag)
                place = (str(topic.topic_name), int(one.partition_index))
                known[place] = ShareStanding(int(one.start_offset), lag)
    return known


def _check(operation: str, found: Any) -> None:
    if found.error_code:
        raise error_of_code(operation, found.error_code, found.error_message)


def _ask(client: Any, name: str, request: Any) -> Any:
    async def ask() -> Any:
        coordinator = await client._find_coordinator_id(name)
        return await client._manager.send(request, node_id=coordinator)

    return client._manager.run(ask)
