"""What a view needs of the beginning of its input."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.views.beginnings import BeginningGoneError, check_beginning
from penstock.views.version import Commit, Position, has_caught_up


@pytest.mark.parametrize(
    ("wanted", "found", "missing"),
    [
        ({}, {"a": {"0": 0, "1": 0}}, None),
        ({}, {"a": {"0": 0, "1": 3}}, "offsets 0 to 2 of a partition 1"),
        ({}, {"compacted": {"0": 5}}, None),
        ({"a": {"0": 5}}, {"a": {"0": 5}}, None),
        ({"a": {"0": 5}}, {"a": {"0": 2}}, None),
        ({"a": {"0": 5}}, {"a": {"0": 7}}, "offsets 5 to 6 of a partition 0"),
        # A partition that came later, or a topic that the old version did not read.
        ({"a": {"0": 5}}, {"a": {"0": 5, "1": 1}}, "offsets 0 to 0 of a partition 1"),
        ({"a": {"0": 5}}, {"b": {"0": 1}}, "offsets 0 to 0 of b partition 0"),
    ],
)
def test_what_is_missing(wanted: Position, found: Position, missing: str | None) -> None:
    def check() -> None:
        check_beginning("cannot rebuild", wanted, found, lambda topic: topic == "compacted")

    if missing is None:
        check()
        return
    with pytest.raises(BeginningGoneError, match=f"cannot rebuild: {missing} are missing"):
        check()


def at(position: Position, watermark_ms: int | None = None) -> Commit:
    return Commit("q", 0, position, watermark_ms, 0)


@pytest.mark.parametrize(
    ("new", "begins", "current", "caught_up"),
    [
        (at({"a": {"0": 5}}), {"a": {"0": 0}}, at({"a": {"0": 5}}), True),
        (at({"a": {"0": 4}}), {"a": {"0": 0}}, at({"a": {"0": 5}}), False),
        (at({"a": {"0": 5}}), {"a": {"0": 0}}, at({"a": {"0": 5, "1": 1}}), False),
        (at({"a": {"0": 5}}), {"a": {"0": 0}}, at({"a": {"0": 5}, "b": {"0": 1}}), True),
        (at({"a": {"0": 5}}), None, at({"a": {"0": 5}, "b": {"0": 1}}), False),
        (at({}, 5), None, at({}, 6), False),
        (at({}, 6), None, at({}, 6), True),
        (at({}, None), None, at({}, 6), True),
        (replace(at({}, None), timed=True), None, at({}, 6), False),
        (at({}, 5), None, at({}, None), True),
    ],
)
def test_when_a_version_has_caught_up(
    new: Commit, begins: Position | None, current: Commit, caught_up: bool
) -> None:
    assert has_caught_up(new, begins, current) == caught_up
