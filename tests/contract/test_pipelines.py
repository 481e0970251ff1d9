"""`penstock run` and `penstock pipelines` with files that start no Spark: what a supervisor does.

What it does with real queries is in tests/spark/test_run.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import PENSTOCK, Commands

SECONDS_MAX = 150.0  # starting Spark takes a while where others do, too


class Runs:
    """Runs files as pipelines kept in one folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "pipelines"
        self._folder = folder
        self._started: list[subprocess.Popen[str]] = []
        self.environment = {"PENSTOCK_PIPELINES": str(self.root), "NO_COLOR": "1"}
        self.cli = Commands("127.0.0.1:1")
        self.cli.environment.update(self.environment)

    def start(self, text: str, *options: str) -> subprocess.Popen[str]:
        file = self._folder / "shop.py"
        file.write_text(text)
        started = subprocess.Popen(
            [*PENSTOCK, "run", str(file), *options],
            env=os.environ | self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(started)
        return started

    def end(self) -> None:
        """Kill what a failed test left; its pipeline follows by itself."""
        for started in self._started:
            if started.poll() is None:
                started.kill()
                started.communicate()

    def run(self, text: str, *options: str) -> tuple[int, str, str]:
        started = self.start(text, *options)
        out, errors = started.communicate(timeout=SECONDS_MAX)
        return started.returncode, out, errors

    def described(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cli.ok("pipelines", "describe", "shop", "--json"))
        return found


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    yield made
    made.end()


def eventually(ready: Callable[[], object], what: str) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not ready():
        assert time.monotonic() < until, f"no {what}"
        time.sleep(0.05)


def test_a_file_gets_its_arguments_and_addresses(runs: Runs) -> None:
    code, out, errors = runs.run(
        "import os, sys\n"
        "print(sys.argv[1:], os.environ['PENSTOCK_BOOTSTRAP'], os.environ['PENSTOCK_MASTER'])\n"
        "print(os.environ['PYSPARK_PYTHON'] == sys.executable, __name__)\n",
        *("-b", "kafka:9092", "--master", "spark://x:7077", "--", "--currency", "EUR"),
    )
    assert code == 0, errors
    assert out.splitlines() == [
        "['--currency', 'EUR'] kafka:9092 spark://x:7077",
        "True __main__",
    ]
    assert errors == "shop is done\n"
    found = runs.described()
    assert (found["facts"]["phase"], found["facts"]["restarts"]) == ("done", 0)
    assert found["facts"]["arguments"] == ["--currency", "EUR"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def broken(:\n    pass\n", "SyntaxError: invalid syntax"),
        ("import there_is_no_such_module\n", "ModuleNotFoundError: No module named"),
        ("rows = [1]\nrows[3]\n", "IndexError: list index out of range"),
    ],
)
def test_a_file_that_is_wrong_is_given_up_at_once(runs: Runs, text: str, says: str) -> None:
    code, _, errors = runs.run(text)
    assert code == 1
    assert f"error: the pipeline shop was given up: {says}" in errors
    assert 'shop.py", line ' in errors  # the traceback, as far as it is the user's
    assert "penstock/spark/running.py" not in errors
    assert "starting again" not in errors
    assert runs.described()["facts"]["phase"] == "failed"


def test_a_process_that_is_killed_is_started_again(runs: Runs, tmp_path: Path) -> None:
    code, _, errors = runs.run(
        "import os, pathlib, signal\n"
        f"mark = pathlib.Path({str(tmp_path / 'mark')!r})\n"
        "if not mark.exists():\n"
        "    mark.touch()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert code == 0, errors
    assert "shop failed: the process ended (signal SIGKILL); starting again in 1 s" in errors
    assert runs.described()["facts"]["restarts"] == 1
    metrics = (runs.root / "shop" / "metrics.prom").read_text()
    assert 'penstock_pipeline_restarts_total{pipeline="shop"} 1' in metrics


def test_a_broker_that_is_away_is_waited_for_and_a_signal_ends_the_wait(runs: Runs) -> None:
    started = runs.start(
        "from penstock.errors import UnavailableError\n"
        "raise UnavailableError('cannot read', 'the broker does not answer')\n"
    )
    assert started.stderr is not None
    assert "starting again in 1 s" in started.stderr.readline()
    assert "starting again in 2 s" in started.stderr.readline()
    assert runs.described()["facts"]["phase"] == "waiting"
    started.send_signal(signal.SIGTERM)
    _, errors = started.communicate(timeout=SECONDS_MAX)
    assert (started.returncode, errors) == (0, "shop is stopped\n")


def test_a_run_goes_on_when_nobody_reads_what_it_says(runs: Runs, tmp_path: Path) -> None:
    started = runs.start(
        "import os, pathlib, signal\n"
        f"mark = pathlib.Path({str(tmp_path / 'mark')!r})\n"
        "if not mark.exists():\n"
        "    mark.touch()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert started.stderr is not None
    assert started.stdout is not None
    started.stderr.close()
    assert started.wait(SECONDS_MAX) == 0
    started.stdout.close()
    facts = runs.described()["facts"]
    assert (facts["phase"], facts["restarts"]) == ("done", 1)


WAITS = "import pathlib, time\npathlib.Path({!r}).touch()\ntime.sleep(600)\n"


def test_one_that_runs_is_listed_held_and_stopped(runs: Runs, tmp_path: Path) -> None:
    mark = tmp_path / "begun"
    started = runs.start(WAITS.format(str(mark)))
    eventually(mark.exists, "start")
    assert f"shop      running  {started.pid}" in runs.cli.ok("pipelines", "list")
    assert f"process {started.pid}" in runs.cli.ok("pipelines", "describe", "shop")
    second = runs.cli.refused(5, "run", str(tmp_path / "shop.py"))
    assert f"the pipeline shop is running (process {started.pid})" in second
    assert "is running" in runs.cli.refused(5, "pipelines", "savepoint", "shop", "one")
    assert runs.cli.run("pipelines", "stop", "shop").stderr == "shop is stopped\n"
    assert started.wait(SECONDS_MAX) == 0
    assert "it does not run; it is stopped" in runs.cli.refused(5, "pipelines", "stop", "shop")
    started.communicate()


def test_a_pipeline_ends_when_its_supervisor_is_killed_and_holds_the_lock_until_then(
    runs: Runs, tmp_path: Path
) -> None:
    mark = tmp_path / "begun"
    started = runs.start(WAITS.format(str(mark)))
    eventually(mark.exists, "start")
    (child,) = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGSTOP)
    started.kill()
    started.wait(SECONDS_MAX)
    assert runs.described()["pid"] == started.pid  # whose child still has the lock
    os.kill(int(child), signal.SIGCONT)
    eventually(lambda: runs.described()["pid"] is None, "end of the pipeline")
    assert runs.described()["facts"]["phase"] == "killed"
    started.communicate()


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["run", "no-such-file.py"], 3, "there is no such file"),
        (["pipelines", "describe", "nobody"], 3, "there is none"),
        (["pipelines", "describe", "../x"], 2, "cannot be a name"),
        (["run", __file__, "--until", "42"], 2, "a number alone names no partition"),
    ],
)
def test_refusals(runs: Runs, args: list[str], code: int, says: str) -> None:
    assert says in runs.cli.refused(code, *args)


def test_a_missing_java_is_said_at_once(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "apt-get install openjdk" in runs.cli.refused(2, "run", __file__)
