"""A query that keeps a view is killed at every step of a batch: whoever reads finds it whole, always."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.fault.view_keeper import POINTS

from penstock.client.topics import create_topic
from penstock.errors import NotFoundError
from penstock.testing import broker
from penstock.views import Query, open_store

pytestmark = pytest.mark.fault
RECORDS, USERS = 1000, 7
CRASH = -9


def run(*arguments: str) -> int:
    """Run the keeper to its end, whichever that is; the exit status."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("view_keeper.py")), *arguments],
        check=False,
        capture_output=True,
        timeout=600,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode in (0, CRASH), done.stderr.decode()[-3000:]
    return done.returncode


def check(store: str) -> int:
    """The view is what the input up to its position gives; how much input that is."""
    try:
        answer = open_store(store).ask("totals", Query())
    except NotFoundError:
        return 0
    last = answer.version.last
    assert last is not None
    seen = last.position["orders"]["0"]
    wanted = {
        f"u{user}": (sum(range(user, seen, USERS)), len(range(user, seen, USERS)))
        for user in range(USERS)
    }
    assert {row["user"]: (row["total"], row["count"]) for row in answer.rows} == wanted
    return seen


def test_a_view_is_whole_at_every_moment(tmp_path: Path) -> None:
    store, checkpoint = f"sqlite:///{tmp_path}/views.db", str(tmp_path / "checkpoint")
    with broker() as running:
        create_topic(running.bootstrap, "orders", partitions=1)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(RECORDS):
            producer.produce("orders", b'{"user": "u%d", "amount": %d}' % (number % USERS, number))
        producer.flush()
        seen = [0]
        for point in POINTS:
            assert run(running.bootstrap, "orders", store, checkpoint, point) == CRASH
            seen.append(check(store))
        assert seen == sorted(seen)
        assert seen[-1] > 0
        assert run(running.bootstrap, "orders", store, checkpoint, "none") == 0
        assert check(store) == RECORDS
