"""The threads beside the loop: one that syncs, and a few that read or remove cold files.

Both run only calls that release the interpreter lock; a thread of busy Python would starve the loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_COLD_THREADS = 4


class SyncThread:
    """Runs one job at a time, in order, and brings each outcome back to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="penstock-sync", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], _T], done: Callable[[_T], None]) -> None:
        """Run job on the thread, then done(outcome) on the loop."""

        def work() -> Callable[[], None]:
            outcome = job()
            return lambda: done(outcome)

        self._jobs.put(work)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._loop.call_soon_threadsafe(job())

    def stop(self) -> None:
        """End after the jobs that are queued."""
        self._jobs.put(None)
        self._thread.join()


class ColdThreads:
    """Reads what is not cached and removes what is not needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(_COLD_THREADS, thread_name_prefix="penstock-cold")

    def run(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """Run job on a thread, then done() on the loop, whether or not it failed."""

        def work() -> None:
            self._guarded(job)
            self._loop.call_soon_threadsafe(done)

        self._pool.submit(work)

    def start(self, job: Callable[[], None]) -> None:
        """Run job on a thread; nobody waits for it."""
        self._pool.submit(self._guarded, job)

    @staticmethod
    def _guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except OSError as error:
            _log.error("work in the background failed: %s", error)

    def stop(self) -> None:
        """End after the jobs that are queued."""
        self._pool.shutdown(wait=True)
