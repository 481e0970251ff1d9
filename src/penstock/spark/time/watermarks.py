"""How far event time has come, partition by partition.

A partition has come as far as its largest event time; the watermark is as far as the one that is
furthest behind, less the delay. A partition without new records for a while is idle and is not waited
for; if all are, the one furthest ahead counts, as if the others had become idle one by one. The
watermark never goes back.

Nothing here reads a clock or a topic: what was read, and when, is passed in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from penstock.client.cluster import Place


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of one partition; all times in milliseconds since 1970."""

    newest_ms: int | None
    """Its largest event time; None: it had no record with a time."""
    heard_ms: int
    """When, by the wall clock, it last had records to read, or was first seen."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user wants; None: partitions never become idle."""

    delay_ms: int
    idle_ms: int | None


@dataclass(frozen=True, slots=True)
class Watermarks:
    """A moment: immutable, so that planning a batch twice begins at the same one."""

    watermark_ms: int | None
    partitions: Mapping[Place, Progress]

    def contained(self, newest: Mapping[Place, int | None]) -> Watermarks:
        """After rows with these largest event times, where rows had any."""
        table = dict(self.partitions)
        for place, time_ms in newest.items():
            if time_ms is not None and place in table:
                before = table[place].newest_ms
                reached = time_ms if before is None else max(before, time_ms)
                table[place] = replace(table[place], newest_ms=reached)
        return replace(self, partitions=table)

    def heard(
        self, places: Collection[Place], unread: Collection[Place], now_ms: int
    ) -> Watermarks:
        """When these are the partitions that exist, and those of them have records to be read."""
        table = {place: self.partitions.get(place, Progress(None, now_ms)) for place in places}
        for place in unread:
            table[place] = replace(table[place], heard_ms=now_ms)
        return replace(self, partitions=table)

    def idle(self, rules: Rules, now_ms: int) -> set[Place]:
        """Partitions that are not waited for."""
        if rules.idle_ms is None:
            return set()
        return {
            place
            for place, one in self.partitions.items()
            if now_ms - one.heard_ms >= rules.idle_ms
        }

    def advanced(self, rules: Rules, now_ms: int) -> Watermarks:
        """With the watermark where it may be now."""
        reached = self._reached(self.idle(rules, now_ms))
        if reached is None:
            return self
        allowed = reached - rules.delay_ms
        before = self.watermark_ms
        return replace(self, watermark_ms=allowed if before is None else max(before, allowed))

    def _reached(self, idle: Collection[Place]) -> int | None:
        waited_for = [one.newest_ms for place, one in self.partitions.items() if place not in idle]
        if not waited_for:
            known = (one.newest_ms for one in self.partitions.values())
            return max((time_ms for time_ms in known if time_ms is not None), default=None)
        least: int | None = None
        for newest_ms in waited_for:
            if newest_ms is None:
                return None
            least = newest_ms if least is None else min(least, newest_ms)
        return least
