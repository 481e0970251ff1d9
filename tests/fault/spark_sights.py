"""What can be seen in each sink: the last batch that it has, and every version that it shows."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import psycopg
import pyarrow.parquet as pq
from deltalake import DeltaTable
from tests.fault.spark_cases import PARTITIONS, SOURCE, TABLE, TARGET, Places
from tests.fault.spark_results import Plan, Row, Rows, values
from tests.fault.spark_sums import TAKEN_EVERY

from penstock.record.murmur2 import partition_of
from penstock.spark import read_manifest
from penstock.views.query import Query
from penstock.views.store import open_store

Ask: TypeAlias = Callable[[str, str, str], list[Rows]]
"""The markers of a sink and what a statement says, at one moment; nothing if its table is not there."""
MARKS = "SELECT batch FROM penstock_commits WHERE sink"


class Sight(Protocol):
    """One sink, looked at from outside."""

    def last(self) -> int:
        """The last batch that is out; -1: none."""
        ...

    def check(self, plan: Plan) -> int:
        """Compare all that was not compared before; how many versions that were."""
        ...


class Topic:
    """Its batches come one after the other in each partition, whole."""

    def __init__(self, places: Places) -> None:
        self._bootstrap = places.bootstrap
        self._checked = 0

    def last(self) -> int:
        """By the marker that a reader of committed records sees."""
        from confluent_kafka import Consumer, TopicPartition

        config = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        last = -1
        with closing(Consumer(config)) as consumer:
            consumer.assign([TopicPartition("penstock.commits", 0, 0)])
            while True:
                message = consumer.poll(30)
                if message.error() is not None:
                    return last
                last = json.loads(message.value())["batch"]

    def check(self, plan: Plan) -> int:
        found = values(self._bootstrap, TARGET, (0,) * PARTITIONS)
        at = [0] * PARTITIONS
        last = self.last()
        for batch in range(last + 1):
            for number in range(PARTITIONS):
                wanted = Counter(row for row in plan.batch(batch) if _target(row) == number)
                begin, at[number] = at[number], at[number] + wanted.total()
                part = Counter(found[number][begin : at[number]])
                assert part == wanted, f"topic: batch {batch} in partition {number}"
        assert at == [len(part) for part in found], "topic: more than its batches"
        seen, self._checked = last + 1 - self._checked, last + 1
        return seen


def _target(row: Row) -> int:
    return partition_of(row[0].encode(), PARTITIONS)


class Table:
    """A table and its marker, as of one moment; counts and sums also while batches are written."""

    def __init__(
        self,
        ask: Ask,
        case: str,
        table: str,
        columns: str,
        holds: Callable[[Row], bool] = lambda row: True,
    ) -> None:
        self._ask, self._case, self._table = ask, case, table
        self._columns, self._sum = columns, columns.rpartition(" ")[2]
        self._holds = holds
        self._seen: dict[int, Row] = {}

    def last(self) -> int:
        return self._look("SELECT 1 LIMIT 0")[0]

    def _look(self, statement: str) -> tuple[int, Rows]:
        found = self._ask(self._case, self._table, statement)
        (marks, rows) = found if found else ([], [])
        return (marks[0][0] if marks else -1), rows

    def watch(self) -> None:
        sums = f"count(*), coalesce(sum({self._sum}), 0)"
        batch, rows = self._look(f"SELECT {sums} FROM {self._table}")
        if rows:
            (now,) = rows
            known = self._seen.setdefault(batch, now)
            assert known == now, f"{self._case}: batch {batch} changed"

    def check(self, plan: Plan) -> int:
        batch, rows = self._look(f"SELECT {self._columns} FROM {self._table}")
        what = f"{self._case}: not what it is after batch"
        assert sorted(rows) == self._wanted(plan, batch), f"{what} {batch}"
        for seen, sums in self._seen.items():
            wanted = self._wanted(plan, seen)
            assert sums == (len(wanted), sum(row[-1] for row in wanted)), f"{what} {seen}"
        done = len(self._seen)
        self._seen.clear()
        return done

    def _wanted(self, plan: Plan, batch: int) -> Rows:
        return [row for row in plan.result(batch) if self._holds(row)]


def sqlite_asked(places: Places) -> Ask:
    def ask(case: str, table: str, statement: str) -> list[Rows]:
        path = Path(places.folder, "sqlite.db")
        if not path.exists():
            return []
        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as database:
            database.execute("BEGIN")
            if not database.execute(
                "SELECT 1 FROM sqlite_master WHERE name = ?", (table,)
            ).fetchone():
                return []
            marks = database.execute(f"{MARKS} = ?", (case,)).fetchall()
            return [marks, database.execute(statement).fetchall()]

    return ask


def postgres_asked(places: Places) -> Ask:
    def ask(case: str, table: str, statement: str) -> list[Rows]:
        with psycopg.connect(places.postgres, connect_timeout=5) as database:
            database.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            if not database.execute(
                "SELECT 1 FROM pg_tables WHERE tablename = %s", (table,)
            ).fetchone():
                return []
            marks = database.execute(f"{MARKS} = %s", (case,)).fetchall()
            rows = database.execute(statement).fetchall()  # type: ignore[arg-type, unused-ignore]
            return [marks, [tuple(map(_plain, row)) for row in rows]]

    return ask


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else int(value)


class View:
    """A view, which says which input it reflects."""

    def __init__(self, store: str, name: str) -> None:
        self._store, self._name = open_store(store), name
        self._seen: dict[int, tuple[Rows, Any]] = {}

    def last(self) -> int:
        commits = [one.last for one in self._store.versions() if one.last is not None]
        return commits[-1].batch if commits else -1

    def watch(self) -> None:
        if self.last() < 0:
            return
        answer = self._store.ask(self._name, Query(limit=1000))
        rows = sorted((one["user"], one["rows"], one["total"]) for one in answer.rows)
        last = answer.version.last
        assert last is not None
        known = self._seen.setdefault(last.batch, (rows, last.position))
        assert known == (rows, last.position), f"view: batch {last.batch} changed"

    def check(self, plan: Plan) -> int:
        self.watch()
        for batch, (rows, position) in self._seen.items():
            assert rows == plan.result(batch), f"view: not what it is after batch {batch}"
            found = position.get(SOURCE, {})
            ends = tuple(int(found.get(str(number), 0)) for number in range(PARTITIONS))
            assert ends == plan.ends_of(batch), f"view: batch {batch} reflects another input"
        done = len(self._seen)
        self._seen.clear()
        return done


class Delta:
    """Every version is the result after one more batch; the first may be an empty table."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._next = 0
        self._batches = 0

    def _newest(self) -> DeltaTable | None:
        return DeltaTable(self._path) if DeltaTable.is_deltatable(self._path) else None

    def last(self) -> int:
        table = self._newest()
        if table is None:
            return -1
        log = Path(self._path, "_delta_log")
        last = -1
        for version in range(table.version() + 1):
            for line in (log / f"{version:020}.json").read_text().splitlines():
                note = json.loads(line).get("txn")
                last = last if note is None else note["version"]
        return last

    def check(self, plan: Plan) -> int:
        table = self._newest()
        first = self._next
        while table is not None and self._next <= table.version():
            found = DeltaTable(self._path, version=self._next).to_pyarrow_table()
            rows = sorted(tuple(row.values()) for row in found.to_pylist())
            if rows or self._next:
                wanted = plan.result(self._batches)
                assert rows == wanted, f"{self._path}: version {self._next}"
                self._batches += 1
            self._next += 1
        return self._next - first


