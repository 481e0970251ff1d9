"""The kinds of windows, as values: which stretch of time a result speaks of.

All times are whole microseconds since 1970, Spark's own precision. A tumbling, hopping or session
window holds start <= time < end; a sliding one start < time <= end, for it ends with a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.errors import UsageError
from penstock.spark.time.durations import duration_ms

OPERATION: Final = "cannot make windows"


@dataclass(frozen=True, slots=True)
class Fixed:
    """Windows of one size that begin at multiples of a step: tumbling if the step is the size."""

    size_us: int
    step_us: int


@dataclass(frozen=True, slots=True)
class Sliding:
    """For each row the window that ends with it."""

    size_us: int


@dataclass(frozen=True, slots=True)
class Sessions:
    """Rows that follow each other within the gap; a session ends that long after its last row."""

    gap_us: int


Window = Fixed | Sliding | Sessions


def tumbling(size: str) -> Fixed:
    """Windows that follow each other: each row belongs to one."""
    return hopping(size, size)


def hopping(size: str, every: str) -> Fixed:
    """Windows of a size, a new one every so often: a row belongs to several.

    Raises:
        UsageError: there would be rows between two windows.
    """
    size_us, step_us = duration_us("size", size), duration_us("every", every)
    if step_us > size_us:
        cause = f"windows of {size} every {every} leave gaps between them"
        raise UsageError(OPERATION, cause, f"make every at most {size}")
    return Fixed(size_us, step_us)


def sliding(size: str) -> Sliding:
    """For each row the stretch of that size that ends with it; rows of the same time share it."""
    return Sliding(duration_us("size", size))


def sessions(gap: str) -> Sessions:
    """Rows without a gap of more than this between them."""
    return Sessions(duration_us("gap", gap))


def duration_us(name: str, text: str, *, least: int = 1) -> int:
    """A duration as Spark writes it, such as "10 seconds".

    Raises:
        UsageError: it is none, or too short.
    """
    found = duration_ms(OPERATION, name, text) * 1000
    if found < least:
        raise UsageError(OPERATION, f"{name} is '{text}'", "write a longer one")
    return found
