"""`format("penstock")`: topics as Spark reads them, in streams and in batches.

Planning (which offsets) runs in one Python process of the driver, reading in those of the executors.
Offsets are read exactly once for every try of a batch: Spark's checkpoint says which, and nothing else
is remembered here. The same holds for the time of a batch, where the user asks for it (timing.py).
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.client.cluster import Cluster, Place
from penstock.client.connection import reach
from penstock.clock import SystemClock
from penstock.spark.batch import FROM, TIME
from penstock.spark.columns import RowPlan, own_schema
from penstock.spark.dead_letters import check_dead_letters
from penstock.spark.fetching import read_range
from penstock.spark.options import READ, Fate, SourceOptions, parse_options
from penstock.spark.positions import (
    Offsets,
    Position,
    Positions,
    from_position,
    limited,
    lost,
    split,
    to_position,
)
from penstock.spark.time.event_time import EventColumn, newest_of, plan_rows, reported
from penstock.spark.time.reports import Reports, ReportTo, listen
from penstock.spark.time.timed_position import time_of
from penstock.spark.time.timing import Timing

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Range(InputPartition):
    """Offsets of a partition for one task, the last of them not included."""

    place: Place
    start: int
    end: int
    report_to: ReportTo | None = None


@dataclass
class Nothing(InputPartition):
    """For a batch in which only time moves: there is a task, so that what waits for time hears of it."""


class PenstockSource(DataSource):
    """See the module; registered by `penstock.spark.session` or `spark.dataSource.register`."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "penstock"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.options = options

    def schema(self) -> StructType:
        """Those of Spark's own Kafka source, or of Avro values; a schema of the user's goes first."""
        # Those of a stream are of a batch, too.
        return own_schema(parse_options(self.options, streaming=False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read a range that ends."""
        options = parse_options(self.options, streaming=False)
        plan_rows(options, schema)  # says what a stream with the same options would say
        return BatchReader(options, RowPlan.of(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Read what comes."""
        options = parse_options(self.options, streaming=True)
        return StreamReader(options, *plan_rows(options, schema))


class _Planner:
    """Connects on first use: readers are pickled and sent before they are used."""

    def __init__(self, options: SourceOptions, rows: RowPlan) -> None:
        self.options = options
        self.rows = rows
        self._positions: Positions | None = None

    @property
    def positions(self) -> Positions:
        if self._positions is None:
            reach(self.options.bootstrap)  # says at once what is wrong with an address
            options = self.options
            cluster = Cluster(
                options.bootstrap, READ, committed=options.committed, security=options.security
            )
            self._positions = Positions(cluster, options)
            if options.dead_letters:
                check_dead_letters(cluster, options.dead_letters, self._positions.places())
        return self._positions

    def ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """Tasks for everything from start to end."""
        moving = [place for place, stop in end.items() if start.get(place) != stop]
        moving = self._still_there(moving, end)
        earliest = self.positions.earliest(moving)
        wanted: dict[Place, tuple[int, int]] = {}
        for place in moving:
            stop = end[place]
            # A partition that came while reading went on is read from its beginning.
            begin = start.get(place, earliest[place])
            if begin < earliest[place]:
                lost(self.options, f"{place} begins at {earliest[place]}, and {begin} was next")
                begin = min(earliest[place], stop)
            if begin < stop:
                wanted[place] = (begin, stop)
        return self._cut(wanted)

    def _still_there(self, moving: list[Place], end: Offsets) -> list[Place]:
        """Partitions without those that are gone since it was planned to read them."""
        there = set(self.positions.existing(place.topic for place in moving))
        for place in moving:
            if place not in there:
                lost(self.options, f"{place} is gone; it was to be read up to {end[place]}")
        return [place for place in moving if place in there]

    def _cut(self, wanted: dict[Place, tuple[int, int]]) -> list[Range]:
        least = self.options.partitions_min or 0
        total = sum(stop - begin for begin, stop in wanted.values())
        found: list[Range] = []
        for place, (begin, stop) in wanted.items():
            pieces = -(-least * (stop - begin) // total) if len(wanted) < least else 1
            found += [Range(place, low, high) for low, high in split(begin, stop, pieces)]
        return found

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:
        """What one task reads."""
        return read_range(self.options, self.rows, partition.place, partition.start, partition.end)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_positions": None}


class BatchReader(DataSourceReader):
    """One range of each partition."""

    def __init__(self, options: SourceOptions, rows: RowPlan) -> None:
        self._planner = _Planner(options, rows)

    def partitions(self) -> Sequence[InputPartition]:
        """One task for each range."""
        positions = self._planner.positions
        return self._planner.ranges(positions.starting(), positions.ending())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Records of one range."""
        # Where there is no partition at all Spark still reads once, and passes None.
        return self._planner.read(partition) if isinstance(partition, Range) else iter(())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets as far as there are, in batches of as many as the user wants."""

    def __init__(
        self, options: SourceOptions, rows: RowPlan, event_column: EventColumn | None
    ) -> None:
        self._planner = _Planner(options, rows)
        self._event_column = event_column
        self._timing: Timing | None = None
        self._report_to: ReportTo | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._initial: Position | None = None

    def initialOffset(self) -> Position:
        """Where a new query starts; Spark asks again if it dies before its first batch is done."""
        self._initial = to_position(self._planner.positions.starting())
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """MaxOffsetsPerTrigger."""
        rows = self._planner.options.offsets_per_trigger
        return ReadMaxRows(rows) if rows is not None else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """What there is now is what will be read."""
        self._target = self._planner.positions.latest()

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        """Where the next batch ends."""
        begun = from_position(start)
        latest = self._target if self._target is not None else self._planner.positions.latest()
        self._latest = latest
        end = self._bounded(begun, self._despite_losses(begun, latest))
        # A partition that came while reading went on is read from its beginning.
        begun |= self._planner.positions.earliest([place for place in end if place not in begun])
        rows = self._planner.options.offsets_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        goal, end = end, limited(begun, end, rows) if rows is not None else end
        if (timing := self._timed()) is not None:
            return timing.planned(start, begun, end, {place: goal[place] for place in latest})
        if end == from_position(start):
            return start
        # Spark asks anew for the start if it dies in its first batch, and gets another answer then.
        return {**to_position(end), **({FROM: start} if start == self._initial else {})}

    def reportLatestOffset(self) -> Position | None:
        """How far the topics go, for the lag in Spark's progress."""
        return None if self._latest is None else to_position(self._latest)

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        """One task for each range."""
        if TIME not in end:
            begun = from_position(end.get(FROM, start))
            return self._planner.ranges(begun, from_position(end))
        # What the time of the next batch is made of, also where Spark asks anew for the start.
        begun = from_position(end) | time_of(end).begun
        ranges = self._planner.ranges(begun, from_position(end))
        timing = self._timed()
        if timing is not None:
            timing.reports.forget_before(begun)
            self._report_to = self._report_to or listen(
                timing.reports, self._planner.options.bootstrap
            )
        return [replace(one, report_to=self._report_to) for one in ranges] or [Nothing()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Records of one range."""
        if isinstance(partition, Nothing):
            return iter(())
        assert isinstance(partition, Range)
        batches = self._planner.read(partition)
        if self._event_column is None:
            return batches
        within = (partition.place, partition.start, partition.end)
        return reported(self._event_column, partition.report_to, within, batches)

    def _timed(self) -> Timing | None:
        """What plans time, made on first use: readers are pickled and sent before they are used."""
        column, options = self._event_column, self._planner.options
        if self._timing is None and column is not None and options.event_time is not None:
            # What is gone by now was there when the batch was read, which is no loss; and what is
            # malformed was sent to its topic then.
            tolerant = replace(options, fail_on_data_loss=False, dead_letters="")
            rows = replace(self._planner.rows, malformed=Fate.TOPIC)

            def newest_ms(place: Place, start: int, end: int) -> int | None:
                return newest_of(column, read_range(tolerant, rows, place, start, end))

            self._timing = Timing(options.event_time, SystemClock(), Reports(), newest_ms)
        return self._timing

    def _bounded(self, begun: Offsets, ends: Offsets) -> Offsets:
        """The ends, none of them beyond the one that the user gave."""
        if not self._planner.options.bounded:
            return ends
        ending = self._planner.positions.ending()
        # Who has read further already stays there.
        return {p: max(begun.get(p, 0), min(end, ending.get(p, end))) for p, end in ends.items()}

    def _despite_losses(self, begun: Offsets, latest: Offsets) -> Offsets:
        """The ends; where a topic was made anew it is the new one that counts, as in Spark's source."""
        options = self._planner.options
        ends = dict(latest)
        for place, reached in begun.items():
            if place not in latest:
                lost(options, f"{place} is gone; it was read up to {reached}")
                ends[place] = reached
            elif latest[place] < reached:
                lost(options, f"{place} ends at {latest[place]}, but {reached} was reached")
        return ends
