"""The broker and the pipeline as child processes that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_PENSTOCK = [sys.executable, "-m", "penstock"]
_STOP_SECONDS = 60


class Broker:
    """`penstock serve` on a free port."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.bootstrap = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        began = time.monotonic()
        command = [*_PENSTOCK, "serve", "--data", str(self._data), "--kafka", self.bootstrap]
        self._process = subprocess.Popen(
            [*command, "--http", "off"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("kafka listening on "):
                self.bootstrap = line.split()[-1]
            if line.strip() == "ready":
                passed = (time.monotonic() - began) * 1000
                print(f"broker ready on {self.bootstrap} after {passed:.0f} ms", flush=True)
                return
        raise SystemExit("the broker did not start")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


class Pipeline:
    """`penstock run`, which starts again what is killed below it."""

    def __init__(self, bootstrap: str, folder: Path, database: Path) -> None:
        self.log = folder / "pipeline.log"
        self._database = database
        file = Path(__file__).with_name("pipeline.py")
        command = [*_PENSTOCK, "run", str(file), "--bootstrap", bootstrap]
        with self.log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [*command, "--folder", str(folder / "pipelines"), "--", str(database)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def working(self) -> bool:
        """Whether it has looked at its tables, which it does when Spark is there."""
        return self._database.exists()

    def kill(self) -> bool:
        """Kill everything that works, with SIGKILL; whether there was something."""
        found = _below(self._process.pid)
        for process in found:
            os.kill(process, signal.SIGKILL)
        return bool(found)

    def stop(self) -> None:
        if self.running:
            self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.kill()


def _below(parent: int) -> list[int]:
    """All processes that a process has started, and those that they have started."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    found: list[int] = []
    left = [parent]
    while left:
        started = children.get(left.pop(), [])
        found += started
        left += started
    return found
