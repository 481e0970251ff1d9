"""Collects what many runs find, so that one kind of failure does not hide the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.fault.histories import Life

from penstock.testing.faulty import Crash
from penstock.testing.power_failure import Keep


class Findings:
    """Failures, grouped by what they say apart from numbers."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._count: dict[str, int] = {}

    @contextmanager
    def note(self, where: str, life: Life) -> Iterator[None]:
        """Note a failure in this block, and go on after it."""
        try:
            yield
        except Exception as error:
            kind = re.sub(r"\d+|\.{3,}", "#", f"{type(error).__name__}: {error}")[:100]
            self._count[kind] = self._count.get(kind, 0) + 1
            self._first.setdefault(kind, f"{where}: {error!r:.600}\n{life.story()}")

    def __len__(self) -> int:
        return sum(self._count.values())

    def __str__(self) -> str:
        parts = [f"{self._count[kind]} times, first\n{self._first[kind]}" for kind in self._count]
        return "\n\n".join(parts)

    def must_be_none(self) -> None:
        """Fail with everything that was found."""
        assert not self._count, f"{len(self)} failures of {len(self._count)} kinds\n\n{self}"


def of_crashes_in_recovery(
    crashed_lives: Iterable[tuple[int, Life]], first: Keep, second: Keep
) -> Findings:
    """What is found after another crash, at every operation of the start that follows on the first."""
    findings = Findings()
    for number, crashed in crashed_lives:
        operations = 0
        while True:
            operations += 1
            where = f"crash at {number}, {first}, in recovery at {operations}, {second}"
            life = crashed.after_crash(first, number)
            life.files.crash_at = operations
            try:
                life.start()
                break
            except Crash:
                pass
            except Exception as error:
                with findings.note(where, life):
                    raise error
                break
            life = life.after_crash(second, operations)
            with findings.note(where, life):
                life.start().check()
                life.go_on()
    return findings
