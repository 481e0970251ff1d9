"""Quotas at work: a client that takes too much is answered, told so, and not read for a while.

This module may run compiled (setup.py), with the C types that stand in throttling.pxd.
"""

from __future__ import annotations

import math

from penstock.broker.quotas import Budget
from penstock.kafka.call import Call


def budget_of(call: Call, kind: str) -> Budget | None:
    """What limits this client; None if nothing does. The call's handler must not have returned."""
    quotas = call.context.broker.quotas
    return quotas.budget(call.client_id, kind) if quotas.active else None


def charge(call: Call, budget: Budget, size: int) -> int:
    """Let the client rest for what it takes too much; the milliseconds, for the answer."""
    seconds = budget.take(size, call.context.clock.monotonic())
    if seconds:
        call.answer.rest(seconds)
    return math.ceil(seconds * 1000)
