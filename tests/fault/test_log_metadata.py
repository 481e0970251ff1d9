"""Topics that come and go while rounds and removals are under way, and crashes around them."""

from __future__ import annotations

import contextlib

import pytest
from tests.fault.histories import Life
from tests.fault.machine import HOME, Machine

from penstock.testing.faulty import Crash
from penstock.testing.power_failure import Keep

pytestmark = pytest.mark.fault


def started(seed: int = 1) -> tuple[Life, Machine]:
    life = Life(seed)
    return life, life.start()


def reopened(life: Life, policy: Keep) -> Life:
    """After a crash, whole and well; then everything written since survives a power failure."""
    after = life.after_crash(policy, 1)
    after.start().check()
    after.go_on()
    last = after.after_crash(Keep.NOTHING, 1)
    last.start().check()
    return last


@pytest.mark.parametrize("policy", Keep)
class TestSameRound:
    def test_two_changes_of_one_topic(self, policy: Keep) -> None:
        life, machine = started()
        machine.create_topic("a", 2)
        machine.change_topic("a")
        machine.change_topic("a")
        machine.settle()
        machine.must_be_well()
        (facts,) = life.oracle.topics.values()
        assert facts.revision_acked == 3
        reopened(life, policy)

    def test_a_topic_is_made_and_deleted(self, policy: Keep) -> None:
        life, machine = started()
        machine.create_topic("a", 1)
        machine.create_topic("b", 1)
        machine.delete_topic("a")
        machine.produce("b", 0, 1)
        machine.settle()
        machine.must_be_well()
        assert [facts.deleted for facts in life.oracle.topics.values()] == [True, False]
        reopened(life, policy)

    def test_a_topic_is_made_deleted_and_made_again(self, policy: Keep) -> None:
        life, machine = started()
        for _ in range(3):
            machine.create_topic("a", 1)
            machine.produce("a", 0, 1)
            machine.delete_topic("a")
        machine.create_topic("a", 1)
        machine.produce("a", 0, 1)
        machine.settle()
        machine.must_be_well()
        reopened(life, policy)


@pytest.mark.parametrize("policy", Keep)
class TestOldWorkMeetsANewTopicOfTheSameName:
    def test_a_round_that_writes_checkpoints(self, policy: Keep) -> None:
        life, machine = started()
        machine.create_topic("b", 1)
        machine.settle()
        for _ in range(12):  # rolls, and is due for a checkpoint
            machine.produce("b", 0, 1)
        machine.turn()  # the round is on its way to the commit thread
        machine.delete_topic("b")
        machine.create_topic("b", 1)
        machine.produce("b", 0, 2)
        machine.work()
        machine.finish()
        foreign = [name for name in life.files.list(HOME / "topics" / "b-0") if "check" in name]
        assert not foreign
        machine.settle()
        machine.must_be_well()
        reopened(life, policy)

    def test_a_removal_of_old_segments(self, policy: Keep) -> None:
        life, machine = started()
        machine.create_topic("b", 1)
        for _ in range(12):
            machine.produce("b", 0, 1)
        machine.settle()
        machine.clock.advance(90)
        machine.produce("b", 0, 1)
        while machine.turn() or machine.work() or machine.finish():
            pass
        machine.retain()  # queues the removal
        machine.delete_topic("b")
        machine.create_topic("b", 1)
        machine.produce("b", 0, 2)
        while machine.turn() or machine.work() or machine.finish():
            pass
        machine.settle()  # the removal runs last
        machine.must_be_well()
        reopened(life, policy)


class TestInterruptedDeletion:
    @pytest.mark.parametrize("policy", [Keep.NAMES, Keep.ZEROS, Keep.NOTHING])
    def test_the_names_changed_but_the_catalog_did_not(self, policy: Keep) -> None:
        life, machine = started()
        machine.create_topic("a", 2)
        machine.produce("a", 0, 1)
        machine.produce("a", 1, 1)
        machine.settle()
        machine.delete_topic("a")
        reopened(life, policy)

    @pytest.mark.parametrize("policy", [Keep.NAMES, Keep.ZEROS, Keep.NOTHING])
    @pytest.mark.parametrize("records", [0, 1, 5])
    def test_and_a_topic_of_the_same_name_was_begun(self, policy: Keep, records: int) -> None:
        life, machine = started()
        machine.create_topic("a", 2)
        machine.produce("a", 0, 1)
        machine.produce("a", 1, 1)
        machine.settle()
        machine.delete_topic("a")
        machine.create_topic("a", 1)
        for _ in range(records):
            machine.produce("a", 0, 1)
        reopened(life, policy)


class TestUnsettledCreation:
    @pytest.mark.parametrize("policy", Keep)
    @pytest.mark.parametrize("records", [0, 1, 5])
    def test_the_topic_can_be_made_after_the_crash(self, policy: Keep, records: int) -> None:
        life, machine = started()
        machine.create_topic("a", 2)
        for _ in range(records):
            machine.produce("a", 0, 1)
        reopened(life, policy)

    def test_what_a_killed_process_left_is_made_durable_before_it_is_built_on(self) -> None:
        life, machine = started()
        machine.create_topic("a", 1)
        killed = life.after_crash(Keep.EVERYTHING, 1)
        machine = killed.start()
        machine.check()
        if "a" not in machine.topics:
            machine.create_topic("a", 1)
        machine.produce("a", 0, 1)
        machine.settle()
        killed.after_crash(Keep.NOTHING, 1).start().check()

    def test_a_segment_that_a_killed_process_had_just_begun_is_durable_before_it_is_used(
        self,
    ) -> None:
        for number in range(1, 200):
            life, machine = started()
            machine.create_topic("a", 1)
            machine.settle()
            life.clock.advance(1)
            life.files.crash_at = life.files.operations + number
            life_goes_on(machine)
            killed = life.after_crash(Keep.EVERYTHING, number)
            machine = killed.start()
            machine.produce("a", 0, 2)
            machine.settle()
            killed.after_crash(Keep.NOTHING, 1).start().check()


def life_goes_on(machine: Machine) -> None:
    with contextlib.suppress(Crash):
        for _ in range(20):
            machine.produce("a", 0, 1)
            machine.clock.advance(1)
            machine.settle()
