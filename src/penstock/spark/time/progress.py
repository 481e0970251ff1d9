"""What the progress of a query says of time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.spark.batch import TIME
from penstock.spark.positions import from_position
from penstock.spark.time.timed_position import time_of


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """How far one partition has come."""

    topic: str
    partition: int
    newest_ms: int | None
    """Its largest event time; None: it had no record with a time."""
    behind_ms: int | None
    """How far that is behind the partition furthest ahead."""
    records: int | None
    """How many are there that have not been read."""
    idle: bool
    """Whether it is not waited for."""


@dataclass(frozen=True, slots=True)
class SourceTime:
    """The time of one source, in milliseconds since 1970."""

    watermark_ms: int | None
    partitions: list[PartitionTime]


def source_times(progress: Mapping[str, Any]) -> list[SourceTime]:
    """The time of each source that has one.

    Args:
        progress: of a batch, such as `query.lastProgress`. It says what was known before that batch.
    """
    found = []
    for source in progress["sources"]:
        end = json.loads(source["endOffset"] or "{}")
        if TIME in end:
            found.append(_source_time(end, json.loads(source["latestOffset"] or "{}")))
    return found


def _source_time(end: dict[str, Any], latest: dict[str, Any]) -> SourceTime:
    marks = time_of(end).marks
    known = [one.newest_ms for one in marks.partitions.values() if one.newest_ms is not None]
    ahead = max(known, default=None)
    idle = {tuple(place) for place in end[TIME]["idle"]}
    read, there = from_position(end), from_position(latest)
    return SourceTime(
        marks.watermark_ms,
        [
            PartitionTime(
                topic=place.topic,
                partition=place.partition,
                newest_ms=one.newest_ms,
                behind_ms=None if ahead is None or one.newest_ms is None else ahead - one.newest_ms,
                records=there[place] - read[place] if place in there else None,
                idle=place in idle,
            )
            for place, one in sorted(marks.partitions.items())
        ],
    )
