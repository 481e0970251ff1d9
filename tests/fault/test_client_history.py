"""Tests for the tests: every anomaly that is put into a history is found, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.fault.client_history import Entry, History, Kind, Spot

pytestmark = pytest.mark.fault

HERE, OTHER = Spot("t", 0), Spot("t", 1)
LENGTH = 12


class Story:
    """Two producers, one partition that matters, one that does not; told to a history at the end."""

    def __init__(self) -> None:
        # Producers take turns; the record at an offset is named by its producer and number.
        self.sent = [(at % 2, b"%d/%d" % (at % 2, at // 2)) for at in range(LENGTH)]
        names = [name for _, name in self.sent]
        self.log = [Entry(offset, name) for offset, name in enumerate(names)]
        self.acknowledged = list(self.log[:10])  # the last two are stored, and nobody was told
        self.seen = list(self.log[:8])
        self.earlier_log: list[Entry] = list(self.log[:6])

    def anomalies(self) -> set[Kind]:
        history = History([HERE, OTHER])
        for producer, name in self.sent:
            history.sent(HERE, producer, name)
        assert history.check(history.promises(), {HERE: self.earlier_log, OTHER: []}) == []
        for offset, name in self.acknowledged:
            history.acknowledged(HERE, name, offset)
        for offset, name in self.seen:
            history.saw(HERE, offset, name)
        found = history.check(history.promises(), {HERE: self.log, OTHER: []})
        assert {one.spot for one in found} <= {HERE}
        return {one.kind for one in found}


def test_a_history_without_fault_has_no_anomaly() -> None:
    assert Story().anomalies() == set()


def test_a_log_may_lack_what_nobody_was_told_of() -> None:
    story = Story()
    del story.log[10:]
    assert story.anomalies() == set()


def lose_the_last(story: Story) -> None:
    """An acknowledged tail was cut."""
    del story.log[9:]


def lose_one(story: Story) -> None:
    del story.log[8]


def lose_one_and_close_the_gap(story: Story) -> None:
    names = [name for _, name in story.log]
    del names[8]
    story.log = [Entry(offset, name) for offset, name in enumerate(names)]


def lose_everything(story: Story) -> None:
    story.log.clear()


def lose_what_only_a_reader_saw(story: Story) -> None:
    story.acknowledged = story.acknowledged[:4]
    story.earlier_log = story.log[:4]
    story.log = story.log[:6]


def lose_what_only_a_check_saw(story: Story) -> None:
    story.acknowledged.clear()
    story.seen.clear()
    story.log = story.log[:4]


def repeat_an_acknowledged_record(story: Story) -> None:
    story.log.append(Entry(LENGTH, story.log[3].name))


def repeat_a_record_nobody_was_told_of(story: Story) -> None:
    story.log.append(Entry(LENGTH, story.log[11].name))


def repeat_and_shift(story: Story) -> None:
    """A retry was stored in the middle: everything after it has another offset."""
    names = [name for _, name in story.log]
    names.insert(8, names[7])
    story.log = [Entry(offset, name) for offset, name in enumerate(names)]


def swap_two_of_one_producer(story: Story) -> None:
    story.log[8], story.log[10] = Entry(8, story.log[10].name), Entry(10, story.log[8].name)


def swap_two_that_were_not_acknowledged(story: Story) -> None:
    story.acknowledged = story.acknowledged[:8]
    story.log[9], story.log[11] = Entry(9, story.log[11].name), Entry(11, story.log[9].name)


def swap_two_of_different_producers(story: Story) -> None:
    """Their order in the log is free, but it was told."""
    story.log[8], story.log[9] = Entry(8, story.log[9].name), Entry(9, story.log[8].name)


def change_a_byte(story: Story) -> None:
    story.log[9] = Entry(9, b"1/4?")


def change_a_byte_nobody_was_told_of(story: Story) -> None:
    story.log[11] = Entry(11, b"1/5?")


def acknowledge_another_offset(story: Story) -> None:
    story.acknowledged[9] = Entry(8, story.acknowledged[9].name)


def show_a_reader_something_else(story: Story) -> None:
    story.seen[7] = Entry(7, story.seen[6].name)


def skip_a_record(story: Story) -> None:
    del story.seen[3]


def send_a_reader_back(story: Story) -> None:
    story.seen.insert(5, story.seen[4])


def leave_a_hole_between_records_nobody_was_told_of(story: Story) -> None:
    story.log[11] = Entry(12, story.log[11].name)


def begin_late(story: Story) -> None:
    del story.log[0]


ANOMALIES: list[tuple[Callable[[Story], None], set[Kind]]] = [
    (lose_the_last, {Kind.UNSEEN}),
    (lose_one, {Kind.LOST, Kind.HOLE}),
    (lose_one_and_close_the_gap, {Kind.INCONSISTENT}),
    (lose_everything, {Kind.UNSEEN, Kind.VANISHED}),
    (lose_what_only_a_reader_saw, {Kind.VANISHED}),
    (lose_what_only_a_check_saw, {Kind.VANISHED}),
    (repeat_an_acknowledged_record, {Kind.DUPLICATE}),
    (repeat_a_record_nobody_was_told_of, {Kind.DUPLICATE}),
    (repeat_and_shift, {Kind.DUPLICATE, Kind.INCONSISTENT}),
    (swap_two_of_one_producer, {Kind.REORDERED, Kind.INCONSISTENT}),
    (swap_two_that_were_not_acknowledged, {Kind.REORDERED}),
    (swap_two_of_different_producers, {Kind.INCONSISTENT}),
    (change_a_byte, {Kind.STRANGER, Kind.INCONSISTENT}),
    (change_a_byte_nobody_was_told_of, {Kind.STRANGER}),
    (acknowledge_another_offset, {Kind.INCONSISTENT}),
    (show_a_reader_something_else, {Kind.INCONSISTENT}),
    (skip_a_record, {Kind.SKIPPED}),
    (send_a_reader_back, {Kind.BACKWARDS}),
    (leave_a_hole_between_records_nobody_was_told_of, {Kind.HOLE}),
    (begin_late, {Kind.HOLE, Kind.LOST, Kind.VANISHED}),
]


@pytest.mark.parametrize(("damage", "kinds"), ANOMALIES)
def test_every_anomaly_is_found(damage: Callable[[Story], None], kinds: set[Kind]) -> None:
    story = Story()
    damage(story)
    assert story.anomalies() == kinds


def test_every_kind_of_anomaly_is_tested() -> None:
    assert set.union(*(kinds for _, kinds in ANOMALIES)) == set(Kind)
