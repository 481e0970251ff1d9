"""What becomes of the keys of a batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.errors import UsageError
from penstock.views.changes import CHANGE_TYPE, Changes


def plain(rows: Iterable[tuple[Any, ...]], order_by: tuple[str, ...] = ()) -> Changes:
    changes = Changes(
        "cannot write", ("user", "total", "at"), ("user", "total"), ("user",), order_by
    )
    changes.add(rows)
    return changes


def changelog(rows: Iterable[tuple[Any, ...]], order_by: tuple[str, ...] = ()) -> Changes:
    names = (CHANGE_TYPE, "user", "total", "at")
    changes = Changes("cannot write", names, ("user", "total"), ("user",), order_by)
    changes.add(rows)
    return changes


def test_rows_are_upserts() -> None:
    found = plain([("a", 1, 0), ("b", 2, 0)])
    assert found.upserts() == [("a", 1), ("b", 2)]
    assert found.deletes() == []


def test_a_key_that_comes_twice_needs_an_order() -> None:
    with pytest.raises(UsageError, match=r"two rows of \{'user': 'a'\}.*order_by"):
        plain([("a", 1, 0), ("a", 2, 1)])
    assert plain([("a", 1, 0), ("a", 1, 1)]).upserts() == [("a", 1)]


def test_the_last_row_of_a_key_counts_however_they_come() -> None:
    rows = [("a", 1, 10), ("a", 2, 30), ("a", 3, 20), ("a", 4, None)]
    for order in itertools.permutations(rows):
        assert plain(order, ("at",)).upserts() == [("a", 2)]
    with pytest.raises(UsageError, match="order_by"):
        plain([("a", 1, 10), ("a", 2, 10)], ("at",))


def test_changes_of_a_changelog() -> None:
    rows = [
        ("insert", "new", 1, 0),
        ("update_preimage", "old", 1, 0),
        ("update_postimage", "old", 2, 0),
        ("delete", "gone", 1, 0),
    ]
    for order in itertools.permutations(rows):
        found = changelog(order)
        assert sorted(found.upserts()) == [("new", 1), ("old", 2)]
        assert found.deletes() == [("gone",)]


def test_a_delete_and_an_insert_are_an_update() -> None:
    rows = [("delete", "a", 1, 0), ("insert", "a", 2, 0)]
    for order in (rows, rows[::-1]):
        assert (changelog(order).upserts(), changelog(order).deletes()) == ([("a", 2)], [])
        ordered = changelog(order, ("at",))
        assert (ordered.upserts(), ordered.deletes()) == ([("a", 2)], [])


def test_a_delete_that_comes_later_by_its_order() -> None:
    rows = [("insert", "a", 2, 1), ("delete", "a", 2, 2)]
    for order in (rows, rows[::-1]):
        found = changelog(order, ("at",))
        assert (found.upserts(), found.deletes()) == ([], [("a",)])


def test_what_cannot_be_placed() -> None:
    with pytest.raises(UsageError, match="user, of the key, is null"):
        plain([(None, 1, 0)])
    with pytest.raises(UsageError, match="_change_type is 'upsert'"):
        changelog([("upsert", "a", 1, 0)])
