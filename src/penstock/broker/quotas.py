"""How many bytes a second a client may write and read, and how long it has to rest when it took more.

Quotas are for a client id, or for every client id that has none of its own (None). Each client id
has a budget that fills at the rate of its quota, up to one second's worth; a request is served
whole, and what it takes too much is rested off. Connections of the same client id share a budget.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from penstock.broker.errors import InvalidQuotaError
from penstock.clock import Clock
from penstock.limits import QUOTA_BUDGETS_MAX, QUOTA_REST_SECONDS_MAX, QUOTAS_MAX
from penstock.log.store import LogStore

PRODUCE: Final = "producer_byte_rate"
CONSUME: Final = "consumer_byte_rate"
KINDS: Final = (PRODUCE, CONSUME)
_RATE_MAX: Final = 2**53
"""Rates travel as floating-point numbers, which are exact up to here."""


class Budget:
    """Bytes that one client id may still take; below zero if it took too many."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._left = rate
        self._at = now

    def take(self, size: int, now: float) -> float:
        """Take bytes; the seconds to rest before the next are taken."""
        self._left = min(self.rate, self._left + (now - self._at) * self.rate) - size
        self._at = now
        return min(max(0.0, -self._left / self.rate), QUOTA_REST_SECONDS_MAX)


class Quotas:
    """All quotas, and the budgets of the clients that they are for."""

    def __init__(self, store: LogStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._quotas = store.catalog.quotas
        self._budgets: OrderedDict[tuple[str, str], Budget | None] = OrderedDict()
        self.active = bool(self._quotas)
        """Whether there are any; while there are none nothing is counted."""

    def all(self) -> Iterator[tuple[str | None, Mapping[str, float]]]:
        """Every quota: of which client id, None for all others, and its rates."""
        yield from self._quotas.items()

    def check(self, client_id: str | None, changes: Mapping[str, float | None]) -> dict[str, float]:
        """The rates that a client id would have after a change; None takes one away.

        Raises:
            InvalidQuotaError: a kind or a rate that there cannot be.
        """
        operation = f"set the quota of {'every client' if client_id is None else client_id[:60]}"
        rates = dict(self._quotas.get(client_id, {}))
        for kind, rate in changes.items():
            if kind not in KINDS:
                remedy = f"use {' or '.join(KINDS)}"
                raise InvalidQuotaError(operation, f"{kind[:60]} is not limited here", remedy)
            if rate is None:
                rates.pop(kind, None)
            elif not 1 <= rate <= _RATE_MAX:
                raise InvalidQuotaError(operation, f"{kind} must be 1 or more bytes a second")
            else:
                rates[kind] = rate
        if client_id not in self._quotas and len(self._quotas) >= QUOTAS_MAX:
            raise InvalidQuotaError(operation, f"there are {QUOTAS_MAX} already", "remove some")
        return rates

    def change(self, client_id: str | None, changes: Mapping[str, float | None]) -> None:
        """Set rates, or take them away; in force at once, and durable after the next commit round.

        Raises:
            InvalidQuotaError: a kind or a rate that there cannot be.
        """
        rates = self.check(client_id, changes)
        self._store.put_quota(client_id, rates)
        self._budgets.clear()
        self.active = bool(self._quotas)

    def budget(self, client_id: str, kind: str) -> Budget | None:
        """What a client may still take; None if nothing limits it."""
        key = client_id, kind
        if key in self._budgets:
            self._budgets.move_to_end(key)
            return self._budgets[key]
        rate = self._quotas.get(client_id, {}).get(kind)
        if rate is None:
            rate = self._quotas.get(None, {}).get(kind)
        budget = None if rate is None else Budget(rate, self._clock.monotonic())
        self._budgets[key] = budget
        if len(self._budgets) > QUOTA_BUDGETS_MAX:
            self._budgets.popitem(last=False)
        return budget
