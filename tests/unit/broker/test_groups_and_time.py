"""What stays of groups that come and go, and of names that are too long."""

from __future__ import annotations

import pytest
from tests.support.log import Log

from penstock.broker.group_errors import InvalidGroupIdError
from penstock.broker.group_member import Identity, JoinRequest
from penstock.errors import StorageError
from penstock.limits import NAME_BYTES_MAX, OFFSETS_CHECK_SECONDS

MONTH_SECONDS = 30 * 86_400.0


@pytest.fixture
def log() -> Log:
    made = Log()
    made.topic("t")
    return made


def look(log: Log, seconds: float = OFFSETS_CHECK_SECONDS + 1) -> None:
    log.clock.advance(seconds)
    log.broker.keep_retention()
    log.commit()


def commit(log: Log, name: str) -> list[StorageError | None]:
    groups = log.broker.groups
    answers: list[StorageError | None] = []
    partition = log.broker.topic("t").partition(0).identity
    groups.commit(name, {partition: groups.position(5, 0, "")}, answers.append)
    return answers


def test_a_first_commit_that_meets_the_look_for_what_is_left(log: Log) -> None:
    log.clock.advance(OFFSETS_CHECK_SECONDS + 1)
    answers = commit(log, "new")
    log.broker.keep_retention()
    log.commit()
    assert answers == [None]
    assert [group.name for group in log.broker.groups.all()] == ["new"]
    assert log.broker.groups.offsets("new")
    look(log, MONTH_SECONDS)
    look(log)
    assert not log.broker.groups.offsets("new")
    assert not log.broker.groups.all()


def test_nothing_is_left_of_groups_that_have_gone(log: Log) -> None:
    groups = log.broker.groups
    for number in range(20):
        commit(log, f"job-{number}")
    log.commit()
    assert len(log.store.offsets.groups) == 20
    look(log, MONTH_SECONDS)
    look(log)
    assert not groups.all()
    assert not log.store.offsets.groups
    assert not groups._offsets._empty_since


def test_nothing_is_left_of_groups_whose_topic_has_gone(log: Log) -> None:
    commit(log, "job")
    log.commit()
    log.broker.groups.topic_deleted("t", log.broker.topic("t").entry.id)
    log.commit()
    assert not log.store.offsets.groups


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_name_that_older_answers_cannot_hold(log: Log, letter: str) -> None:
    longest = letter * (NAME_BYTES_MAX // len(letter.encode()))
    log.broker.groups.check_commit(longest, Identity(""), -1, ())
    with pytest.raises(InvalidGroupIdError, match="more than 32767 bytes"):
        log.broker.groups.check_commit(longest + letter, Identity(""), -1, ())
    with pytest.raises(InvalidGroupIdError):
        log.broker.groups.heartbeat(longest + letter, Identity("m"), 1)


def test_the_id_of_a_member_with_a_long_name_fits() -> None:
    request = JoinRequest("", None, "x" * NAME_BYTES_MAX, "host", 1, 1, "consumer", ())
    assert len(request.new_id()) < 300
