"""The time of batches as it is planned, with a clock moved by hand; no Spark, no broker."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.cluster import Place
from penstock.spark.batch import TIME
from penstock.spark.options import EventTime
from penstock.spark.positions import Position, from_position, to_position
from penstock.spark.time.reports import Report, Reports
from penstock.spark.time.timed_position import time_of
from penstock.spark.time.timing import Timing
from penstock.spark.time.watermarks import Rules
from penstock.testing.clock import ManualClock

A, B = Place("t", 0), Place("t", 1)


@dataclass
class Topic:
    """Event times by partition, a planner, and what it read by itself."""

    times: dict[Place, list[int | None]] = field(default_factory=lambda: {A: [], B: []})
    clock: ManualClock = field(default_factory=ManualClock)
    column: str = "at"
    position: Position = field(default_factory=lambda: to_position({A: 0, B: 0}))
    reads: list[tuple[Place, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """As if the driver had been started again: what is only in memory is gone."""
        options = EventTime(self.column, Rules(delay_ms=0, idle_ms=60_000))
        self.timing = Timing(options, self.clock, Reports(), self._read)

    def newest(self, place: Place, start: int, end: int) -> int | None:
        times = [time for time in self.times[place][start:end] if time is not None]
        return max(times, default=None)

    def _read(self, place: Place, start: int, end: int) -> int | None:
        self.reads.append((place, start, end))
        return self.newest(place, start, end)

    def plan(self) -> bool:
        """Plan a batch of all there is; whether there is one."""
        latest = {place: len(times) for place, times in self.times.items()}
        begun = dict.fromkeys(latest, 0) | from_position(self.position)
        planned = self.timing.planned(self.position, begun, {**begun, **latest}, latest)
        again = planned != self.position
        self.position = json.loads(json.dumps(planned))
        return again

    def report(self) -> None:
        """What the tasks of the batch say."""
        ends = from_position(self.position)
        for place, start in time_of(self.position).begun.items():
            newest = self.newest(place, start, ends[place])
            self.timing.reports.add(Report(place, start, ends[place], newest))

    @property
    def watermark(self) -> int | None:
        found: int | None = self.position[TIME]["watermark"]
        return found


def test_a_batch_has_the_time_of_the_batches_before_it() -> None:
    topic = Topic({A: [100], B: [70]})
    assert topic.plan()
    assert topic.watermark is None
    topic.report()
    topic.times[A].append(200)
    topic.times[B].append(300)
    topic.plan()
    assert topic.watermark == 70
    assert topic.reads == []


def test_one_batch_without_rows_when_only_time_moves_and_then_no_more() -> None:
    topic = Topic({A: [100], B: [70]})
    topic.plan()
    topic.report()
    assert topic.plan()
    assert topic.watermark == 70
    assert time_of(topic.position).begun == {}
    assert not topic.plan()


def test_a_silent_partition_becomes_idle_and_a_batch_says_so() -> None:
    topic = Topic({A: [100], B: []})
    topic.plan()
    topic.report()
    assert not topic.plan()
    topic.clock.advance(59.9)
    assert not topic.plan()
    topic.clock.advance(0.1)
    assert topic.plan()
    assert topic.watermark == 100
    assert topic.position[TIME]["idle"] == [["t", 0], ["t", 1]]
    assert not topic.plan()


def test_what_nobody_reported_is_read_once() -> None:
    topic = Topic({A: [100, 90], B: []})
    topic.plan()
    topic.restart()
    for _ in range(3):
        topic.plan()
    assert topic.reads == [(A, 0, 2)]
    topic.times[B].append(5)
    topic.plan()
    topic.report()
    topic.plan()
    assert topic.watermark == 5


def test_a_position_without_time_goes_on() -> None:
    topic = Topic({A: [1, 2, 3], B: [4]}, position={"t": {"0": 3, "1": 1}})
    assert topic.plan()
    assert topic.watermark is None
    assert not topic.plan()
    assert topic.reads == []


def test_another_column_begins_anew_and_time_does_not_go_back() -> None:
    topic = Topic({A: [100], B: [70]})
    topic.plan()
    topic.plan()
    assert topic.watermark == 70
    topic.column, topic.times = "other", {A: [100, 5], B: [70, 5]}
    topic.restart()
    topic.plan()
    topic.times[A].append(6)
    topic.plan()
    assert topic.watermark == 70
    assert {one.newest_ms for one in time_of(topic.position).marks.partitions.values()} == {5}


def test_a_partition_that_is_gone_is_not_read_again() -> None:
    topic = Topic({A: [100], B: [70]})
    topic.plan()
    topic.restart()
    del topic.times[B]
    topic.plan()
    assert topic.reads == [(A, 0, 1)]
    assert topic.watermark == 100


def test_other_users_of_positions_do_not_see_time() -> None:
    topic = Topic({A: [100], B: [70]})
    topic.plan()
    assert from_position(topic.position) == {A: 1, B: 1}


rows = st.lists(st.tuples(st.sampled_from([A, B]), st.none() | st.integers(0, 10**6)), max_size=5)


@given(st.lists(st.tuples(rows, st.integers(0, 100), st.booleans(), st.booleans()), max_size=12))
def test_restarts_and_lost_reports_change_nothing(
    steps: list[tuple[list[tuple[Place, int | None]], int, bool, bool]],
) -> None:
    steady, shaken = Topic(), Topic()
    for written, seconds, restarts, reports in steps:
        for topic in (steady, shaken):
            for place, time in written:
                topic.times[place].append(time)
            topic.clock.advance(seconds)
            topic.plan()
        assert steady.position == shaken.position
        steady.report()
        if reports:
            shaken.report()
        if restarts:
            shaken.restart()
    assert steady.reads == []
