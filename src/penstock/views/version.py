"""What is known of a view's versions: their states, and the input that each reflects.

A version is built by one query from the beginning of its input. It is `building` until it has seen as
much as the one that is read, and takes its place then, in one transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from penstock.views.kinds import Kind

Position: TypeAlias = dict[str, dict[str, int]]
"""For every partition of every topic the offset that comes next, as Spark keeps it."""


class State(StrEnum):
    """Where a version is in its life."""

    BUILDING = "building"
    CURRENT = "current"
    RETIRED = "retired"


# Nothing comes back: a version that was replaced has missed what came since.
NEXT: Final[dict[State, frozenset[State]]] = {
    State.BUILDING: frozenset({State.CURRENT, State.RETIRED}),
    State.CURRENT: frozenset({State.RETIRED}),
    State.RETIRED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a view."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a version, and those that name a row."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(column.name for column in self.columns)

    def kind(self, name: str) -> Kind | None:
        """What a column holds, or None if there is none of that name."""
        return next((column.kind for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class Commit:
    """Which batch of which query was written, and the input that the view reflects with it."""

    query_id: str
    batch: int
    position: Position
    watermark_ms: int | None
    at_ms: int
    """When it was written."""
    timed: bool = False
    """Whether its query has a watermark, although it may not be known yet."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a view."""

    view: str
    number: int
    state: State
    shape: Shape | None
    """None until its query has begun."""
    begins: Position | None
    """Where its query began to read; None if that is not known."""
    last: Commit | None
    """None until its first batch."""

    def must_become(self, state: State) -> None:
        """State that a change is one of the table."""
        assert state in NEXT[self.state], f"{self.view} version {self.number}: {state}"


def has_caught_up(new: Commit, begins: Position | None, current: Commit) -> bool:
    """Whether a version has seen as much as the one that is read now.

    Of topics that the new one does not read nothing is asked, nor of time if it has none.
    """
    for topic, partitions in current.position.items():
        if begins is not None and topic not in begins:
            continue
        reached = new.position.get(topic, {})
        if any(reached.get(number, 0) < offset for number, offset in partitions.items()):
            return False
    if current.watermark_ms is None or (new.watermark_ms is None and not new.timed):
        return True
    return new.watermark_ms is not None and new.watermark_ms >= current.watermark_ms
