"""Queries whose driver, workers, broker and database are killed: each sink holds what a batch computes.

A query has several sinks. Its driver is killed at every named point of each of them, and at random; each
time that is a round for all of these sinks. In between the newest files of its checkpoint are removed or
cut. After every round each sink must hold the result of the computation over the input of whole batches,
and so must every version that it showed meanwhile.

    PENSTOCK_KILL_ROUNDS   drivers of each query killed at random, besides named points (default 6)
    PENSTOCK_KILL_SEED     when to kill whom (default: another one each time; it is printed)
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.spark_cases import QUERIES, cases
from tests.fault.spark_points import POINTS
from tests.fault.spark_world import CRASH, World, executors, summary
from tests.spark.sink_targets import receiver
from tests.support.serving import steady_port
from tools.postgres import PostgresServer, programs
from tools.spark_cluster import running_cluster

pytestmark = [pytest.mark.fault, pytest.mark.timeout(7200)]
ROUNDS = int(os.environ.get("PENSTOCK_KILL_ROUNDS", "6"))
SEED = int(os.environ.get("PENSTOCK_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
POINT_SECONDS_MAX = 600
END_SECONDS_MAX = 1800
EXECUTOR_ROUNDS = 5
# The one point that only the first round can have.
NOTHING_YET = ("delta-totals", "table made")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    print(f"seed {SEED}")
    with receiver() as web:
        if programs() is None:
            made = World(tmp_path, None, web, SEED)
            yield made
            made.close()
            return
        with PostgresServer(steady_port()) as database:
            made = World(tmp_path, database, web, SEED)
            yield made
            made.close()


def to_the_end(world: World, *queries: str, master: str | None = None) -> None:
    """Let queries come to the end of their input."""
    for flag in world.folder.glob("kill-a-worker-*"):
        flag.unlink()
    with world.driver(queries, master=master, ends=True) as driver:
        assert driver.wait(END_SECONDS_MAX) == 0, world.said()[-5000:]
    world.check_all_is_there(queries)
    print(summary(world), flush=True)


def at_a_point(world: World, query: str, case: str, point: str) -> None:
    # At the first call it is mostly a batch that runs again, at the second a new one.
    call = 1 if (case, point) == NOTHING_YET else world.chance.choice((1, 2))
    with world.driver([query], death=(case, point, call)) as driver:
        # Otherwise the point was not reached, and nothing was tested.
        assert driver.wait(POINT_SECONDS_MAX) == CRASH, world.said()[-5000:]
    assert (world.folder / "died").read_text() == f"{case}: {point}"
    world.kills["driver at a point"] += 1


def at_random(world: World, query: str) -> None:
    """Everything else twice, in any order, and then the driver; the query goes on in between."""
    others = [world.kill_broker, world.kill_workers, world.kill_database]
    others += [world.lose_answers] if query == "rows" else []
    with world.driver([query]) as driver:
        for kill in world.chance.sample(others * 2, len(others) * 2):
            world.wait_on(driver, query)
            time.sleep(world.chance.uniform(0, 2))
            kill(driver.pid)
            world.kills[kill.__name__] += 1
        time.sleep(world.chance.uniform(0, 8))
    world.kills["driver at random"] += 1


def rounds(world: World, query: str) -> list[tuple[str, str]]:
    """Named points, and as many that are empty as there are rounds at random."""
    there = [query, *cases(query, world.places)]
    named = [(case, point) for case in there for point in POINTS[case]]
    mixed = [*named, *[("", "")] * ROUNDS]
    world.chance.shuffle(mixed)
    return sorted(mixed, key=lambda one: one != NOTHING_YET)


@pytest.mark.parametrize("query", QUERIES)
def test_whatever_is_killed_each_sink_holds_what_a_batch_computes(world: World, query: str) -> None:
    world.feed()
    other = next(one for one in QUERIES if one != query)
    to_the_end(world, other)  # undisturbed, which makes the next starts quick
    for number, (case, point) in enumerate(rounds(world, query)):
        began = time.monotonic()
        world.feed()
        if point:
            at_a_point(world, query, case, point)
        else:
            at_random(world, query)
        world.check([query])
        world.damage([query])
        name, took = f"{case}, {point}" if point else "at random", time.monotonic() - began
        print(f"round {number}: {name}: {took:.1f} s", flush=True)
    to_the_end(world, query)


def test_executors_of_a_cluster_are_killed(world: World, tmp_path: Path) -> None:
    world.feed()
    with running_cluster(tmp_path / "cluster") as master:
        with world.driver(list(QUERIES), master=master) as driver:
            for _ in range(EXECUTOR_ROUNDS):
                world.wait_on(driver, *QUERIES)
                time.sleep(world.chance.uniform(0, 3))
                victims = executors(tmp_path)
                os.kill(world.chance.choice(victims), signal.SIGKILL)
                world.kills["executor"] += 1
        world.check(list(QUERIES))
        to_the_end(world, *QUERIES, master=master)
