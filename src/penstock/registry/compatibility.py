"""Which versions a new schema is compared with, and who must be able to read whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.registry.kinds import Parsed


class Level(NamedTuple):
    """One row of the table."""

    backward: bool
    """A reader with the new schema understands what was written with an old one."""
    forward: bool
    """A reader with an old schema understands what is written with the new one."""
    transitive: bool
    """All old schemas count, not only the last."""


DEFAULT_LEVEL: Final = "BACKWARD"
LEVELS: Final = {
    "NONE": Level(backward=False, forward=False, transitive=False),
    "BACKWARD": Level(backward=True, forward=False, transitive=False),
    "BACKWARD_TRANSITIVE": Level(backward=True, forward=False, transitive=True),
    "FORWARD": Level(backward=False, forward=True, transitive=False),
    "FORWARD_TRANSITIVE": Level(backward=False, forward=True, transitive=True),
    "FULL": Level(backward=True, forward=True, transitive=False),
    "FULL_TRANSITIVE": Level(backward=True, forward=True, transitive=True),
}


class Old(NamedTuple):
    """A version to compare with."""

    type: str
    number: int
    parsed: Parsed


def problems(level: str, new_type: str, new: Parsed, olds: Sequence[Old]) -> list[str]:
    """Why a schema may not follow others, given oldest first; empty if it may."""
    rule = LEVELS[level]
    compared = olds if rule.transitive else olds[-1:]
    found: list[str] = []
    for old in reversed(compared):
        if not (rule.backward or rule.forward):
            continue
        if old.type != new_type:
            found.append(f"version {old.number} is of type {old.type}, not {new_type}")
            continue
        if rule.backward:
            causes = new.cannot_read(old.parsed)
            found += [f"the new schema cannot read version {old.number}: {c}" for c in causes]
        if rule.forward:
            causes = old.parsed.cannot_read(new)
            found += [f"version {old.number} cannot read the new schema: {c}" for c in causes]
    return found
