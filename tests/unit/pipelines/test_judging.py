"""What happens after a pipeline has ended."""

from __future__ import annotations

import pytest

from penstock.pipelines.judging import Verdict, judge, wait_seconds
from penstock.pipelines.reports import Cause, Ended, Failed, Progress, Started, from_line, to_line

BATCH = Failed(Cause.BATCH, "KeyError: 'x' in run 12", "", "totals", 7)


@pytest.mark.parametrize(
    ("report", "before", "verdict"),
    [
        (Ended(stopped=False), None, Verdict.DONE),
        (Ended(stopped=True), BATCH, Verdict.DONE),
        (None, None, Verdict.START_AGAIN),
        (None, BATCH, Verdict.START_AGAIN),
        (Failed(Cause.PROGRAM, "NameError: x", ""), None, Verdict.GIVE_UP),
        (Failed(Cause.PEER, "UnavailableError: y", ""), None, Verdict.START_AGAIN),
        (
            Failed(Cause.PEER, "UnavailableError: y", ""),
            Failed(Cause.PEER, "UnavailableError: y", ""),
            Verdict.START_AGAIN,
        ),
        (BATCH, None, Verdict.START_AGAIN),
        (BATCH, BATCH, Verdict.GIVE_UP),
        (BATCH, Failed(Cause.BATCH, "KeyError: 'x' in run 13", "", "totals", 7), Verdict.GIVE_UP),
        (BATCH, Failed(Cause.BATCH, BATCH.error, "", "totals", 6), Verdict.START_AGAIN),
        (BATCH, Failed(Cause.BATCH, BATCH.error, "", "other", 7), Verdict.START_AGAIN),
        (BATCH, Failed(Cause.BATCH, "ValueError", "", "totals", 7), Verdict.START_AGAIN),
    ],
)
def test_verdicts(report: Ended | Failed | None, before: Failed | None, verdict: Verdict) -> None:
    assert judge(report, before) is verdict


def test_waits_grow_to_a_minute() -> None:
    assert [wait_seconds(number) for number in (1, 2, 3, 6, 7, 5000)] == [1, 2, 4, 32, 60, 60]


@pytest.mark.parametrize(
    "report",
    [
        BATCH,
        Ended(stopped=True),
        Started("totals", "id", None),
        Progress("totals", 1, 5, 2.5, None, 12, None, 99),
    ],
)
def test_reports_arrive_as_they_were_sent(report: Failed | Ended | Started | Progress) -> None:
    assert from_line(to_line(report)) == report
