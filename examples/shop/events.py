"""What happens in the shop: visitors look at products, order some, and pay, mostly.

Everything is made from a seed, so that whoever counts can count again. An event has two times: `at`,
when it happened, and when it arrives. Most arrive within seconds and a little out of order; some come
from a phone in a tunnel minutes later, a few from one that was switched off.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

VIEWS: Final = "shop.views"
ORDERS: Final = "shop.orders"
PAYMENTS: Final = "shop.payments"
TOPICS: Final = (VIEWS, ORDERS, PAYMENTS)
OPENING: Final = datetime(2026, 1, 5, 9, tzinfo=UTC)

PRODUCTS: Final = {
    "tea": 450,
    "coffee": 690,
    "cocoa": 520,
    "honey": 880,
    "marmalade": 610,
    "biscuits": 340,
    "teapot": 3490,
    "mug": 1290,
}
_POPULARITY: Final = (9, 12, 4, 5, 3, 8, 2, 4)
_USERS: Final = 2_000
_THINKING_SECONDS: Final = 25.0
_ORDERS_OF_VISITS: Final = 0.35
_PAID: Final = 0.93
# How an event gets here: how often, and how many seconds it takes on average.
_WAYS: Final = ((0.965, 1.5), (0.03, 40.0), (0.005, 1_500.0))
_AFTER_CLOSING_SECONDS: Final = 30.0  # by then everything is here


@dataclass(frozen=True, slots=True)
class Event:
    """One record, when it happened and when it arrives, in seconds since the shop opened."""

    topic: str
    key: str
    fields: dict[str, Any]
    at: float
    arrives: float

    def value(self) -> bytes:
        """The record's value."""
        return json.dumps({**self.fields, "at": clock(self.at)}).encode()


def clock(seconds: float) -> str:
    """A time of the shop's day, as events have it."""
    moment = datetime.fromtimestamp(OPENING.timestamp() + round(seconds, 3), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def day(seed: int, seconds: float, visits_per_second: float) -> list[Event]:
    """Everything that happens while the shop is open, in the order in which it arrives."""
    choose = random.Random(seed)
    events = [
        event
        for number in range(round(seconds * visits_per_second))
        for event in _visit(choose, number, choose.uniform(0, seconds))
        if event.at < seconds
    ]
    latest = seconds + _AFTER_CLOSING_SECONDS
    arrived = (replace(event, arrives=min(event.arrives, latest)) for event in events)
    return sorted(arrived, key=lambda event: event.arrives)


def _visit(choose: random.Random, number: int, at: float) -> Iterator[Event]:
    user = f"u{choose.randrange(_USERS)}"
    product = "tea"
    for _ in range(choose.randint(1, 7)):
        product = choose.choices(list(PRODUCTS), _POPULARITY)[0]
        yield _event(choose, VIEWS, user, {"user": user, "product": product}, at)
        at += choose.expovariate(1 / _THINKING_SECONDS)
    if choose.random() >= _ORDERS_OF_VISITS:
        return
    pieces = choose.randint(1, 3)
    order = {"order": f"o{number}", "user": user, "product": product, "pieces": pieces}
    cents = PRODUCTS[product] * pieces
    yield _event(choose, ORDERS, user, {**order, "cents": cents}, at)
    if choose.random() < _PAID:
        paid = at + choose.uniform(2, 90)
        yield _event(choose, PAYMENTS, user, {"order": f"o{number}", "cents": cents}, paid)


def _event(choose: random.Random, topic: str, key: str, fields: dict[str, Any], at: float) -> Event:
    shares = [share for share, _ in _WAYS]
    _, average = choose.choices(_WAYS, shares)[0]
    return Event(topic, key, fields, at, at + choose.expovariate(1 / average))
