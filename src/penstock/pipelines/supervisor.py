"""Runs a pipeline in a process of its own, listens to it, and starts it again when it falls over.

A signal (SIGTERM, Ctrl-C) asks the pipeline to end after the batch it is at; a second one kills it. If
the supervisor itself is killed, the pipeline notices and ends the same way, holding the lock until then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Final

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.pipelines.folder import Facts, Phase, PipelineFolder, Query, started
from penstock.pipelines.judging import Verdict, judge, wait_seconds
from penstock.pipelines.metrics import progress_line, prometheus
from penstock.pipelines.reports import Ended, Failed, Progress, Report, Started, from_line
from penstock.pipelines.terms import LOCK, REPORTS, Terms

# The module of the pipeline's process, by name: this one never imports Spark.
_CHILD: Final = "penstock.spark.running"
_LINE_SECONDS: Final = 1.0
_KEEP_SECONDS: Final = 1.0


class PipelineError(PenstockError):
    """A pipeline that would fail again was given up."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to run."""

    file: Path
    arguments: list[str]
    terms: Terms


class Supervisor:
    """One run.

    Args:
        folder: the pipeline's; the caller holds its lock.
        lock: the descriptor of that lock.
        program: what to run.
        clock: for times that are written down and for how often.
        say: takes lines for the user.
        environ: what the pipeline's process gets beside what the run adds.
    """

    def __init__(
        self,
        folder: PipelineFolder,
        lock: int,
        program: Program,
        *,
        clock: Clock,
        say: Callable[[str], None],
        environ: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._lock = lock
        self._program = program
        self._clock = clock
        self._listener = say
        self._environ = environ
        self._queries = folder.queries()
        terms = program.terms
        self._facts = Facts(
            file=str(program.file),
            arguments=program.arguments,
            bootstrap=terms.bootstrap,
            master=terms.master,
            checkpoints=terms.checkpoints,
            phase=Phase.RUNNING,
            started_ms=clock.wall_ms(),
        )
        self._signalled = threading.Event()
        self.signalled: int | None = None
        """The first signal that asked for the end, if one did."""
        self._child: subprocess.Popen[bytes] | None = None
        self._said: dict[str, float] = {}
        self._unsaid: dict[str, Progress] = {}
        self._kept = -_KEEP_SECONDS
        self._failures = 0
        self._before: Failed | None = None

    def run(self) -> Phase:
        """Run it until it is through or was stopped.

        Raises:
            PipelineError: it would fail again and again.
        """
        with self._catching_signals():
            while True:
                self._keep(phase=Phase.RUNNING)
                last = self._run_once()
                if self._signalled.is_set():
                    return self._end(Phase.STOPPED)
                verdict = judge(last, self._before)
                if verdict is Verdict.DONE:
                    assert isinstance(last, Ended)
                    return self._end(Phase.STOPPED if last.stopped else Phase.DONE)
                if verdict is Verdict.GIVE_UP:
                    assert isinstance(last, Failed)
                    self._give_up(last)
                if not self._wait(last if isinstance(last, Failed) else None):
                    return self._end(Phase.STOPPED)

    def _say(self, line: str) -> None:
        # A terminal that is gone, or a pipe that nobody reads, is no reason to stop.
        with contextlib.suppress(OSError):
            self._listener(line)

    # -- one try

    def _run_once(self) -> Ended | Failed | None:
        """Start it and listen until it has ended; its last word, if it had one."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", _CHILD, str(self._program.file)]
        command += self._program.arguments
        with theirs, self._folder.log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603 -- our own module, and the user's file
                command,
                env={**self._environ, **self._added(theirs)},
                pass_fds=(theirs.fileno(), self._lock),
                stdin=subprocess.DEVNULL,
                stderr=log,
                # Ctrl-C is for the supervisor, which knows what to do about it.
                start_new_session=True,
            )
        if self._signalled.is_set():
            self._child.terminate()
        last: Ended | Failed | None = None
        with ours, ours.makefile("rb") as lines:
            for line in lines:
                report = from_line(line)
                if isinstance(report, Ended | Failed):
                    last = report
                self._heard(report)
        self._child.wait()
        self._tell_the_rest()
        return last

    def _added(self, reports: socket.socket) -> dict[str, str]:
        terms = self._program.terms.environment()
        added = {REPORTS: str(reports.fileno()), LOCK: str(self._lock)}
        # Without it the workers would run the system's Python, which has no pyspark.
        python = {} if "PYSPARK_PYTHON" in self._environ else {"PYSPARK_PYTHON": sys.executable}
        return {**terms, **added, **python}

    def _heard(self, report: Report) -> None:
        match report:
            case Started():
                self._queries[report.query] = started(self._queries.get(report.query), report)
                self._keep()
            case Progress():
                self._failures = 0
                if self._before is not None and self._before.query in (None, report.query):
                    self._before = None  # another query may still fail as it did
                # One that the file started before it was listened to has not told its start.
                query = self._queries.get(report.query) or Query("", None)
                self._queries[report.query] = replace(query, progress=report)
                self._tell_progress(report)
            case _:
                pass

    def _tell_progress(self, progress: Progress) -> None:
        """A line for each query, and the files, both not too often."""
        now = self._clock.monotonic()
        if now - self._said.get(progress.query, -_LINE_SECONDS) >= _LINE_SECONDS:
            self._said[progress.query] = now
            self._say(progress_line(progress))
            self._unsaid.pop(progress.query, None)
        else:
            self._unsaid[progress.query] = progress
        if now - self._kept >= _KEEP_SECONDS:
            self._keep()

    def _tell_the_rest(self) -> None:
        """Where each query stood at the end, if it was too soon to say so."""
        for progress in self._unsaid.values():
            self._say(progress_line(progress))
        self._unsaid.clear()

    # -- between tries

    def _wait(self, failed: Failed | None) -> bool:
        """Say what happened and wait a while; False if a signal came."""
        self._failures += 1
        self._before = failed
        assert self._child is not None
        code = self._child.returncode
        error = failed.error if failed is not None else f"the process ended ({_how(code)})"
        seconds = wait_seconds(self._failures)
        self._say(f"{self._folder.name} failed: {error}; starting again in {seconds:.0f} s")
        self._facts = replace(self._facts, restarts=self._facts.restarts + 1)
        self._keep(phase=Phase.WAITING, error=error)
        return not self._signalled.wait(seconds)

    def _give_up(self, failed: Failed) -> None:
        self._end(Phase.FAILED, failed.error)
        if failed.detail:
            self._say(failed.detail)
        place = f" in batch {failed.batch} of {failed.query}" if failed.batch is not None else ""
        cause = f"{failed.error}{place}"
        remedy = f"correct it and run it again; {self._folder.log} has all that was logged"
        raise PipelineError(f"the pipeline {self._folder.name} was given up", cause, remedy)

    def _end(self, phase: Phase, error: str | None = None) -> Phase:
        self._keep(phase=phase, error=error)
        return phase

    def _keep(self, *, phase: Phase = Phase.RUNNING, error: str | None = None) -> None:
        """Write down what is known now."""
        self._kept = self._clock.monotonic()
        self._facts = replace(self._facts, phase=phase, error=error)
        self._folder.write_facts(self._facts)
        self._folder.write_queries(self._queries)
        metrics = prometheus(self._folder.name, self._facts.restarts, self._queries)
        self._folder.write_metrics(metrics)

    # -- signals

    @contextlib.contextmanager
    def _catching_signals(self) -> Iterator[None]:
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        child = self._child
        if child is not None and child.poll() is None:
            if self._signalled.is_set():
                child.kill()
            else:
                child.terminate()
        self.signalled = self.signalled or number
        self._signalled.set()


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"


def stop(pid: int) -> None:
    """Ask a supervisor to stop its pipeline."""
    os.kill(pid, signal.SIGTERM)
