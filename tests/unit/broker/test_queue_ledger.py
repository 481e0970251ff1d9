"""The ledger of a queue beside a model that has a note for every single position."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.broker.queues.errors import NotHeldError
from penstock.broker.queues.ledger import Kept, Ledger
from penstock.broker.queues.runs import ENDLESS, Runs

SIZE = 40
MOST = 3
Span = tuple[int, int]
SPANS = st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)).map(
    lambda span: (min(span), max(span))
)
HOLDERS = st.sampled_from(["ann", "bob"])


@dataclass(frozen=True)
class Note:
    stage: str = "ready"
    deliveries: int = 0
    holder: str = ""
    deadline: float = 0.0


@dataclass
class Model:
    """As simple as it can be."""

    notes: list[Note] = field(default_factory=lambda: [Note()] * SIZE)

    def where(self, stage: str, span: Span | None = None) -> list[int]:
        first, last = span or (0, SIZE - 1)
        return [p for p in range(first, last + 1) if self.notes[p].stage == stage]

    def put_back(self, positions: list[int], most: int = MOST) -> None:
        for position in positions:
            note = self.notes[position]
            back = Note("ready", note.deliveries)
            self.notes[position] = back if note.deliveries < most else Note("done")

    @property
    def start(self) -> int:
        open_ = [p for p in range(SIZE) if self.notes[p].stage != "done"]
        return open_[0] if open_ else SIZE


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(0)
        self.model = Model()
        self.now = 0.0

    @rule(span=SPANS, holder=HOLDERS, most=st.integers(0, 10))
    def take(self, span: Span, holder: str, most: int) -> None:
        given = self.ledger.take(*span, holder, self.now + 10, most)
        taken = self.model.where("ready", span)[:most]
        found = [(p, g.deliveries) for g in given for p in range(g.first, g.last + 1)]
        assert found == [(p, self.model.notes[p].deliveries + 1) for p in taken]
        for position, deliveries in found:
            self.model.notes[position] = Note("held", deliveries, holder, self.now + 10)

    @rule(span=SPANS)
    def skip(self, span: Span) -> None:
        self.ledger.skip(*span)
        for position in self.model.where("ready", span):
            self.model.notes[position] = Note("done")

    @rule(span=SPANS, holder=HOLDERS, how=st.sampled_from(["end", "back", "renew"]))
    def settle(self, span: Span, holder: str, how: str) -> None:
        first, last = max(span[0], self.model.start), span[1]
        notes = self.model.notes[first : last + 1]
        if not all(note.stage == "held" and note.holder == holder for note in notes):
            with pytest.raises(NotHeldError):
                self.ledger.check(*span, holder)
            return
        self.ledger.check(*span, holder)
        positions = list(range(first, last + 1))
        if how == "end":
            self.ledger.end_holding(*span)
            for position in positions:
                self.model.notes[position] = replace(self.model.notes[position], stage="ending")
        elif how == "back":
            self.ledger.put_back(*span, MOST)
            self.model.put_back(positions)
        else:
            self.ledger.renew(*span, self.now + 20)
            for position in positions:
                note = self.model.notes[position]
                self.model.notes[position] = replace(note, deadline=self.now + 20)

    @rule(span=SPANS, durable=st.booleans())
    def settled(self, span: Span, durable: bool) -> None:
        ending = self.model.where("ending", span)
        if durable:
            self.ledger.finish(*span)
            for position in ending:
                self.model.notes[position] = Note("done")
        else:
            self.ledger.fail(*span, MOST)
            self.model.put_back(ending)

    @rule(holder=HOLDERS)
    def leave(self, holder: str) -> None:
        held = [p for p in self.model.where("held") if self.model.notes[p].holder == holder]
        self.ledger.put_back_all(holder, MOST)
        self.model.put_back(held)

    @rule(seconds=st.integers(1, 15))
    def expire(self, seconds: int) -> None:
        self.now += seconds
        self.ledger.expire(self.now, MOST)
        held = self.model.where("held")
        self.model.put_back([p for p in held if self.model.notes[p].deadline <= self.now])

    @rule(position=st.integers(0, 8))
    def retention(self, position: int) -> None:
        self.ledger.move_start(position)
        self.model.notes[:position] = [Note("done")] * position

    @rule(position=st.integers(SIZE - 8, SIZE))
    def cut(self, position: int) -> None:
        self.ledger.cut(position)
        self.model.notes[position:] = [Note()] * (SIZE - position)

    @rule()
    def restart(self) -> None:
        """What is kept makes the same ledger again, with nobody who holds anything."""
        kept = Ledger(self.ledger.start, self.ledger.kept())
        for position, note in enumerate(self.model.notes):
            if note.stage in ("held", "ending"):
                self.model.notes[position] = Note("ready", note.deliveries)
        self.ledger = kept

    @invariant()
    def is_the_same(self) -> None:
        ledger, model = self.ledger, self.model
        assert ledger.start == model.start
        ready = [*model.where("ready"), SIZE]
        for position in range(ledger.start, SIZE):
            assert ledger.next_ready(position) == min(p for p in ready if p >= position)
        open_ = [n for n in model.notes if n.stage in ("held", "ending") or n.deliveries]
        assert ledger.unfinished == len(open_)
        assert ledger.finished == len([p for p in model.where("done") if p > model.start])
        deadlines = [model.notes[p].deadline for p in model.where("held")]
        assert ledger.next_deadline == min(deadlines, default=None)

    @invariant()
    def has_no_more_runs_than_it_needs(self) -> None:
        notes = self.model.notes[self.ledger.start :]
        changes = sum(1 for before, now in pairwise(notes) if before != now)
        assert len(self.ledger) <= changes + 1


Machine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLedger = Machine.TestCase


def test_a_million_finished_positions_are_one_run() -> None:
    ledger = Ledger(0)
    ledger.take(0, 0, "slow", 10.0)
    for first in range(1, 1_000_000, 500):
        ledger.take(first, first + 499, "fast", 10.0)
        ledger.end_holding(first, first + 499)
        ledger.finish(first, first + 499)
    assert (ledger.start, ledger.finished, len(ledger)) == (0, 1_000_000, 2)
    ledger.end_holding(0, 0)
    ledger.finish(0, 0)
    assert (ledger.start, ledger.finished, len(ledger)) == (1_000_001, 0, 0)


def test_an_ending_cannot_be_ended_again() -> None:
    ledger = Ledger(0)
    ledger.take(0, 9, "one", 10.0)
    ledger.end_holding(0, 9)
    with pytest.raises(NotHeldError):
        ledger.check(0, 9, "one")


def test_restoring_below_the_start_changes_nothing() -> None:
    ledger = Ledger(10)
    ledger.restore([Kept(0, 4, 2), Kept(5, 12, None)])
    assert ledger.start == 13
    assert len(ledger) == 0


def test_runs_are_endless() -> None:
    runs: Runs[str] = Runs("")
    runs.put(5, 7, "a")
    assert [tuple(run) for run in runs.over(3)] == [
        (3, 4, ""),
        (5, 7, "a"),
        (8, ENDLESS, ""),
    ]
