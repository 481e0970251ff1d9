"""The tables that the pipeline keeps: what they say now, and whether it is true in the end."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from examples.shop.events import OPENING, ORDERS, PAYMENTS, VIEWS, Event

MINUTE, TEN_MINUTES = 60, 600


@dataclass(frozen=True, slots=True)
class Numbers:
    """What can be read at one moment."""

    counted: int = 0
    late: int = 0
    visits: int = 0
    revenue: list[tuple[str, int]] = field(default_factory=list)
    """The last minutes that had any, in cents."""
    wanted: list[tuple[str, str]] = field(default_factory=list)
    """The last windows, and what was wanted most."""


class Tables:
    """Asks the database, also while the pipeline writes to it, or is dead."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """The answer; nothing, if there is no such table yet."""
        if not self._path.exists():
            return []
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database:
            try:
                return database.execute(statement).fetchall()
            except sqlite3.OperationalError:
                return []

    def total(self, expression: str, table: str) -> int:
        found = self.ask(f"SELECT {expression} FROM {table}")
        return int(found[0][0] or 0) if found else 0

    def numbers(self) -> Numbers:
        late = sum(
            self.total("count(*)", f"late_{kind}") for kind in ("payments", "views", "orders")
        )
        counted = self.total("sum(payments)", "revenue") + self.total("sum(views)", "visits")
        recent = "ORDER BY window_start DESC LIMIT"
        revenue = self.ask(f"SELECT window_start, cents FROM revenue {recent} 8")
        wanted = self.ask(f"SELECT window_start, top FROM products {recent} 3")
        return Numbers(
            counted + self.total("sum(orders)", "products") + late,
            late,
            self.total("count(*)", "visits"),
            list(reversed(revenue)),
            [(start, top) for start, top in reversed(wanted)],
        )


def check(events: list[Event], acknowledged: Iterable[int], tables: Tables) -> bool:
    """Compare every total with what the visitors did; whether anything is wrong."""
    taken = [events[number] for number in acknowledged]
    compared: dict[str, tuple[Mapping[Any, Any], Mapping[Any, Any]]] = {
        "events acknowledged": ({"": len(events)}, {"": len(taken)}),
        "payments by minute": (
            Counter(_start(e, MINUTE) for e in taken if e.topic == PAYMENTS),
            _kept(tables, "revenue", "payments", MINUTE, "late_payments", "1"),
        ),
        "cents by minute": (
            _sums(taken, PAYMENTS, "cents", MINUTE),
            _kept(tables, "revenue", "cents", MINUTE, "late_payments", "cents"),
        ),
        "views by user": (
            Counter(e.fields["user"] for e in taken if e.topic == VIEWS),
            _add(
                tables.ask("SELECT user, views FROM visits"),
                tables.ask("SELECT user, 1 FROM late_views"),
            ),
        ),
        "orders by ten minutes": (
            Counter(_start(e, TEN_MINUTES) for e in taken if e.topic == ORDERS),
            _kept(tables, "products", "orders", TEN_MINUTES, "late_orders", "1"),
        ),
        "pieces by ten minutes": (
            _sums(taken, ORDERS, "pieces", TEN_MINUTES),
            _kept(tables, "products", "pieces", TEN_MINUTES, "late_orders", "pieces"),
        ),
        "most wanted by ten minutes": _most_wanted(taken, tables),
    }
    print()
    print(f"  {'':28}{'totals':>9}{'sum':>14}{'wrong':>8}")
    wrong = 0
    for name, (wanted, found) in compared.items():
        different = {
            key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)
        }
        wrong += len(different)
        amount = sum(wanted.values()) if all(isinstance(v, int) for v in wanted.values()) else ""
        shown = f"{amount:,}" if amount != "" else ""
        print(f"  {name:28}{len(wanted):>9,}{shown:>14}{len(different):>8,}")
    late = tables.numbers().late
    print(f"\n  {late:,} events came after their windows had been given up; they are counted, too.")
    print("  THIS SHOULD NOT HAPPEN" if wrong else "  every total is right, to the cent.")
    return wrong > 0


def _start(event: Event, size: int) -> int:
    return int(round(event.at, 3)) // size * size


def _sums(events: list[Event], topic: str, name: str, size: int) -> Counter[int]:
    sums: Counter[int] = Counter()
    for event in events:
        if event.topic == topic:
            sums[_start(event, size)] += event.fields[name]
    return sums


def _kept(
    tables: Tables, table: str, column: str, size: int, late: str, late_column: str
) -> Counter[int]:
    """What a table and its late rows say, by the beginning of a window."""
    results = tables.ask(f"SELECT window_start, {column} FROM {table}")
    rest = tables.ask(f"SELECT at, {late_column} FROM {late}")
    return _add(
        ((_second(start), value) for start, value in results),
        ((_second(at) // size * size, value) for at, value in rest),
    )


def _add(*parts: Iterable[tuple[Any, int]]) -> Counter[Any]:
    sums: Counter[Any] = Counter()
    for part in parts:
        for key, value in part:
            sums[key] += value
    return sums


def _most_wanted(events: list[Event], tables: Tables) -> tuple[dict[int, Any], dict[int, Any]]:
    """How often the most wanted products were ordered, without the late orders."""
    late = Counter(order for (order,) in tables.ask('SELECT "order" FROM late_orders'))
    orders: dict[int, Counter[str]] = {}
    for event in events:
        if event.topic == ORDERS and not late[event.fields["order"]]:
            ten = _start(event, TEN_MINUTES)
            orders.setdefault(ten, Counter())[event.fields["product"]] += 1
    wanted = {start: [n for _, n in counts.most_common(3)] for start, counts in orders.items()}
    tops = tables.ask("SELECT window_start, top FROM products")
    return wanted, {_second(start): [n for _, n in pairs(top)] for start, top in tops}


def pairs(top: str) -> list[tuple[str, int]]:
    """Products and how often, from the column `top`."""
    return [tuple(entry.values()) for entry in json.loads(top)]


def _second(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() - OPENING.timestamp())
