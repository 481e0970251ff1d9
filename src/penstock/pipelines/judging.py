"""What a supervisor does when a pipeline has ended: one table, and how long to wait.

reported                      before it                  then
ended                                                    done
nothing (killed, crashed)                                start again
failed, something is away                                start again
failed, the program's fault                              give up
failed in a batch             something else             start again
failed in a batch             the same in that batch     give up
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from penstock.pipelines.reports import Cause, Ended, Failed

_FIRST_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 60.0
# What differs between two runs of the same failure: ids of runs and tasks, addresses of objects.
_VARYING: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|0x[0-9a-f]+|\d+")


class Verdict(Enum):
    """What comes next."""

    DONE = "done"
    START_AGAIN = "start again"
    GIVE_UP = "give up"


def judge(report: Ended | Failed | None, before: Failed | None) -> Verdict:
    """What comes next.

    Args:
        report: the last word of the pipeline; None if it had none.
        before: how the try before it failed, if no batch has ended since.
    """
    match report:
        case Ended():
            return Verdict.DONE
        case Failed(cause=Cause.PROGRAM):
            return Verdict.GIVE_UP
        case Failed(cause=Cause.BATCH) if before is not None and _same(report, before):
            return Verdict.GIVE_UP
        case _:
            return Verdict.START_AGAIN


def wait_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row without a batch in between."""
    return float(min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** min(failures - 1, 10)))


def _same(one: Failed, other: Failed) -> bool:
    return (one.query, one.batch, _plain(one)) == (other.query, other.batch, _plain(other))


def _plain(failed: Failed) -> str:
    return _VARYING.sub("#", failed.error)
