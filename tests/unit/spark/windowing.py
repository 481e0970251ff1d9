"""Windows without Spark: a keeper of state as simple as can be, and a batch oracle in plain Python."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.windows.aggregates import (
    Aggregate,
    count,
    distinct,
    max_of,
    mean_of,
    min_of,
    percentile,
    rate,
    sum_of,
    top_k,
)
from penstock.spark.windows.columns import DUE
from penstock.spark.windows.keeping import keep
from penstock.spark.windows.kinds import Fixed, Sessions, Sliding, Window
from penstock.spark.windows.panes import panes
from penstock.spark.windows.plan import NEVER_US, Plan

MS = 1_000
ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("kind", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("amount", pa.int32()),
    ]
)
EVERYTHING: dict[str, Aggregate] = {
    "rows": count(),
    "amounts": count("amount"),
    "total": sum_of("amount"),
    "mean": mean_of("amount"),
    "least": min_of("amount"),
    "most": max_of("amount"),
    "per_second": rate(),
    "different": distinct("amount"),
    "median": percentile("amount", 0.5),
    "often": top_k("amount", 2),
}


@dataclass(frozen=True)
class Row:
    """An input row; times in milliseconds."""

    id: int
    kind: str | None
    at: int | None
    amount: int | None


def table(rows: Iterable[Row]) -> pa.Table:
    found = [
        {
            "id": row.id,
            "kind": row.kind,
            "at": None if row.at is None else row.at * MS,
            "amount": row.amount,
        }
        for row in rows
    ]
    plain = pa.schema([field if field.name != "at" else ("at", pa.int64()) for field in ROWS])
    return pa.Table.from_pylist(found, schema=plain).cast(ROWS)


def plan(window: Window, emit: str = "final", corrections_ms: int = 0) -> Plan:
    return Plan(ROWS, "at", ("kind",), window, EVERYTHING, emit, corrections_ms * MS)


@dataclass
class Keeper:
    """Runs the two halves of windows as Spark would, batch by batch."""

    plan: Plan
    state: pa.Table = field(init=False)
    shown: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    late: list[dict[str, Any]] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = self.plan.state_schema.empty_table()

    def batch(self, parts: Iterable[pa.Table], mark_ms: int | None) -> list[dict[str, Any]]:
        """One batch, of the rows of several tasks."""
        mark = NEVER_US if mark_ms is None else mark_ms * MS
        found = [panes(self.plan, part, mark) for part in parts]
        together = pa.concat_tables([self.plan.pane_schema.empty_table(), *found])
        kinds = set(together.column("kind").to_pylist())
        stored = self.state.column("kind").to_pylist()
        due = pc.less_equal(self.state.column(DUE), -(2**60) if mark_ms is None else mark_ms)
        if not isinstance(self.plan.window, Fixed):
            # What is kept together comes together, if only one window of it is due (operator.py).
            kinds |= {kind for kind, is_due in zip(stored, due.to_pylist(), strict=True) if is_due}
        touched = pa.array([kind in kinds for kind in stored])
        asked = pc.or_(due, touched) if len(self.state) else due
        kept, out = keep(self.plan, self.state.filter(asked), together, mark)
        self.state = pa.concat_tables([self.state.filter(pc.invert(asked)), kept])
        self._apply(out)
        return list(out.to_pylist())

    def _apply(self, out: pa.Table) -> None:
        for line in out.to_pylist():
            if line["_output"] == "late":
                self.late.append(line["late"])
                continue
            result = dict(line["results"])
            self.told.append(dict(result))
            change = result.pop("_change_type")
            result.pop("watermark")
            key = (result["kind"], result["window_start"])
            if change in ("insert", "update_postimage"):
                assert (key in self.shown) == (change == "update_postimage")
                self.shown[key] = result
            elif change == "delete":
                assert self.shown.pop(key) == result
            else:
                assert self.shown[key] == result, "a preimage is what was published"


# -- the oracle


def windows_of(window: Window, rows: Iterable[Row]) -> dict[tuple[Any, int, int], list[Row]]:
    """Windows of rows, by kind, start and end in milliseconds."""
    by_kind: dict[str | None, list[Row]] = defaultdict(list)
    for row in rows:
        if row.at is not None:
            by_kind[row.kind].append(row)
    found: dict[tuple[Any, int, int], list[Row]] = defaultdict(list)
    for kind, some in by_kind.items():
        for start, end, inside in _cut(window, sorted(some, key=lambda row: row.at or 0)):
            found[kind, start, end] = inside
    return found


def _cut(window: Window, rows: list[Row]) -> Iterable[tuple[int, int, list[Row]]]:
    times = [row.at or 0 for row in rows]
    match window:
        case Fixed(size_us, step_us):
            size, step = size_us // MS, step_us // MS
            first, last = (min(times) - size) // step * step, max(times)
            for start in range(first, last + 1, step):
                inside = [row for row in rows if start <= (row.at or 0) < start + size]
                if inside:
                    yield start, start + size, inside
        case Sliding(size_us):
            size = size_us // MS
            for end in sorted(set(times)):
                yield end - size, end, [row for row in rows if end - size < (row.at or 0) <= end]
        case Sessions(gap_us):
            gap = gap_us // MS
            inside = []
            for row in rows:
                if inside and (row.at or 0) > (inside[-1].at or 0) + gap:
                    yield inside[0].at or 0, (inside[-1].at or 0) + gap, inside
                    inside = []
                inside.append(row)
            yield inside[0].at or 0, (inside[-1].at or 0) + gap, inside


def summary(start: int, end: int, rows: list[Row]) -> dict[str, Any]:
    """What EVERYTHING is of rows."""
    amounts = sorted(row.amount for row in rows if row.amount is not None)
    tally = sorted(Counter(amounts).items(), key=lambda pair: (-pair[1], pair[0]))
    return {
        "rows": len(rows),
        "amounts": len(amounts),
        "total": sum(amounts) if amounts else None,
        "mean": sum(amounts) / len(amounts) if amounts else None,
        "least": amounts[0] if amounts else None,
        "most": amounts[-1] if amounts else None,
        "per_second": len(rows) * 1000 / (end - start),
        "different": len(tally),
        "median": _median(amounts),
        "often": [{"value": value, "times": times} for value, times in tally[:2]] or None,
    }


def _median(amounts: list[int]) -> float | None:
    if not amounts:
        return None
    place = (len(amounts) - 1) / 2
    return (amounts[math.floor(place)] + amounts[math.ceil(place)]) / 2


def expected(window: Window, rows: Iterable[Row]) -> dict[tuple[Any, int, int], dict[str, Any]]:
    return {key: summary(key[1], key[2], some) for key, some in windows_of(window, rows).items()}


def shown(keeper: Keeper) -> dict[tuple[Any, int, int], dict[str, Any]]:
    """What a reader of the changes has now, in the oracle's shape."""
    found = {}
    for result in keeper.shown.values():
        line: Mapping[str, Any] = result
        rest = {name: value for name, value in line.items() if name in EVERYTHING}
        bounds = (round(line[name].timestamp() * 1000) for name in ("window_start", "window_end"))
        start, end = bounds
        found[line["kind"], start, end] = rest
    return found
