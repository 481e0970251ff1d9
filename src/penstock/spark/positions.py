"""Which offsets to read: what the options mean on a cluster, and how much of it goes into one batch.

A position is what Spark keeps in its checkpoint: {"topic": {"partition": offset}}, the shape of its own
Kafka source. Where the user asks for time it has one more key for that (time/timed_position.py).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import re2

from penstock.client.cluster import EARLIEST, LATEST, Cluster, Place
from penstock.errors import NotFoundError, PenstockError, UsageError
from penstock.spark.options import READ, Bound, SourceOptions

Offsets: TypeAlias = dict[Place, int]
Position: TypeAlias = dict[str, dict[str, Any]]
_log = logging.getLogger(__name__)


class DataLossError(PenstockError):
    """Records that were to be read are gone."""


def to_position(offsets: Mapping[Place, int | None]) -> Position:
    """Offsets as Spark keeps them."""
    position: Position = {}
    for place in sorted(offsets):
        position.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return position


def from_position(position: Position) -> Offsets:
    """Offsets that Spark kept."""
    return {
        Place(topic, int(partition)): offset
        for topic, partitions in position.items()
        if not topic.startswith("$")  # what stands beside the topics
        for partition, offset in partitions.items()
    }


def lost(options: SourceOptions, cause: str) -> None:
    """Say that records are gone.

    Raises:
        DataLossError: unless the user wants to go on.
    """
    if options.fail_on_data_loss:
        remedy = "to go on with what is there, set failOnDataLoss to false"
        raise DataLossError(READ, cause, remedy)
    _log.warning("%s; going on, because failOnDataLoss is false", cause)


class Positions:
    """Answers for one cluster and one set of options."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options

    def starting(self) -> Offsets:
        """Where reading starts."""
        return self._resolve(self._options.starting, self.places())

    def ending(self) -> Offsets:
        """Where a batch ends."""
        return self._resolve(self._options.ending, self.places())

    def latest(self) -> Offsets:
        """The ends of all partitions as they are now, those that are gone left out."""
        try:
            places = self.places()
        except NotFoundError:
            options = self._options
            named = options.topics or [place.topic for place in options.assigned]
            there = self.existing(named)
            places = [place for place in there if not options.assigned or place in options.assigned]
        return self._cluster.offsets(dict.fromkeys(places, LATEST))

    def existing(self, topics: Iterable[str]) -> list[Place]:
        """The partitions of those topics that exist."""
        found: list[Place] = []
        for topic in sorted(set(topics)):
            try:
                found += self._cluster.partitions([topic])
            except NotFoundError:
                continue
        return found

    def earliest(self, places: list[Place]) -> Offsets:
        """Where partitions begin."""
        return self._cluster.offsets(dict.fromkeys(places, EARLIEST))

    def places(self) -> list[Place]:
        """All partitions to be read, as they are now.

        Raises:
            NotFoundError: a topic or partition that was named does not exist.
        """
        options = self._options
        if options.pattern is not None:
            return self._cluster.partitions(_matching(options.pattern, self._cluster.topics()))
        if options.topics:
            return self._cluster.partitions(options.topics)
        existing = self._cluster.partitions(place.topic for place in options.assigned)
        for place in options.assigned:
            if place not in existing:
                raise NotFoundError(READ, f"there is no {place}", "correct assign")
        return sorted(options.assigned)

    def _resolve(self, bound: Bound, places: list[Place]) -> Offsets:
        strangers = sorted({*bound.offsets, *bound.times_ms} - set(places))
        if strangers:
            cause = f"an offset is given for {strangers[0]}, which is not read"
            raise UsageError(READ, cause, "leave it out, or subscribe to it")
        asked: Offsets = {}
        for place in places:
            time_ms = bound.times_ms.get(place, bound.time_ms)
            asked[place] = bound.offsets.get(place, bound.all) if time_ms is None else time_ms
        exact = {place: offset for place, offset in bound.offsets.items() if offset >= 0}
        found = self._cluster.offsets({p: at for p, at in asked.items() if p not in exact})
        # There is no offset for a time after the last record: its place is at the end.
        late = [place for place in places if place not in found and place not in exact]
        return {**found, **exact, **self._cluster.offsets(dict.fromkeys(late, LATEST))}


def _matching(pattern: str, topics: list[str]) -> list[str]:
    try:
        compiled = re2.compile(pattern)
    except re2.error as error:
        cause = f"subscribePattern '{pattern}' cannot be read: {error}"
        raise UsageError(READ, cause, "write it in the syntax of RE2") from None
    return [topic for topic in topics if compiled.fullmatch(topic)]


def limited(start: Offsets, latest: Offsets, rows: int) -> Offsets:
    """How far to go with so many offsets, shared out by how much each partition has."""
    behind = {place: max(0, latest[place] - start[place]) for place in latest}
    total = sum(behind.values())
    if total <= rows:
        return latest
    end: Offsets = {}
    for place, count in behind.items():
        # One at least, so that no partition waits forever beside a much longer one.
        share = min(count, max(1, rows * count // total))
        end[place] = start[place] + share if count else latest[place]
    return end


def split(start: int, end: int, pieces: int) -> list[tuple[int, int]]:
    """Cut a range into ranges of nearly the same size."""
    pieces = max(1, min(pieces, end - start))
    cuts = [start + (end - start) * piece // pieces for piece in range(pieces + 1)]
    return list(itertools.pairwise(cuts))
