"""Buckets of state for tests, driven as a task drives them, beside a dict that cannot be wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.spark.batch import Times
from penstock.spark.state.bucket import Clock, open_bucket
from penstock.spark.state.opened import Opened
from penstock.spark.state.operators import Operator
from penstock.spark.state.places import Place
from penstock.spark.state.sorted_rows import HASH

KEY = pa.field("key", pa.int64())
STATE = pa.schema([KEY, ("total", pa.int64()), ("_due", pa.int64())])
OUTPUT = pa.schema([KEY, ("total", pa.int64()), ("fired", pa.bool_())])
ROWS = pa.schema([(HASH, pa.int64()), KEY, ("amount", pa.int64()), ("due", pa.int64())])
Row = tuple[int, int, int | None]  # key, amount, due


def totals(state: pa.Table, rows: pa.Table, times: Times) -> tuple[pa.Table, pa.Table]:
    """Adds amounts; a total of zero is forgotten, a key that is due comes out and waits no more."""
    kept: dict[int, tuple[int, int | None]] = {}
    fired = set()
    for key, total, due in zip(*(state[name].to_pylist() for name in STATE.names), strict=True):
        is_due = due is not None and times.now_ms is not None and due <= times.now_ms
        fired |= {key} if is_due else set()
        kept[key] = (total, None if is_due else due)
    for row in rows.to_pylist():
        total, due = kept.get(row["key"], (0, None))
        kept[row["key"]] = (total + row["amount"], row["due"] if row["due"] is not None else due)
    left = [(key, *value) for key, value in sorted(kept.items()) if value[0]]
    out = [(key, kept[key][0], key in fired) for key in sorted(kept)]
    return table(STATE, left), table(OUTPUT, out)


def table(schema: pa.Schema, rows: Iterable[tuple[object, ...]]) -> pa.Table:
    rows = list(rows)
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    return pa.table([list(column) for column in columns], schema=schema)


def hashed(key: int) -> int:
    """Spread as Spark's are; every tenth key has the hash of another."""
    key -= key % 10 == 9
    return (key * 0x9E3779B97F4A7C15 + 2**63) % 2**64 - 2**63


OPERATOR = Operator("totals", ("key",), totals, STATE, OUTPUT)


@dataclass
class Store:
    """One bucket."""

    root: Place
    operator: Operator = OPERATOR
    ttl_ms: int | None = None
    opened: Opened = field(default_factory=Opened)

    def run(
        self, batch_id: int, rows: Iterable[Row], now: int | None = None, touched: int | None = None
    ) -> list[tuple[object, ...]]:
        bucket = open_bucket(
            self.root, 0, 1, self.operator.state, self.operator.by, batch_id, self.opened
        )
        bucket.clock = Clock(now, touched, self.ttl_ms)
        given = table(ROWS, [(hashed(row[0]), *row) for row in rows])
        output = self.operator.apply(bucket, batch_id, given, Times(None, now))
        return [tuple(row.values()) for row in output.to_pylist()]

    def all(self, after: int) -> dict[int, int]:
        bucket = open_bucket(
            self.root, 0, 1, self.operator.state, self.operator.by, after + 1, self.opened
        )
        rows = bucket.all().to_pylist()
        return {row["key"]: row["total"] for row in rows}
