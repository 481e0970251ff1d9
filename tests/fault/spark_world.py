"""A broker, a database, a web server and a driver with queries to every sink: all can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
from tests.fault.spark_cases import PARTITIONS, QUERIES, SOURCE, STEPS, TARGET, Places, cases
from tests.fault.spark_queries import Order
from tests.fault.spark_results import Input, Plan
from tests.fault.spark_sights import Table, View, Webhook, sights
from tests.fault.spark_sums import NAME
from tests.spark.sink_targets import LOST, TAKEN, Receiver
from tests.support.serving import Serving, steady_port
from tools.postgres import PostgresServer

from penstock.client.topics import create_topic
from penstock.errors import PenstockError
from penstock.spark.state.places import operator_place
from penstock.spark.state.versions import name_of

ROOT = Path(__file__).parents[2]
CRASH = -signal.SIGKILL
# A task that fails fails its batch, or is tried again.
MASTERS = ("local[2]", "local[2,4]")
NEVER = ("", "", 0)
GO_ON_SECONDS_MAX = 600
# Beyond the fastest query, so that none runs out of input before it is killed.
AHEAD = 300
WATCH_SECONDS = 0.2
# A start of the JVM costs most of a round, and nothing lives long enough for it to become fast. Classes
# are kept loaded in a file, which the first driver leaves behind.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"


class World:
    """See the module."""

    def __init__(self, folder: Path, postgres: PostgresServer | None, web: Receiver, seed: int):
        self.folder = folder
        self.chance = random.Random(seed)
        self.database, self.web = postgres, web
        self.bootstrap = f"127.0.0.1:{steady_port()}"
        url = "" if postgres is None else postgres.url
        self.places = Places(self.bootstrap, str(folder), url, web.url)
        self.broker = self.start_broker()
        create_topic(self.bootstrap, SOURCE, partitions=PARTITIONS)
        create_topic(self.bootstrap, TARGET, partitions=PARTITIONS)
        self.input = Input(self.bootstrap, seed)
        self.sights = sights(self.places, web.taken)
        self.plans = {
            query: Plan(query, self.places.checkpoint(query), self.input) for query in QUERIES
        }
        self.kills: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self._spare: subprocess.Popen[bytes] | None = None
        self._started = 0
        self.log = folder / "driver-1.log"
        self._failures: list[str] = []

    def start_broker(self) -> Serving:
        data, errors = self.folder / "data", self.folder / "broker.log"
        return Serving(data, errors, kafka=self.bootstrap).wait_ready()

    def feed(self) -> None:
        """So much input that every query has some."""
        planned = max(plan.read() for plan in self.plans.values())
        if sum(self.input.ends) < planned + AHEAD // 2:
            self.input.add(planned + AHEAD - sum(self.input.ends))

    def _java(self) -> str:
        classes = self.folder / "classes.jsa"
        kept = "SharedArchiveFile" if classes.exists() else "ArchiveClassesAtExit"
        return f"{JAVA} -XX:{kept}={classes}"

    def _start_driver(self, master: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "PYSPARK_SUBMIT_ARGS": f"--driver-java-options '{self._java()}' pyspark-shell",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
        }
        self._started += 1
        with (self.folder / f"driver-{self._started}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.fault.spark_queries", master],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @contextlib.contextmanager
    def driver(
        self,
        queries: Sequence[str],
        *,
        master: str | None = None,
        death: tuple[str, str, int] = NEVER,
        ends: bool = False,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A driver, watched; whatever is left of it is killed in the end.

        Args:
            queries: those that it runs.
            master: None: one on this machine, of which the next one is started meanwhile.
            death: the query or sink, the point, and the call at which it kills itself.
            ends: whether it ends when everything has been written.
        """
        (self.folder / "died").unlink(missing_ok=True)
        process = self._spare or self._start_driver(master or MASTERS[0])
        self.log = self.folder / f"driver-{self._started}.log"
        spare = master is None and not ends
        self._spare = self._start_driver(self.chance.choice(MASTERS)) if spare else None
        order = Order(list(self.places), list(queries), *death, ends, self.chance.randrange(1000))
        assert process.stdin is not None
        process.stdin.write(json.dumps(order._asdict()).encode() + b"\n")
        process.stdin.flush()
        stop = threading.Event()
        watching = threading.Thread(target=self._watch, args=(stop,))
        watching.start()
        try:
            yield process
        finally:
            if process.poll() == 0:
                # The JVM ends after its Python, and leaves its classes behind.
                wait_until(lambda: not session_of(process.pid), GO_ON_SECONDS_MAX)
            kill_driver(process)
            stop.set()
            watching.join()

    def _watch(self, stop: threading.Event) -> None:
        """See what those see who read while batches are written."""
        watched = [one for one in self.sights.values() if isinstance(one, Table | View)]
        while not stop.wait(WATCH_SECONDS):
            for one in watched:
                try:
                    one.watch()
                except (psycopg.OperationalError, PenstockError):
                    continue  # it has been killed
                except Exception as error:  # a thread can tell nobody else
                    self._failures.append(repr(error))
                    return

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_on(self, driver: subprocess.Popen[bytes], *queries: str) -> None:
        """Until queries have come one batch further."""
        before = {query: self.plans[query].newest("commits") for query in queries}
        until = time.monotonic() + GO_ON_SECONDS_MAX
        while any(self.plans[query].newest("commits") <= last for query, last in before.items()):
            assert driver.poll() is None, self.said()[-5000:]
            assert time.monotonic() < until, self.said()[-5000:]
            time.sleep(0.1)
            self.feed()

    def check(self, queries: Sequence[str]) -> None:
        """Every sink holds the result after a whole batch, and so did every version of it."""
        assert not self._failures, self._failures
        assert "ConflictError" not in self.said(), self.said()[-5000:]
        for query in queries:
            plan, there = self.plans[query], cases(query, self.places)
            plan.look({case: self.sights[case].last() for case in there})
            for case in there:
                self.versions[case] += self.sights[case].check(plan)

    def check_all_is_there(self, queries: Sequence[str]) -> None:
        """Nothing of the input is missing."""
        self.check(queries)
        for query in queries:
            plan = self.plans[query]
            assert plan.ends == self.input.ends, query
            for case in cases(query, self.places):
                assert self.sights[case].last() == plan.newest("offsets"), case

    def damage(self, queries: Sequence[str]) -> None:
        """The newest files of checkpoints, as a power failure leaves them."""
        for query in queries:
            for path in self._newest_files(query):
                match self.chance.randrange(6):
                    case 0:
                        path.unlink()
                    case 1:
                        path.write_bytes(b"")
                    case 2:
                        path.write_bytes(path.read_bytes()[:-5])
                    case _:
                        continue
                folder = path.parent.name.partition("-")[0]  # of buckets there are several
                self.kills[f"damaged {path.name if path.name == 'metadata' else folder}"] += 1

    def _newest_files(self, query: str) -> list[Path]:
        """Those that the next start reads first, and states of a batch that is not committed."""
        checkpoint, plan = Path(self.places.checkpoint(query)), self.plans[query]
        planned, done = plan.newest("offsets"), plan.newest("commits")
        files = ["metadata", f"offsets/{planned}", f"commits/{done}"]
        found = [checkpoint / file for file in files if (checkpoint / file).exists()]
        if planned > done:
            found += Path(operator_place(str(checkpoint), NAME).url).glob(f"*/{name_of(planned)}")
        return found

    # -- who can be killed while a driver runs

    def kill_broker(self, driver: int) -> None:
        self.broker.kill()
        self.broker = self.start_broker()

    def kill_workers(self, driver: int) -> None:
        """In each query a worker with rows in its hands, and any two others."""
        for query in self.plans:
            self.places.flag(query, self.chance.choice(STEPS[query])).touch()
        workers = [pid for pid in session_of(driver) if b"pyspark.daemon" in command(pid)]
        for pid in self.chance.sample(workers, min(2, len(workers))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_database(self, driver: int) -> None:
        if self.database is not None:
            self.database.kill()
            self.database.start()

    def lose_answers(self, driver: int) -> None:
        """A web server that dies over its answers: it has taken what it was sent, or has not."""
        self.web.statuses += self.chance.choices((LOST, TAKEN, 503), k=3)

    def close(self) -> None:
        if self._spare is not None:
            kill_driver(self._spare)
        if self.broker.process.poll() is None:
            self.broker.kill()


def session_of(leader: int) -> list[int]:
    """The processes of a session; those of Spark's workers have groups of their own in it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def executors(folder: Path) -> list[int]:
    """Of a cluster that works in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            home = (entry / "cwd").readlink()
            if b"CoarseGrainedExecutorBackend" in command(int(entry.name)) and home.is_relative_to(
                folder
            ):
                found.append(int(entry.name))
    return found


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)


def kill_driver(process: subprocess.Popen[bytes]) -> None:
    kill_session(process.pid)
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def kill_session(leader: int) -> None:
    while found := session_of(leader):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def summary(world: World) -> dict[str, Any]:
    web = world.sights["webhook"]
    assert isinstance(web, Webhook)
    return {
        "kills": dict(world.kills),
        "versions compared": dict(world.versions),
        "records": sum(world.input.ends),
        "pages sent again": web.again,
    }
