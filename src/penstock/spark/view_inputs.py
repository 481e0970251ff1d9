"""What a streaming DataFrame reads, and whether a view of it can be built from the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame

from penstock.client.cluster import EARLIEST, Cluster
from penstock.errors import ConflictError
from penstock.spark.options import SourceOptions, parse_options
from penstock.spark.positions import Positions, to_position
from penstock.spark.source import PenstockSource
from penstock.views.beginnings import check_beginning, is_compacted
from penstock.views.version import Position

_STREAM: Final = "StreamingRelationV2"


def inputs_of(frame: DataFrame) -> list[SourceOptions] | None:
    """The options of everything that a frame streams from; None if a part of it is of another kind."""
    leaves: Any = frame._jdf.queryExecution().analyzed().collectLeaves()
    found: list[SourceOptions] = []
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if not leaf.isStreaming():
            continue
        if leaf.getClass().getSimpleName() != _STREAM or leaf.sourceName() != PenstockSource.name():
            return None
        found.append(parse_options(dict(leaf.extraOptions().asCaseSensitiveMap()), streaming=True))
    return found


class Beginning:
    """Where the inputs of a view begin.

    Args:
        operation: for errors.
        inputs: as from inputs_of.
    """

    def __init__(self, operation: str, inputs: Sequence[SourceOptions] | None) -> None:
        self._operation = operation
        self._inputs = inputs
        self.position: Position | None = None
        """Known after `check`, unless the inputs are of another kind."""

    def check(self, *, replaces: bool, wanted: Position | None) -> None:
        """Find it, and pass if all is there.

        `earliest` means everything there ever was. Who wants a view from some place on names the place.

        Args:
            replaces: whether another version is there, which saw everything from `wanted` on.
            wanted: where that version began, if that is known.

        Raises:
            ConflictError: something is no longer retained, or nobody knows.
        """
        if self._inputs is None:
            if replaces:
                cause = 'its query reads something else than format("penstock"), and nobody knows '
                cause += "whether the beginning of that is still there"
                raise ConflictError(self._operation, cause, "drop the view and build it anew")
            return
        merged: Position = {}
        for one in self._inputs:
            found = _starting(one, self._operation)
            if _from_earliest(one):
                self._check(one, {}, found)
            if replaces:
                self._check(one, wanted or {}, found)
            _merge(merged, found)
        self.position = merged

    def check_again(self) -> None:
        """Pass if nothing went while the first batch was on its way to be read.

        Raises:
            BeginningGoneError: something did.
        """
        for one in self._inputs or ():
            if _from_earliest(one):
                self._check(one, self.position or {}, _starting(one, self._operation))

    def _check(self, one: SourceOptions, wanted: Position, found: Position) -> None:
        check_beginning(
            self._operation,
            wanted,
            found,
            lambda topic: is_compacted(one.bootstrap, topic, one.security),
        )


def _starting(options: SourceOptions, operation: str) -> Position:
    with Cluster(
        options.bootstrap, operation, committed=options.committed, security=options.security
    ) as cluster:
        return to_position(Positions(cluster, options).starting())


def _from_earliest(options: SourceOptions) -> bool:
    bound = options.starting
    named = bound.offsets or bound.times_ms or bound.time_ms is not None
    return bound.all == EARLIEST and not named


def _merge(merged: Position, found: Position) -> None:
    for topic, partitions in found.items():
        known = merged.setdefault(topic, {})
        for number, offset in partitions.items():
            known[number] = min(offset, known.get(number, offset))
