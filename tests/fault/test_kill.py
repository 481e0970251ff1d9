"""kill -9, again and again, under load: every acknowledged record is there, once and in order.

A killed process loses nothing that it gave to the operating system, so this does not test syncing;
the power failures of test_log_crash.py do. It tests the whole: real processes, real files, real
clients that reconnect, retry and go on.

    PENSTOCK_KILL_ROUNDS   how many kills (default 100)
    PENSTOCK_KILL_SEED     when to kill (default: another one each time; it is printed)
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from tests.fault.client_history import History
from tests.fault.killed_broker import (
    SPOTS,
    Load,
    TailReader,
    create_topics,
    make_value,
    name_of,
    read_everything,
    running,
)
from tests.support.serving import Serving, steady_port

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1800)]

ROUNDS = int(os.environ.get("PENSTOCK_KILL_ROUNDS", "100"))
SEED = int(os.environ.get("PENSTOCK_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
CHECK_EVERY = 10
SERVE_SECONDS_MAX = 1.5
# All that recovery after a kill may have to say. Anything else, above all damage, is a finding.
EXPECTED_WARNINGS = re.compile(
    r"\S+: cut a torn tail of .*"
    r"|\S+: segment \S+ is above the cut; kept aside"
    r"|the catalog's tail was not whole; kept as .*"
)


class Rounds:
    """One data folder and the broker's many lives on it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._random = random.Random(SEED)
        self._startup_seconds = [0.5]
        self.bootstrap = f"127.0.0.1:{steady_port()}"
        self.history = History(SPOTS)
        self.counts: Counter[str] = Counter()

    def start(self) -> Serving:
        folder = self._folder
        self._last = Serving(folder / "data", folder / "stderr.log", kafka=self.bootstrap)
        return self._last

    def close(self) -> None:
        """Leave no process behind, whatever happened."""
        if self._last.process.poll() is None:
            self._last.kill()

    def ready(self) -> Serving:
        server = self.start().wait_ready()
        self._startup_seconds.append(time.monotonic() - server.began)
        return server

    def wait_for_load(self) -> None:
        """Until producers have their ids: only then is there anything that can be lost."""
        deadline = time.monotonic() + 30
        while min(self.history.counts()) < 1000:
            assert time.monotonic() < deadline, self.history.counts()
            time.sleep(0.05)

    def kill(self, server: Serving) -> None:
        server.kill()
        self.counts["while serving" if "ready" in server.lines else "during start-up"] += 1
        for line in server.stderr.splitlines():
            assert EXPECTED_WARNINGS.fullmatch(line), server.stderr
            self.counts["warnings"] += 1

    def round(self, number: int) -> None:
        if number % CHECK_EVERY == 0:
            server = self.ready()
            self.check()
        elif self._random.random() < 1 / 3:
            server = self.start()
            # Most of them near the end of the start-up, where the log is recovered.
            usual = sorted(self._startup_seconds)[len(self._startup_seconds) // 2]
            time.sleep(self._random.triangular(0, 1.3 * usual, usual))
        else:
            server = self.ready()
            time.sleep(self._random.uniform(0, SERVE_SECONDS_MAX))
        self.kill(server)

    def check(self) -> None:
        promises = self.history.promises()
        began = time.monotonic()
        logs = read_everything(self.bootstrap, SPOTS)
        anomalies = self.history.check(promises, logs)
        kinds = Counter(str(one.kind) for one in anomalies)
        assert not anomalies, f"seed {SEED}: {kinds}\n" + "\n".join(map(str, anomalies[:20]))
        records = sum(map(len, logs.values()))
        print(f"  {records:>9,} records are right ({time.monotonic() - began:.1f} s to check)")

    def report(self, seconds: float) -> None:
        sent, acknowledged, seen = self.history.counts()
        data = self._folder / "data"
        segments = len(list(data.glob("topics/*/*.log")))
        torn = len(list((data / "quarantine").glob("*"))) if (data / "quarantine").exists() else 0
        median = sorted(self._startup_seconds)[len(self._startup_seconds) // 2]
        print(
            f"  seed {SEED}: {self.counts['while serving']} kills while serving, "
            f"{self.counts['during start-up']} during start-up, {seconds:.0f} s\n"
            f"  {sent:,} records sent, {acknowledged:,} acknowledged, {seen:,} seen by the reader\n"
            f"  {segments} segments, {torn} torn tails put aside, start-up {median:.2f} s, "
            f"at most {max(self._startup_seconds):.2f}"
        )


def test_kill_under_load(tmp_path: Path) -> None:
    began = time.monotonic()
    rounds = Rounds(tmp_path)
    with closing(rounds):
        kill_again_and_again(rounds)
    look_at_the_files(tmp_path / "data")
    rounds.report(time.monotonic() - began)
    assert rounds.counts["while serving"] + rounds.counts["during start-up"] == ROUNDS
    if ROUNDS >= 50:
        assert rounds.counts["while serving"] >= 20
        assert rounds.counts["during start-up"] >= 5


def kill_again_and_again(rounds: Rounds) -> None:
    server = rounds.ready()
    create_topics(rounds.bootstrap)
    with running(rounds.bootstrap, rounds.history, SEED) as (load, reader):
        rounds.wait_for_load()
        rounds.kill(server)
        for number in range(1, ROUNDS):
            rounds.round(number)
            assert load.failures == reader.failures == []
        server = rounds.ready()
        load.finish()
        caught_up(rounds, load, reader)
    assert server.terminate() == 0
    assert server.stderr == ""


def caught_up(rounds: Rounds, load: Load, reader: TailReader) -> None:
    """In the end everybody knows everything: nothing was given up, nothing is missing."""
    deadline = time.monotonic() + 30
    sent, acknowledged, seen = rounds.history.counts()
    while seen < sent and time.monotonic() < deadline:
        time.sleep(0.05)
        sent, acknowledged, seen = rounds.history.counts()
    assert load.failures == reader.failures == []
    assert sent == acknowledged == seen
    rounds.check()


def look_at_the_files(data: Path) -> None:
    """Every batch that is stored, by the command that people use."""
    command = [sys.executable, "-m", "penstock", "log", "verify", str(data)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("size", [12, 20, 333, 60_000])
def test_a_record_names_itself_in_every_byte(size: int) -> None:
    value = make_value(3, 17, size)
    assert len(value) == size
    assert name_of(value) == b"3/17/%d" % size
    assert name_of(value[:-1]) == value[:-1]
    for at in range(0, size, max(1, size // 50)):
        changed = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
        assert name_of(changed) != name_of(value)
