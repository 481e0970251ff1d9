"""A committed offset, and its form in the journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from penstock.log.positions import PartitionId


class Committed(NamedTuple):
    """A position a group has reached in a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    time_ms: int


Offsets = dict[PartitionId, Committed]


def fields_of(offsets: Mapping[PartitionId, Committed]) -> dict[str, Any]:
    """Offsets that were committed at the same time, as fields of a line."""
    rows = [
        [str(p.topic_id), p.partition, c.offset, c.leader_epoch, c.metadata]
        for p, c in offsets.items()
    ]
    return {"time": next(iter(offsets.values())).time_ms, "offsets": rows}


def offsets_of(fields: Mapping[str, Any]) -> Offsets:
    """The offsets of a line."""
    time_ms = int(fields["time"])
    return {
        PartitionId(UUID(topic_id), int(partition)): Committed(
            int(offset), int(epoch), str(metadata), time_ms
        )
        for topic_id, partition, offset, epoch, metadata in fields["offsets"]
    }
