"""How far time has come: slow, idle and silent partitions, and never back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.cluster import Place
from penstock.spark.time.watermarks import Rules, Watermarks

A, B, C = (Place("t", number) for number in range(3))
NOTHING = Watermarks(None, {})
RULES = Rules(delay_ms=10, idle_ms=60_000)


def seen(newest: dict[Place, int | None], now_ms: int = 0) -> Watermarks:
    return NOTHING.heard(newest, newest, now_ms).contained(newest)


def test_the_slowest_partition_is_waited_for() -> None:
    assert seen({A: 500, B: 100}).advanced(RULES, 0).watermark_ms == 90


def test_a_partition_that_never_had_a_record_holds_time_back_until_it_is_idle() -> None:
    marks = seen({A: 500, B: None})
    assert marks.advanced(RULES, 59_999).watermark_ms is None
    fresh = marks.heard([A, B], [A], 60_000)
    assert fresh.idle(RULES, 60_000) == {B}
    assert fresh.advanced(RULES, 60_000).watermark_ms == 490


def test_without_a_timeout_nothing_is_ever_idle() -> None:
    marks = seen({A: 500, B: None})
    assert marks.advanced(Rules(10, None), 10**15).watermark_ms is None


def test_when_all_are_idle_the_one_furthest_ahead_counts() -> None:
    assert seen({A: 500, B: 100, C: None}).advanced(RULES, 60_000).watermark_ms == 490
    assert seen({A: None}).advanced(RULES, 60_000).watermark_ms is None


def test_a_partition_that_wakes_up_is_waited_for_and_time_does_not_go_back() -> None:
    marks = seen({A: 500, B: 100}).heard([A, B], [A], 60_000).advanced(RULES, 60_000)
    assert marks.watermark_ms == 490
    awake = marks.heard([A, B], [B], 70_000).contained({A: 900}).advanced(RULES, 70_000)
    assert awake.watermark_ms == 490
    assert awake.contained({B: 800}).advanced(RULES, 70_000).watermark_ms == 790


def test_a_partition_that_is_gone_is_not_waited_for() -> None:
    marks = seen({A: 500, B: 100})
    assert marks.heard([A], [], 1).contained({B: 1}).advanced(RULES, 1).watermark_ms == 490


def test_rows_without_a_time_say_nothing() -> None:
    assert seen({A: 500}).contained({A: None}).advanced(RULES, 0).watermark_ms == 490


def test_a_clock_that_goes_back_makes_nothing_idle() -> None:
    assert seen({A: 500, B: 100}, now_ms=10**9).idle(RULES, 0) == set()


step = st.tuples(
    st.dictionaries(st.sampled_from([A, B, C]), st.none() | st.integers(0, 10**6)),
    st.integers(0, 100_000),
)


@given(st.lists(step), st.none() | st.integers(1, 100_000), st.integers(0, 1000))
def test_against_the_definition(
    steps: list[tuple[dict[Place, int | None], int]], idle_ms: int | None, delay_ms: int
) -> None:
    """Written once more from the sentences of the guide, over the whole history."""
    rules = Rules(delay_ms, idle_ms)
    marks, now, highest = NOTHING.heard([A, B, C], [], 0), 0, None
    newest: dict[Place, int] = {}
    heard = dict.fromkeys([A, B, C], 0)
    for rows, passed in steps:
        now += passed
        marks = marks.heard([A, B, C], rows, now).contained(rows).advanced(rules, now)
        heard |= dict.fromkeys(rows, now)
        for place, time_ms in rows.items():
            if time_ms is not None:
                newest[place] = max(time_ms, newest.get(place, time_ms))
        waited = [p for p in heard if idle_ms is None or now - heard[p] < idle_ms]
        if not waited:
            allowed = max(newest.values(), default=None)
        elif all(place in newest for place in waited):
            allowed = min(newest[place] for place in waited)
        else:
            allowed = None
        if allowed is not None:
            highest = allowed - delay_ms if highest is None else max(highest, allowed - delay_ms)
        assert marks.watermark_ms == highest
