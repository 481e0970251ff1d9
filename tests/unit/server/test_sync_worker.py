"""The thread that syncs: reports what fsync said, file by file, and runs jobs in between."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import threading
from collections.abc import Sequence
from pathlib import Path

from penstock.files import OsFiles
from penstock.server.sync_worker import SyncWorker
from penstock.server.threads import SyncThread
from penstock.server.turn import Turn


async def outcome(thread: SyncThread, paths: Sequence[Path], together: bool) -> object:
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    files = [OsFiles().open(path, create=True) for path in paths]
    thread.sync(files, together, done.set_result)
    del files  # the thread holds them for as long as it needs them
    return await asyncio.wait_for(done, 10)


def test_syncs_and_jobs_take_turns(tmp_path: Path) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        thread = SyncThread(loop, Turn(loop.call_soon))
        two = [tmp_path / "a", tmp_path / "b"]
        try:
            for _ in range(3):
                assert await outcome(thread, two, together=False) == []
                done: asyncio.Future[int] = loop.create_future()
                thread.run(lambda: 7, done.set_result)
                assert await asyncio.wait_for(done, 10) == 7
                assert await outcome(thread, [*two, tmp_path / "c"], together=True) == []
        finally:
            thread.stop()

    asyncio.run(test())


def test_errors_are_told_file_by_file(tmp_path: Path) -> None:
    # A pipe cannot be synced: what the kernel says of it must arrive, at its place.
    read, write = os.pipe()
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    worker = SyncWorker()
    thread = threading.Thread(target=worker.serve)
    thread.start()
    try:
        worker.submit([descriptor, write], False)
        assert select.select([worker.descriptor], [], [], 10)[0]
        assert worker.outcome() == [0, errno.EINVAL]
    finally:
        worker.call_back()
        thread.join()
        worker.close()
        for one in (read, write, descriptor):
            os.close(one)
