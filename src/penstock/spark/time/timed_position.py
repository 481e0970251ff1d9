"""The time in a position: what Spark keeps of it in its checkpoint, beside the offsets.

    "$time": {"watermark": ms, "column": "at", "from": {"topic": {"0": offset}},
              "newest": {"topic": {"0": ms}}, "heard": {"topic": {"0": ms}}, "idle": [["topic", 0]]}

`from` has where the batch that ends at this position began, of the partitions that moved in it; all
else is what was known before that batch. So whoever has nothing but the position can read the batch
again and know what came of it. `idle` is for people: it follows from `heard` and the clock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from penstock.client.cluster import Place
from penstock.spark.batch import TIME, WATERMARK
from penstock.spark.positions import Offsets, Position, from_position, to_position
from penstock.spark.time.watermarks import Progress, Watermarks


@dataclass(frozen=True, slots=True)
class Timed:
    """The time of a batch, and where the batch began."""

    marks: Watermarks
    begun: Offsets


def with_time(offsets: Offsets, timed: Timed, column: str, idle: Collection[Place]) -> Position:
    """A position that knows what time it is."""
    table = timed.marks.partitions
    time: dict[str, Any] = {
        WATERMARK: timed.marks.watermark_ms,
        "column": column,
        "from": to_position(timed.begun),
        "newest": to_position({place: one.newest_ms for place, one in table.items()}),
        "heard": to_position({place: one.heard_ms for place, one in table.items()}),
        "idle": [list(place) for place in sorted(idle)],
    }
    return {**to_position(offsets), TIME: time}


def time_of(position: Position, column: str | None = None) -> Timed:
    """The time in a position; nothing is known in one without.

    Args:
        position: as Spark kept it.
        column: whose times these should be. What is known of another column says nothing, except
            that the watermark does not go back.
    """
    if TIME not in position:
        return Timed(Watermarks(None, {}), {})
    time = position[TIME]
    begun = from_position(time["from"])
    if column not in (None, time["column"]):
        return Timed(Watermarks(time[WATERMARK], {}), begun)
    heard = from_position(time["heard"])
    table = {
        place: Progress(ms, heard[place]) for place, ms in from_position(time["newest"]).items()
    }
    return Timed(Watermarks(time[WATERMARK], table), begun)
