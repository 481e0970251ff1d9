"""A committed offset, and its form in the journal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, NamedTuple
from uuid import UUID

from penstock.limits import TOPIC_KEYS_KEPT
from penstock.log.positions import PartitionId


class Committed(NamedTuple):
    """A position a group has reached in a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    time_ms: int


Offsets = dict[PartitionId, Committed]


def line_of(group: str, kind: str, offsets: Mapping[PartitionId, Committed]) -> bytes:
    """The whole line of a group's commit, as JSON; by hand, because there are so many of them."""
    rows = [
        f'["{_text_of(p.topic_id)}",{p.partition},{c.offset},{c.leader_epoch},{quoted(c.metadata)}]'
        for p, c in offsets.items()
    ]
    time_ms = next(iter(offsets.values())).time_ms
    head = f'{{"group":{quoted(group)},"type":{quoted(kind)},"time":{time_ms},"offsets":['
    return (head + ",".join(rows) + "]}").encode()


def fields_of(offsets: Mapping[PartitionId, Committed]) -> dict[str, Any]:
    """Offsets that were committed at the same time, as fields of a line."""
    rows = [
        [_text_of(p.topic_id), p.partition, c.offset, c.leader_epoch, c.metadata]
        for p, c in offsets.items()
    ]
    return {"time": next(iter(offsets.values())).time_ms, "offsets": rows}


@lru_cache(TOPIC_KEYS_KEPT)
def _text_of(topic_id: UUID) -> str:
    """A topic's id as it is written: most positions are in one of few topics."""
    return str(topic_id)


def offsets_of(fields: Mapping[str, Any]) -> Offsets:
    """The offsets of a line."""
    time_ms = int(fields["time"])
    return {
        PartitionId(UUID(topic_id), int(partition)): Committed(
            int(offset), int(epoch), str(metadata), time_ms
        )
        for topic_id, partition, offset, epoch, metadata in fields["offsets"]
    }
