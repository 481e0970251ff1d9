"""Who waits for a commit round is told of its end, whatever becomes of the others."""

from __future__ import annotations

import pytest
from tests.support.log import Log


def test_one_answer_that_fails_does_not_cost_the_others_theirs(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    topic = log.topic()
    told: list[str] = []

    def fail() -> None:
        raise OverflowError("a mistake of ours")

    log.append(topic, b"x")
    log.broker.commit.after(lambda: told.append("before"))
    log.broker.commit.after(fail)
    log.broker.commit.after(lambda: told.append("after"))
    log.commit()
    assert told == ["before", "after"]
    assert "a mistake of ours" in caplog.text
    log.append(topic, b"y")
    log.commit()
    assert topic.partition(0).durable_offset == 2
