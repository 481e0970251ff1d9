"""Plans the time of batches, in the planner's process.

The time of a batch follows from what the batches before it contained. Tasks report that; what nobody
reported (the driver was started again, a task did not read to the end) is read here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.client.cluster import Place
from penstock.clock import Clock
from penstock.spark.batch import TIME
from penstock.spark.options import EventTime
from penstock.spark.positions import Offsets, Position, from_position
from penstock.spark.time.reports import Report, Reports
from penstock.spark.time.timed_position import Timed, time_of, with_time


@dataclass(slots=True)
class Timing:
    """See the module.

    Args:
        options: what the user wants.
        clock: by which partitions become idle.
        reports: what tasks say.
        read: finds the largest event time of a range by reading it.
    """

    options: EventTime
    clock: Clock
    reports: Reports
    read: Callable[[Place, int, int], int | None]

    def planned(self, start: Position, begun: Offsets, end: Offsets, latest: Offsets) -> Position:
        """The end of the next batch with its time; the start itself if neither rows nor time move.

        Args:
            start: where the last batch ended.
            begun: its offsets, and where partitions begin that came since.
            end: how far the next batch reads.
            latest: the ends of the partitions that exist.
        """
        now_ms = self.clock.wall_ms()
        rules = self.options.rules
        last = time_of(start, self.options.column)
        unread = [place for place, stop in latest.items() if stop > begun[place]]
        marks = last.marks.heard(latest, unread, now_ms)
        marks = marks.contained(self._contents(last.begun, begun, latest)).advanced(rules, now_ms)
        moved = {place: begun[place] for place, stop in end.items() if begun[place] != stop}
        still = marks.watermark_ms == last.marks.watermark_ms and not moved
        if still and TIME in start and from_position(start).keys() == end.keys():
            return start
        return with_time(end, Timed(marks, moved), self.options.column, marks.idle(rules, now_ms))

    def _contents(self, start: Offsets, end: Offsets, existing: Offsets) -> dict[Place, int | None]:
        """The largest event times of the last batch; partitions that are gone have none."""
        return {
            place: self._newest_ms(place, at, end[place])
            for place, at in start.items()
            if place in existing
        }

    def _newest_ms(self, place: Place, start: int, end: int) -> int | None:
        report = self.reports.of(place, start, end)
        if report is None:
            report = Report(place, start, end, self.read(place, start, end))
            self.reports.add(report)
        return report.newest_ms
