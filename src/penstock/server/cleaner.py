"""The process that makes passes of compaction, and how the broker starts it.

A pass looks at every record, which would keep the broker's interpreter busy for minutes; so each runs in
a process of its own, which also gives all memory back when it ends. The plan goes in as a line of
JSON, reports come out as lines of JSON, and the process ends when its input does: a broker that is
killed takes it along.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.errors import PenstockError
from penstock.files import OsFiles
from penstock.limits import COMPACTION_BYTES_PER_SECOND, MIB
from penstock.log.cleaning import Cleaned, Failed, Finished, Plan, Report, clean

_KINDS: Final[dict[str, type[Cleaned] | type[Finished] | type[Failed]]] = {
    kind.__name__: kind for kind in (Cleaned, Finished, Failed)
}
_LINE_BYTES_MAX = 16 * MIB  # a plan names up to 100,000 batches
_NICENESS = 10
_log = logging.getLogger(__name__)


class CleanerProcess:
    """Starts passes, one at a time, and brings their reports to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task: asyncio.Task[None] | None = None

    def start(self, plan: Plan, report: Callable[[Report], None]) -> None:
        """Begin a pass."""
        assert self._task is None
        self._task = self._loop.create_task(self._pass(plan, report))

    async def _pass(self, plan: Plan, report: Callable[[Report], None]) -> None:
        last: Report = Failed("the process that compacts did not say why it ended")
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "penstock.server.cleaner"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # an interrupt from the terminal is the broker's to handle
                limit=_LINE_BYTES_MAX,
            )
        except OSError as error:
            self._task = None
            report(Failed(f"no process could be started: {error}"))
            return
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(_line(plan))
            async for line in process.stdout:
                if not line.endswith(b"\n"):
                    last = Failed("the process that compacts was killed")
                    break
                last = _read(line)
                if isinstance(last, Cleaned):
                    report(last)
        except (ValueError, KeyError, TypeError) as error:
            # Too long, no JSON, or of another version of this program.
            last = Failed(f"a report of the process that compacts cannot be read: {error}")
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()  # what is not read would keep it from ending
            self._task = None
        # Only now: the next pass may be started by whoever hears of the end of this one.
        report(Failed("the process was stopped") if isinstance(last, Cleaned) else last)

    async def stop(self) -> None:
        """End a pass that runs; what it has not reported is lost, and done again some day."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def _line(fields: Plan | Report) -> bytes:
    kind = type(fields).__name__
    return json.dumps([kind, fields]).encode() + b"\n"


def _read(line: bytes) -> Report:
    kind, fields = json.loads(line)
    report: Report = _KINDS[kind](*fields)
    return report


class Throttle:
    """Waits so that no more than a number of bytes pass in a second."""

    def __init__(
        self, bytes_per_second: int, now: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._rate = bytes_per_second
        self._now = now
        self._sleep = sleep
        self._free_at = now()

    def passed(self, size: int) -> None:
        """Account for bytes, and wait if too many have passed."""
        now = self._now()
        self._free_at = max(self._free_at, now) + size / self._rate
        # Naps shorter than a clock tick are saved up.
        if self._free_at - now > 0.05:
            self._sleep(self._free_at - now)


def main() -> None:
    """Make the pass that stands on the input, and report on the output."""
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, fields = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    throttle = Throttle(COMPACTION_BYTES_PER_SECOND, time.monotonic, time.sleep)
    try:
        for report in clean(OsFiles(), Plan(*fields), throttle.passed):
            _say(report)
    except (OSError, PenstockError) as error:
        _say(Failed(str(error)))


def _say(report: Report) -> None:
    sys.stdout.buffer.write(_line(report))
    sys.stdout.buffer.flush()


def _end_with_input() -> None:
    """Go when the broker goes: another one may be about to work on the same files."""
    # Not by way of Python's own buffer, whose lock would be in the way of an orderly end.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