class Parquet:
    """Every version of the manifest is the result after one more batch."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._next = 1

    def _versions(self) -> int:
        return len(list(Path(self._path, "_penstock").glob("*.json")))

    def last(self) -> int:
        return self._versions() - 1

    def check(self, plan: Plan) -> int:
        first, newest = self._next, self._versions()
        while self._next <= newest:
            files = read_manifest(self._path, self._next).files
            parts = [pq.ParquetFile(one.removeprefix("file://")).read() for one in files]
            rows = sorted(tuple(row.values()) for part in parts for row in part.to_pylist())
            assert rows == plan.result(self._next - 1), f"parquet: version {self._next}"
            self._next += 1
        return self._next - first


class Webhook:
    """Pages by their ids: one that came again was the same."""

    def __init__(self, taken: list[tuple[dict[str, str], bytes]]) -> None:
        self._taken = taken
        self._pages: dict[str, bytes] = {}
        self._read = 0
        self._checked = 0
        self.again = 0

    def _remember(self) -> None:
        while self._read < len(self._taken):
            headers, body = self._taken[self._read]
            identity = headers["webhook-id"]
            self.again += identity in self._pages
            assert self._pages.setdefault(identity, body) == body, f"webhook: {identity} changed"
            self._read += 1

    def _batches(self) -> dict[int, Counter[Row]]:
        self._remember()
        batches: dict[int, Counter[Row]] = {}
        for identity, body in self._pages.items():
            rows = Counter((one["user"], one["n"]) for one in json.loads(body)["rows"])
            batch = int(identity.split("-")[-2])
            batches[batch] = batches.get(batch, Counter()) + rows
        return batches

    def last(self) -> int:
        return max(self._batches(), default=-1)

    def check(self, plan: Plan) -> int:
        batches = self._batches()
        last = max(batches, default=-1)
        for batch in range(last + 1):
            wanted = Counter(plan.batch(batch))
            if batch < last or batch <= plan.newest("commits"):
                assert batches[batch] == wanted, f"webhook: batch {batch}"
            else:
                assert batches[batch] <= wanted, f"webhook: batch {batch} is being sent"
        seen, self._checked = last + 1 - self._checked, last + 1
        return seen


def tables(database: str, ask: Ask) -> dict[str, Sight]:
    """The tables of a database: rows as they are, totals, and totals that were not taken away."""
    sums = '"user", "rows", total'
    return {
        database: Table(ask, database, TABLE, '"user", n'),
        f"{database}-upsert": Table(ask, f"{database}-upsert", "upsert", sums),
        f"{database}-changes": Table(
            ask, f"{database}-changes", "changes", sums, lambda row: row[1] % TAKEN_EVERY != 0
        ),
    }


def sights(places: Places, taken: list[tuple[dict[str, str], bytes]]) -> dict[str, Sight]:
    """By the names of the cases."""
    folder = places.folder
    found: dict[str, Sight] = {
        "topic": Topic(places),
        **tables("sqlite", sqlite_asked(places)),
        "delta": Delta(f"{folder}/delta"),
        "delta-totals": Delta(f"{folder}/delta-totals"),
        "parquet": Parquet(f"{folder}/parquet"),
        "webhook": Webhook(taken),
        "view": View(f"sqlite:///{folder}/views.db", "view"),
    }
    if places.postgres:
        found |= {
            **tables("postgres", postgres_asked(places)),
            "view-postgres": View(places.postgres, "view_postgres"),
        }
    return found
