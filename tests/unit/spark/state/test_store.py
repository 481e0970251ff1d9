"""A bucket of state against a dict, over many batches, with merges small enough to happen."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.spark.state.stores import OPERATOR, Row, Store

from penstock.errors import UsageError
from penstock.spark.state import merging
from penstock.spark.state.bucket import VERSIONS_KEPT
from penstock.spark.state.container import DamagedStateError
from penstock.spark.state.operators import Operator
from penstock.spark.state.places import LocalPlace

_ROWS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(-2, 2), st.none() | st.integers(0, 60)), max_size=12
)


@pytest.fixture(autouse=True, scope="module")
def small_merges() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "EVERY", 2)
        patch.setattr(merging, "SLICE_ROWS", 6)
        patch.setattr(merging, "_PACE", 2)
        patch.setattr(merging, "_SMALL_ROWS", 4)
        patch.setattr(merging, "FANOUT", 3)
        yield


class Oracle:
    def __init__(self) -> None:
        self.stored: dict[int, tuple[int, int | None]] = {}

    def run(self, rows: list[Row], now: int | None) -> list[tuple[object, ...]]:
        fired = set()
        for key, (total, due) in self.stored.items():
            if now is not None and due is not None and due <= now:
                fired.add(key)
                self.stored[key] = (total, None)
        for key, amount, due in rows:
            total, before = self.stored.get(key, (0, None))
            self.stored[key] = (total + amount, due if due is not None else before)
        at_hand = sorted(fired | {key for key, _, _ in rows})
        out: list[tuple[object, ...]] = []
        out += [(key, self.stored[key][0], key in fired) for key in at_hand]
        self.stored = {key: value for key, value in self.stored.items() if value[0]}
        return out


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(_ROWS, st.booleans()), min_size=1, max_size=40), st.integers(0, 3))
def test_it_is_what_a_dict_would_be(batches: list[tuple[list[Row], bool]], pace: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        oracle, store = Oracle(), Store(LocalPlace(Path(folder)))
        for number, (rows, again) in enumerate(batches):
            now = None if number == 0 else number * pace
            expected = oracle.run(rows, now)
            assert store.run(number, rows, now) == expected
            if again:
                assert store.run(number, rows, now) == expected
            kept = {key: total for key, (total, _) in oracle.stored.items()}
            assert store.all(number) == kept


def test_a_batch_that_runs_again_writes_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        store = Store(LocalPlace(folder))
        for number in range(20):
            store.run(number, [(number * 7 % 40 + k, 1, 5 * k) for k in range(5)], number)
            if folder.name == "b":
                store.opened = type(store.opened)()
                store.run(number, [(number * 7 % 40 + k, 1, 5 * k) for k in range(5)], number)
        found = sorted((folder / "bucket-0-of-1").iterdir())
        contents.append({file.name: file.read_bytes() for file in found})
    assert contents[0] == contents[1]
    assert any("merged" in name for name in contents[0])


def test_files_that_nobody_needs_are_removed(tmp_path: Path) -> None:
    store = Store(LocalPlace(tmp_path))
    for number in range(200):
        store.run(number, [(key, 1, None) for key in range(number % 3, 40, 9)])
    assert len(list((tmp_path / "bucket-0-of-1").iterdir())) < 4 * VERSIONS_KEPT + 40


def test_a_batch_can_be_run_again_from_any_version_that_is_kept(tmp_path: Path) -> None:
    store = Store(LocalPlace(tmp_path))
    for number in range(50):
        store.run(number, [(number % 11, 1, None)])
    before = store.all(50 - VERSIONS_KEPT)
    for number in range(51 - VERSIONS_KEPT, 51):
        store.run(number, [(100, 1, None)])
    assert store.all(50) == {**before, 100: VERSIONS_KEPT}


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped header", "flipped rows"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    store = Store(LocalPlace(tmp_path))
    for number in range(3):
        store.run(number, [(number, 1, None)])
    newest = max((tmp_path / "bucket-0-of-1").iterdir())
    data = bytearray(newest.read_bytes())
    data[40 if damage == "flipped header" else len(data) // 2 + 100] ^= 1
    if damage == "missing":
        newest.unlink()
    else:
        newest.write_bytes(data[:-10] if damage == "cut" else data)
    with pytest.raises(DamagedStateError, match=f"{newest.name}.*(savepoint)"):
        Store(LocalPlace(tmp_path)).run(3, [(1, 1, None)])


def test_a_lost_older_run_is_named(tmp_path: Path) -> None:
    for number in range(2):
        Store(LocalPlace(tmp_path)).run(number, [(number, 1, None)])
    (tmp_path / "bucket-0-of-1" / "000000000000.state").unlink()
    with pytest.raises(DamagedStateError, match=r"000000000000\.state.*missing"):
        Store(LocalPlace(tmp_path)).run(2, [(0, 1, None)])


def test_rows_expire_when_their_key_is_left_alone(tmp_path: Path) -> None:
    store = Store(LocalPlace(tmp_path), ttl_ms=10)
    store.run(
        0, [(1, 1, None), (2, 1, None)]
    )  # no time is known yet: it counts from the next batch
    store.run(1, [(2, 1, None), (3, 1, None)], touched=100)
    assert store.run(2, [(1, 1, None)], touched=109) == [(1, 2, False)]
    assert store.run(3, [(2, 1, None), (1, 1, None)], touched=110) == [(1, 3, False), (2, 1, False)]


def test_what_expired_is_dropped_by_merges(tmp_path: Path) -> None:
    store = Store(LocalPlace(tmp_path), ttl_ms=10)
    for number in range(60):
        store.run(number, [(number, 1, None)], touched=number)
    assert set(range(50, 60)) <= set(store.all(59)) and len(store.all(59)) < 40


def test_new_columns_are_null_in_old_rows(tmp_path: Path) -> None:
    Store(LocalPlace(tmp_path)).run(0, [(1, 5, None)])
    seen: list[pa.Table] = []

    def look(state: pa.Table, rows: pa.Table, _: object) -> tuple[pa.Table, pa.Table]:
        seen.append(state)
        return state, OPERATOR.output.empty_table()

    wider = OPERATOR.state.append(pa.field("note", pa.string()))
    changed = Operator("totals", ("key",), look, wider, OPERATOR.output)
    Store(LocalPlace(tmp_path), changed).run(1, [(1, 1, None)])
    assert seen[0].to_pylist() == [{"key": 1, "total": 5, "_due": None, "note": None}]


@pytest.mark.parametrize(
    ("columns", "by", "message"),
    [
        ([("key", pa.int64()), ("_due", pa.int64())], "key", "column total is gone"),
        (
            [("key", pa.int64()), ("total", pa.string()), ("_due", pa.int64())],
            "key",
            "total was int64, not string",
        ),
        ([("total", pa.int64()), ("key", pa.int64())], "total", r"its key is \(key\)"),
    ],
)
def test_other_changes_of_the_columns_are_refused(
    tmp_path: Path, columns: list[tuple[str, pa.DataType]], by: str, message: str
) -> None:
    Store(LocalPlace(tmp_path)).run(0, [(1, 5, None)])
    changed = Operator("totals", (by,), OPERATOR.function, pa.schema(columns), OPERATOR.output)
    with pytest.raises(UsageError, match=message):
        Store(LocalPlace(tmp_path), changed).run(1, [(1, 1, None)])


def test_a_key_that_was_not_at_hand_is_refused(tmp_path: Path) -> None:
    def wrong(state: pa.Table, rows: pa.Table, _: object) -> tuple[pa.Table, pa.Table]:
        strange = pa.table([[7], [1], [None]], schema=OPERATOR.state)
        return strange, OPERATOR.output.empty_table()

    changed = Operator("totals", ("key",), wrong, OPERATOR.state, OPERATOR.output)
    with pytest.raises(UsageError, match=r"key \(7,\)"):
        Store(LocalPlace(tmp_path), changed).run(0, [(1, 1, None)])
