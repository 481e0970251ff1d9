"""Whether a view can be built from its beginning: no view leaves out silently what it could not read.

A rebuild must be able to read everything that the version it replaces has read. Where a topic is
compacted the newest record of every key is still there, all that a view by those keys is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from penstock.client.cluster import EARLIEST, Cluster, Place
from penstock.client.security import OPEN, Security
from penstock.client.topics import describe_topic
from penstock.errors import ConflictError
from penstock.views.version import Position

_POLICY: Final = "cleanup.policy"
_COMPACTED: Final = "compact"  # with `compact,delete` old records go, whatever their key


class BeginningGoneError(ConflictError):
    """The beginning of a topic is no longer retained."""


def check_beginning(
    operation: str, wanted: Position, found: Position, is_compacted: Callable[[str], bool]
) -> None:
    """Pass if reading from where a topic begins sees everything that is wanted.

    Args:
        operation: for errors.
        wanted: the offsets to begin at; a partition that is not named is wanted from 0.
        found: where reading would begin.
        is_compacted: whether a topic only ever loses what was replaced.

    Raises:
        BeginningGoneError: something is missing.
    """
    for topic, partitions in found.items():
        for number, offset in partitions.items():
            first = wanted.get(topic, {}).get(number, 0)
            if offset > first and not is_compacted(topic):
                cause = f"offsets {first} to {offset - 1} of {topic} partition {number} are missing"
                remedy = (
                    "restore them, or drop the view and build another that begins where you say"
                )
                raise BeginningGoneError(operation, cause, remedy)


def retained(bootstrap: str, topics: Iterable[str], operation: str) -> Position:
    """Where topics begin now."""
    with Cluster(bootstrap, operation, committed=True) as cluster:
        places = cluster.partitions(topics)
        return by_topic(cluster.offsets(dict.fromkeys(places, EARLIEST)))


def by_topic(offsets: Mapping[Place, int]) -> Position:
    """Offsets as views keep them."""
    position: Position = {}
    for place in sorted(offsets):
        position.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return position


def is_compacted(bootstrap: str, topic: str, security: Security = OPEN) -> bool:
    """Whether a topic only ever loses what was replaced."""
    configs = describe_topic(bootstrap, topic, security).configs
    return any(one.name == _POLICY and one.value == _COMPACTED for one in configs)
