"""`penstock run` with real queries: killed, stopped, bounded, and back to a savepoint."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.clients.brokers import Broker
from tests.clients.wire import Wire
from tests.contract.test_pipelines import Runs, eventually
from tests.spark.conftest import CLUSTER
from tests.spark.test_sqlite_sink import fill
from tools.spark_cluster import DRIVER_SETTINGS

PIPELINE = """
import sys
from penstock.spark import SqliteSink, read_stream, session, write_stream

spark = session("shop", settings={settings!r})
orders = read_stream(
    spark,
    topics={topic!r},
    schema="user string, amount double",
    startingOffsets="earliest",
    maxOffsetsPerTrigger=40,
)
write_stream(orders, SqliteSink({database!r}, sys.argv[1]), name="copy")
"""


def amounts(database: Path, table: str) -> list[int]:
    try:
        with closing(sqlite3.connect(database)) as connection:
            found = connection.execute(f"SELECT amount FROM {table} ORDER BY amount").fetchall()
    except sqlite3.OperationalError:
        return []
    return [int(amount) for (amount,) in found]


class Shop(Runs):
    """Runs one pipeline against one broker."""

    def __init__(self, folder: Path, broker: Broker, master: str, topic: str) -> None:
        super().__init__(folder)
        self.database = folder / "shop.db"
        settings = DRIVER_SETTINGS if CLUSTER else {}
        self._text = PIPELINE.format(topic=topic, database=str(self.database), settings=settings)
        self._addresses = ("-b", broker.bootstrap, "--master", master)

    def begin(self, table: str, *options: str) -> subprocess.Popen[str]:
        return self.start(self._text, *self._addresses, *options, "--", table)


@pytest.fixture
def shop(tmp_path: Path, broker: Broker, spark_master: str, topic: str) -> Iterator[Shop]:
    made = Shop(tmp_path, broker, spark_master, topic)
    yield made
    made.end()


def end(started: subprocess.Popen[str]) -> str:
    _, errors = started.communicate(timeout=200)
    assert started.returncode == 0, errors
    return errors


@pytest.mark.timeout(600)
def test_over_a_range_then_killed_stopped_and_back_to_a_savepoint(
    shop: Shop, wire: Wire, topic: str
) -> None:
    """In one test, because every start of Spark costs more than all the rest."""
    fill(wire, topic, range(100))
    bounds: dict[str, Any] = {topic: {"0": 5}, "another": {"0": 1}}
    ends: dict[str, Any] = {topic: {"0": 87}}
    errors = end(shop.begin("orders", "--from", json.dumps(bounds), "--until", json.dumps(ends)))
    assert errors.splitlines()[-1] == "shop is done"
    assert amounts(shop.database, "orders") == list(range(5, 87))
    again = shop.begin("orders", "--from", "start")
    _, errors = again.communicate(timeout=200)
    assert (again.returncode, "leave out --from" in errors) == (5, True)
    shop.cli.ok("pipelines", "savepoint", "shop", "one")
    found = shop.described()
    assert [one["label"] for one in found["savepoints"]] == ["one"]
    assert checkpoint_id(shop) == found["queries"]["copy"]["query_id"]

    started = shop.begin("orders")
    eventually(lambda: len(amounts(shop.database, "orders")) == 95, "rows after the range")
    fill(wire, topic, range(100, 140))
    os.kill(child_of(started.pid), signal.SIGKILL)
    eventually(lambda: len(amounts(shop.database, "orders")) == 135, "rows after the kill")
    # Spark knows no lag in a batch that was planned before the kill, and this one is not.
    fill(wire, topic, range(140, 150))
    eventually(lambda: len(amounts(shop.database, "orders")) == 145, "more rows")
    assert shop.cli.run("pipelines", "stop", "shop").stderr == "shop is stopped\n"
    errors = end(started)
    assert "signal SIGKILL); starting again in 1 s" in errors
    assert "copy: batch " in errors
    assert ", lag " in errors
    assert amounts(shop.database, "orders") == list(range(5, 150))

    before = checkpoint_id(shop)
    fill(wire, topic, range(150, 170))
    back = shop.cli.start("pipelines", "restart-from", "shop", "one", stdout=None, stderr=None)
    eventually(lambda: len(amounts(shop.database, "orders")) == 228, "rows after the savepoint")
    back.send_signal(signal.SIGTERM)
    assert back.wait(100) == 0
    # What came after the savepoint is there twice, as was said, and nothing is missing.
    assert amounts(shop.database, "orders") == sorted([*range(5, 170), *range(87, 150)])
    assert checkpoint_id(shop) != before


def child_of(pid: int) -> int:
    """The first process that another one started."""
    found = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return min(int(child) for children in found for child in children)


def checkpoint_id(shop: Shop) -> str:
    text = (shop.root / "shop" / "checkpoints" / "copy" / "metadata").read_text()
    return str(json.loads(text)["id"])
