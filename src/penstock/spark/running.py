"""The process of a pipeline that `penstock run` supervises: python -m penstock.spark.running FILE ...

It runs the file as a program, waits for the queries that the file started, and tells the supervisor how
it ended.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType, ModuleType

from pyspark.errors import StreamingQueryException

from penstock.clock import SystemClock
from penstock.pipelines.reports import Ended, Failed, Reporter
from penstock.spark.failures import failed_program
from penstock.spark.supervised import Supervised, supervise

_ASKED_AGAIN_SECONDS = 1.0


def main(arguments: list[str]) -> int:
    """Run one pipeline; the exit status."""
    file = Path(arguments[0])
    reporter = Reporter.inherited()
    supervised = Supervised(reporter, SystemClock())
    supervise(supervised)
    _stop_when_asked(supervised, reporter)
    last = _run(file, arguments, supervised)
    reporter.tell(last)
    return int(isinstance(last, Failed))


def _run(file: Path, arguments: list[str], supervised: Supervised) -> Ended | Failed:
    error: BaseException | None = None
    try:
        _run_file(file, arguments)
        supervised.wait()
    except BaseException as raised:  # whatever it is, the supervisor is told
        error = raised
    # A query that failed is the reason for what the file raised after it.
    if supervised.failed is not None:
        return supervised.failed
    if error is None or supervised.stopping:
        return Ended(stopped=supervised.stopping)
    if isinstance(error, StreamingQueryException):
        return supervised.failed_with(error)
    return failed_program(error, file)


def _run_file(file: Path, arguments: list[str]) -> None:
    """As Python runs a program, but in this process, and it stays `__main__` after its last line.

    One that exits with success has said all that it has to say: its queries go on.
    """
    program = ModuleType("__main__")
    program.__file__ = str(file)
    sys.modules["__main__"] = program
    sys.argv = list(arguments)
    sys.path.insert(0, str(file.parent))
    code = compile(file.read_bytes(), str(file), "exec")
    try:
        exec(code, program.__dict__)  # noqa: S102 -- the user's own program
    except SystemExit as ended:
        if ended.code:
            raise


def _stop_when_asked(supervised: Supervised, reporter: Reporter) -> None:
    """End after the batch: by a signal, or when the supervisor is gone."""

    def stop(number: int, frame: FrameType | None) -> None:
        if not supervised.has_queries:
            supervised.stop()
            raise SystemExit(0)
        # Not here: this is the thread that the file runs on.
        threading.Thread(target=supervised.stop, name="penstock-stop", daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    if reporter.supervised:

        def watch() -> None:
            reporter.wait_for_the_end()
            # To the thread that must wake up for it: any other one could be given the signal.
            main_thread = threading.main_thread().ident
            assert main_thread is not None
            # Again until it is heard: a signal that comes just before the thread falls asleep does not
            # wake it.
            while not supervised.stopping:
                signal.pthread_kill(main_thread, signal.SIGTERM)
                time.sleep(_ASKED_AGAIN_SECONDS)

        threading.Thread(target=watch, name="penstock-supervisor", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
