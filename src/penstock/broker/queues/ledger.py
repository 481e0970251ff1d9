"""Who has what of a queue: the state of every position of a log, for one group of readers.

    READY --take--> HELD --end--> ENDING --finish--> DONE
      ^               |              |
      '---put back----+----fail------'    (DONE instead, if it was delivered often enough)

    READY     may be given out, for the first time or again
    HELD      given to a holder until a deadline
    ENDING    its holder is done with it, and that is on its way to the disk
    DONE      never given out again

Everything below `start` is done. A run of neighbours in the same state costs as much as one position.
What a holder does with a position is counted: how often it was delivered, and lost again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from penstock.broker.queues.errors import NotHeldError
from penstock.broker.queues.runs import ENDLESS, Run, Runs


class Stage(Enum):
    """See the module."""

    READY = "ready"
    HELD = "held"
    ENDING = "ending"
    DONE = "done"


class State(NamedTuple):
    """What is known of a position."""

    stage: Stage
    deliveries: int = 0
    holder: str = ""
    deadline: float = 0.0


_READY: Final = State(Stage.READY)
_DONE: Final = State(Stage.DONE)


class Given(NamedTuple):
    """Positions that were given out, and for which time."""

    first: int
    last: int
    deliveries: int


class Kept(NamedTuple):
    """What is to be remembered of positions: how often they were delivered, or None if done."""

    first: int
    last: int
    deliveries: int | None


class Ledger:
    """See the module."""

    def __init__(self, start: int, kept: Iterable[Kept] = ()) -> None:
        self.start = start
        self._runs: Runs[State] = Runs(_READY)
        self.restore(kept)

    def restore(self, kept: Iterable[Kept]) -> None:
        """Take over what was remembered."""
        for first, last, deliveries in kept:
            state = _DONE if deliveries is None else State(Stage.READY, deliveries)
            if last >= self.start:
                self._runs.put(max(first, self.start), last, state)
        self._advance()

    # -- looking

    def kept(self) -> Iterator[Kept]:
        """What is to be remembered above the start."""
        for run in self._runs:
            done = run.value.stage is Stage.DONE
            yield Kept(run.first, run.last, None if done else run.value.deliveries)

    def __len__(self) -> int:
        """Runs that are kept, which is what the ledger costs."""
        return len(self._runs)

    @property
    def end(self) -> int:
        """The position after the last that was ever given out."""
        return max(self.start, self._runs.end)

    @property
    def unfinished(self) -> int:
        """Positions that were given out and are not done; those that wait for another try, too."""
        return sum(run.size for run in self._runs if run.value.stage is not Stage.DONE)

    @property
    def finished(self) -> int:
        """Positions above the start that are done."""
        return sum(run.size for run in self._runs if run.value.stage is Stage.DONE)

    @property
    def next_deadline(self) -> float | None:
        """When the first of the holders is late."""
        return min((run.value.deadline for run in self._held()), default=None)

    def next_ready(self, position: int) -> int:
        """The first position from there on that may be given out; it may lie beyond the log's end."""
        return next(
            run.first
            for run in self._runs.over(max(position, self.start))
            if run.value.stage is Stage.READY
        )

    # -- giving out

    def take(
        self, first: int, last: int, holder: str, deadline: float, most: int = ENDLESS
    ) -> list[Given]:
        """Give out what is ready of these positions, `most` of them."""
        given: list[Given] = []
        for run in self._within(first, last, Stage.READY):
            if most == 0:
                break
            end = min(run.last, run.first + most - 1)
            deliveries = run.value.deliveries + 1
            self._runs.put(run.first, end, State(Stage.HELD, deliveries, holder, deadline))
            given.append(Given(run.first, end, deliveries))
            most -= end - run.first + 1
        return given

    def skip(self, first: int, last: int) -> list[Kept]:
        """Finish what is ready of these positions: there is nothing at them to be given out."""
        skipped = [self._set(run, _DONE) for run in self._within(first, last, Stage.READY)]
        self._advance()
        return skipped

    # -- what holders say

    def check(self, first: int, last: int, holder: str) -> None:
        """Pass if these positions are held by the holder; those below the start do not matter.

        Raises:
            NotHeldError: some are not, or no longer.
        """
        for run in self._runs.over(max(first, self.start), last):
            if run.value.stage is not Stage.HELD or run.value.holder != holder:
                raise NotHeldError(
                    f"end {first} to {last}",
                    f"{run.first} to {run.last} are {run.value.stage.value}"
                    if run.value.holder in ("", holder)
                    else f"{run.first} to {run.last} are held by another",
                    "they are given out again if they are not done",
                )

    def renew(self, first: int, last: int, deadline: float) -> None:
        """Give the holder of these positions more time."""
        for run in self._within(first, last, Stage.HELD):
            self._runs.put(run.first, run.last, run.value._replace(deadline=deadline))

    def end_holding(self, first: int, last: int) -> None:
        """The holder of these positions is done with them."""
        for run in self._within(first, last, Stage.HELD):
            self._runs.put(run.first, run.last, State(Stage.ENDING, run.value.deliveries))

    def finish(self, first: int, last: int) -> None:
        """It is on the disk that these positions are done."""
        for run in self._within(first, last, Stage.ENDING):
            self._runs.put(run.first, run.last, _DONE)
        self._advance()

    def fail(self, first: int, last: int, most: int) -> list[Kept]:
        """It did not get to the disk: they are given out again, unless `most` times is enough."""
        return self._put_back(self._within(first, last, Stage.ENDING), most)

    def put_back(self, first: int, last: int, most: int) -> list[Kept]:
        """The holder gives these positions back; they are done if they were given out `most` times."""
        return self._put_back(self._within(first, last, Stage.HELD), most)

    def put_back_all(self, holder: str, most: int) -> list[Kept]:
        """Take everything from a holder that has gone."""
        return self._put_back([run for run in self._held() if run.value.holder == holder], most)

    def expire(self, now: float, most: int) -> list[Kept]:
        """Take back what holders have kept for too long."""
        return self._put_back([run for run in self._held() if run.value.deadline <= now], most)

    # -- the log changes

    def move_start(self, position: int) -> None:
        """What lies below is gone from the log, whatever its state was."""
        if position > self.start:
            self.start = position
            self._runs.drop_below(position)
            self._advance()

    def cut(self, position: int) -> None:
        """What lies from there on has gone from the log, and other things will come in its place."""
        self._runs.drop_from(position)
        self.start = min(self.start, position)

    # -- helpers

    def _held(self) -> list[Run[State]]:
        return [run for run in self._runs if run.value.stage is Stage.HELD]

    def _within(self, first: int, last: int, stage: Stage) -> list[Run[State]]:
        first = max(first, self.start)
        return [run for run in self._runs.over(first, last) if run.value.stage is stage]

    def _put_back(self, runs: Iterable[Run[State]], most: int) -> list[Kept]:
        kept: list[Kept] = []
        for run in runs:
            deliveries = run.value.deliveries
            ready = State(Stage.READY, deliveries)
            kept.append(self._set(run, ready if deliveries < most else _DONE))
        self._advance()
        return kept

    def _set(self, run: Run[State], state: State) -> Kept:
        self._runs.put(run.first, run.last, state)
        done = state.stage is Stage.DONE
        return Kept(run.first, run.last, None if done else state.deliveries)

    def _advance(self) -> None:
        """Everything below the first position that is not done needs no run."""
        first = next(self._runs.over(self.start))
        if first.value.stage is Stage.DONE:
            self.start = first.last + 1
            self._runs.drop_below(self.start)
