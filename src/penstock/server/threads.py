"""The threads beside the loop: one that syncs, a few for cold files, one for large messages.

The first two run only calls that release the interpreter lock. The last is busy with Python, and has to
hand the interpreter over whenever the loop has waited for it for SWITCH_SECONDS.

This module may run compiled (setup.py), with the C types that stand in threads.pxd.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

from penstock.files import File, OsFile
from penstock.limits import SYNC_SLICE_SECONDS
from penstock.log.commit import SyncsDone
from penstock.server.scheduling import ask_for_slices
from penstock.server.sync_worker import SyncWorker
from penstock.server.turn import Turn

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
COLD_THREADS = 4


class SyncThread:
    """Runs one thing at a time, in order, and brings each outcome back to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turn: Turn) -> None:
        self._loop = loop
        self._turn = turn
        self._jobs: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._worker = SyncWorker()
        self._syncing: tuple[Sequence[File], SyncsDone] | None = None
        loop.add_reader(self._worker.descriptor, self._synced)
        self._thread = threading.Thread(target=self._work, name="penstock-sync", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], _T], done: Callable[[_T], None]) -> None:
        """Run job on the thread, then done(outcome) on the loop."""

        def work() -> Callable[[], None]:
            outcome = job()
            return lambda: done(outcome)

        self._queue(work)

    def sync(self, files: Sequence[File], together: bool, done: SyncsDone) -> None:
        """Sync files on the thread, then done(errors) on the loop."""
        descriptors = [file.descriptor for file in files if isinstance(file, OsFile)]
        assert len(descriptors) == len(files)
        assert self._syncing is None
        # The files are held as well: a descriptor must not be closed, and used anew, meanwhile.
        self._syncing = (files, done)
        self._worker.submit(descriptors, together)

    def _synced(self) -> None:
        errors = self._worker.outcome()
        assert self._syncing is not None
        _, done = self._syncing
        self._syncing = None
        self._turn.enter()
        try:
            done([_error(code) for code in errors] if errors else [])
        finally:
            self._turn.leave()

    def _queue(self, work: Callable[[], Callable[[], None]] | None) -> None:
        self._jobs.put(work)
        self._worker.call_back()

    def _work(self) -> None:
        ask_for_slices(SYNC_SLICE_SECONDS)
        while True:
            self._worker.serve()
            job = self._jobs.get()
            if job is None:
                return
            self._loop.call_soon_threadsafe(job())
            del job  # or what it has removed from memory would stay there until the next one

    def stop(self) -> None:
        """End after the jobs that are queued."""
        self._queue(None)
        self._thread.join()
        self._loop.remove_reader(self._worker.descriptor)
        self._worker.close()


class Threads:
    """A few that run what they are given, in its order: cold files, or one that decodes and encodes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, count: int) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=f"penstock-{name}")

    def run(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """Run job on a thread, then done() on the loop, whether or not it failed."""

        def work() -> None:
            try:
                self._guarded(job)
            finally:  # somebody is held until then
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


def _error(code: int) -> OSError | None:
    return OSError(code, os.strerror(code)) if code else None
