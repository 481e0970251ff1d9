"""Windows against a batch oracle, over any disorder, any cut into batches and any watermark."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.spark.windowing import MS, ROWS, Keeper, Row, expected, plan, shown, table

from penstock.errors import UsageError
from penstock.spark.windows.aggregates import count, mean_of, percentile, sum_of, top_k
from penstock.spark.windows.kinds import (
    Fixed,
    Sessions,
    Sliding,
    Window,
    hopping,
    sessions,
    sliding,
    tumbling,
)
from penstock.spark.windows.plan import Plan, check

WINDOWS: dict[str, Window] = {
    "tumbling": Fixed(10 * MS, 10 * MS),
    "hopping": Fixed(10 * MS, 4 * MS),
    "sliding": Sliding(10 * MS),
    "sessions": Sessions(5 * MS),
}
END_OF_TIME = 10_000
# A busy machine is no failure.
SOME = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Batch = tuple[list[Row], int | None]


@st.composite
def streams(draw: st.DrawFn) -> list[Batch]:
    """Batches of rows, each with the watermark it is judged by: none at first, then never back."""
    number = 0
    mark: int | None = None
    found: list[Batch] = []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            mark = max(mark or 0, draw(st.integers(-10, 70)))
        rows = []
        for _ in range(draw(st.integers(0, 6))):
            kind = draw(st.sampled_from(["a", "b", None]))
            at = draw(st.one_of(st.none(), st.integers(-5, 60)))
            amount = draw(st.one_of(st.none(), st.integers(0, 4)))
            rows.append(Row(number, kind, at, amount))
            number += 1
        found.append((rows, mark))
    return found


def run(keeper: Keeper, stream: list[Batch]) -> set[int]:
    """All batches; the ids of late rows."""
    for rows, mark in stream:
        half = len(rows) // 2
        keeper.batch([table(rows[:half]), table(rows[half:])], mark)
    ids = [row["id"] for row in keeper.late]
    assert len(ids) == len(set(ids)), "a row is late once"
    return set(ids)


def everything(stream: list[Batch]) -> list[Row]:
    return [row for rows, _ in stream for row in rows]


def closed(window: Window, end: int, mark: int | None) -> bool:
    """Whether a window that ends then is complete at a watermark."""
    return mark is not None and (end < mark if isinstance(window, Sliding) else end <= mark)


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("emit", ["final", "early"])
@given(stream=streams())
@SOME
def test_with_long_corrections_results_become_those_of_a_batch_over_everything(
    kind: str, emit: str, stream: list[Batch]
) -> None:
    keeper = Keeper(plan(WINDOWS[kind], emit, corrections_ms=100))
    late = run(keeper, stream)
    rows = everything(stream)
    assert late == {row.id for row in rows if row.at is None}
    mark = stream[-1][1]
    now = {
        key: line
        for key, line in expected(WINDOWS[kind], rows).items()
        if emit == "early" or closed(WINDOWS[kind], key[2], mark)
    }
    assert shown(keeper) == now
    keeper.batch([], END_OF_TIME)
    assert shown(keeper) == expected(WINDOWS[kind], rows)
    assert len(keeper.state) == 0


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "sessions"])
@pytest.mark.parametrize("emit", ["final", "early"])
@pytest.mark.parametrize("corrections", [0, 7])
@given(stream=streams())
@example(stream=[([Row(0, "a", 19, 1)], 20), ([Row(1, "a", 26, 1)], 20), ([], 27)])
@SOME
def test_results_become_those_of_a_batch_over_what_was_not_late(
    kind: str, emit: str, corrections: int, stream: list[Batch]
) -> None:
    keeper = Keeper(plan(WINDOWS[kind], emit, corrections))
    late = run(keeper, stream)
    keeper.batch([], END_OF_TIME)
    assert shown(keeper) == expected(
        WINDOWS[kind], (row for row in everything(stream) if row.id not in late)
    )
    if emit == "final" and corrections == 0:
        assert {line["_change_type"] for line in keeper.told} <= {"insert"}
    assert len(keeper.state) == 0


@given(stream=streams())
@SOME
def test_a_hopping_window_has_every_row_that_came_before_it_closed(stream: list[Batch]) -> None:
    window = WINDOWS["hopping"]
    keeper = Keeper(plan(window, "final"))
    late = run(keeper, stream)
    keeper.batch([], END_OF_TIME)
    came = {row.id: mark for rows, mark in stream for row in rows}
    members: dict[tuple[Any, int, int], int] = defaultdict(int)
    counted: set[int] = set()
    for row in everything(stream):
        for key in expected(window, [row]):
            if not closed(window, key[2], came[row.id]):
                members[key] += 1
                counted.add(row.id)
    assert {key: line["rows"] for key, line in shown(keeper).items()} == members
    assert counted | late == {row.id for row in everything(stream)}
    assert not counted & late


@pytest.mark.parametrize("kind", ["tumbling", "sliding"])
@given(stream=streams(), corrections=st.sampled_from([0, 7]))
@SOME
def test_a_row_is_late_if_its_window_was_closed_for_good(
    kind: str, stream: list[Batch], corrections: int
) -> None:
    window = WINDOWS[kind]
    late = run(Keeper(plan(window, "final", corrections)), stream)
    for rows, mark in stream:
        limit = None if mark is None else mark - corrections
        for row in rows:
            gone = row.at is None or any(
                closed(window, end, limit) for _, _, end in keys(row, kind)
            )
            assert (row.id in late) == gone


def keys(row: Row, kind: str) -> list[tuple[Any, int, int]]:
    return list(expected(WINDOWS[kind], [row]))


@pytest.mark.parametrize("kind", WINDOWS)
@given(stream=streams(), data=st.data())
@SOME
def test_a_batch_that_runs_again_gives_the_same_bytes(
    kind: str, stream: list[Batch], data: st.DataObject
) -> None:
    """Whatever order Spark brings the rows in."""
    keeper, again = (Keeper(plan(WINDOWS[kind], "early", 7)) for _ in range(2))
    for rows, mark in stream:
        half = len(rows) // 2
        parts = [table(rows[:half]), table(rows[half:])]
        out = keeper.batch(parts, mark)
        other = again.batch(parts[::-1], mark)
        key = lambda line: (line["_output"], (line["late"] or {"id": 0})["id"])  # noqa: E731
        assert sorted(out, key=key) == sorted(other, key=key)
        assert keeper.state == again.state


def test_a_late_row_says_how_late_and_for_which_window() -> None:
    keeper = Keeper(plan(WINDOWS["tumbling"]))
    keeper.batch([table([Row(1, "a", 5, 1), Row(2, "a", 25, 1)])], None)
    keeper.batch([table([Row(3, "a", 7, 4), Row(4, None, None, 9)])], 20)
    timed, timeless = sorted(keeper.late, key=lambda row: row["id"])
    assert timed["amount"] == 4
    assert timed["late_by"] == 13
    bounds = [timed[name].timestamp() for name in ("window_start", "window_end", "watermark")]
    assert bounds == [0, 0.01, 0.02]
    assert timeless["amount"] == 9
    assert timeless["late_by"] is timeless["window_start"] is timeless["window_end"] is None


def test_a_session_that_grows_again_is_taken_back_until_it_closes() -> None:
    keeper = Keeper(plan(WINDOWS["sessions"], corrections_ms=100))
    keeper.batch([table([Row(1, "a", 0, 1), Row(2, "a", 12, 1)])], None)
    keeper.batch([], 17)
    keeper.batch([table([Row(3, "a", 16, 1)])], 18)  # the second session is open again
    keeper.batch(
        [table([Row(4, "a", 5, 1), Row(5, "a", 8, 1)])], 21
    )  # and becomes one with the first
    told = [(line["_change_type"], line["rows"]) for line in keeper.told]
    assert told == [
        ("insert", 1),
        ("insert", 1),
        ("delete", 1),
        ("update_preimage", 1),
        ("update_postimage", 5),
    ]


def test_a_row_that_touches_a_session_that_is_final_is_late() -> None:
    keeper = Keeper(plan(WINDOWS["sessions"]))
    keeper.batch([table([Row(1, "a", 0, 1)])], None)
    keeper.batch([], 6)
    rows = [Row(2, "a", 4, 1), Row(3, "a", 9, 1), Row(4, "b", 4, 1), Row(5, "a", -1, 1)]
    keeper.batch([table(rows)], 7)
    assert sorted(row["id"] for row in keeper.late) == [2, 5]
    keeper.batch([], END_OF_TIME)
    assert {key: line["rows"] for key, line in shown(keeper).items()} == {
        ("a", 0, 5): 1,
        ("a", 9, 14): 1,
        ("b", 4, 9): 1,
    }


@pytest.mark.parametrize(
    ("time", "by", "aggregates", "emit", "cause"),
    [
        ("when", ["kind"], {"n": count()}, "final", "no column when"),
        ("id", ["kind"], {"n": count()}, "final", "id is int64"),
        ("at", ["kind"], {}, "final", "no aggregates"),
        ("at", [], {"n": count()}, "final", "kept by key, and there is none"),
        ("at", ["kind"], {"n": count()}, "sometimes", "emit is 'sometimes'"),
        ("at", ["kind"], {"kind": count()}, "final", "kind would be there twice"),
        ("at", ["kind"], {"watermark": count()}, "final", "watermark would be there twice"),
        ("at", ["kind"], {"n": sum_of("kind")}, "final", "sum of kind, which is string"),
        ("at", ["kind"], {"n": mean_of("kind")}, "final", "mean of kind, which is string"),
        ("at", ["kind"], {"n": percentile("kind", 0.5)}, "final", "percentile of kind"),
    ],
)
def test_what_makes_no_sense_is_refused(
    time: str, by: list[str], aggregates: dict[str, Any], emit: str, cause: str
) -> None:
    with pytest.raises(UsageError, match=cause):
        check(ROWS, time, by, WINDOWS["sessions"], aggregates, emit)


def test_durations_and_numbers_are_checked() -> None:
    assert tumbling("1 minute") == Fixed(60_000_000, 60_000_000)
    assert hopping("1 hour", every="15 minutes") == Fixed(3_600_000_000, 900_000_000)
    assert sliding("10 seconds") == Sliding(10_000_000)
    assert sessions(gap="500 milliseconds") == Sessions(500_000)
    for wrong in ("", "5", "minutes", "5 fortnights", "0 seconds", "-1 second"):
        with pytest.raises(UsageError, match=r"write a (number|longer)"):
            tumbling(wrong)
    with pytest.raises(UsageError, match="leave gaps"):
        hopping("1 minute", every="2 minutes")
    with pytest.raises(UsageError, match="top_k with k=0"):
        top_k("kind", 0)
    with pytest.raises(UsageError, match=r"percentile is 99"):
        percentile("amount", 99)


def test_decimals_and_floats_keep_their_kind() -> None:
    schema = pa.schema([("price", pa.decimal128(10, 2)), ("ratio", pa.float32())])
    assert sum_of("price").type(schema) == pa.decimal128(38, 2)
    assert sum_of("ratio").type(schema) == pa.float64()


@pytest.mark.parametrize("cut", [False, True])  # in one task's rows, or only when parts are added
def test_a_sum_that_does_not_fit_is_refused(cut: bool) -> None:
    schema = pa.schema([("kind", pa.string()), ("at", ROWS.field("at").type), ("n", pa.int64())])
    aggregates = {"total": sum_of("n")}
    keeper = Keeper(Plan(schema, "at", ("kind",), WINDOWS["tumbling"], aggregates, "early", 0))

    def given(*numbers: int) -> pa.Table:
        count = len(numbers)
        return pa.table([["a"] * count, pa.array([0] * count, schema.types[1]), numbers], schema)

    keeper.batch([given(2**62), given(2**62 - 1)], None)
    assert [one["total"] for one in keeper.shown.values()] == [2**63 - 1]
    parts = [given(2**62), given(2**62)] if cut else [given(2**62, 2**62)]
    with pytest.raises(UsageError, match=r"column n: .* beyond 64 bits; .*decimal\(38, 0\)"):
        keeper.batch(parts, None)
    with pytest.raises(UsageError, match="beyond 64 bits"):
        keeper.batch([given(1)], None)
