"""What a server says that cannot start for something that it lacks."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from penstock.config import Address, ServeSettings
from penstock.errors import DiskFullError, StorageError
from penstock.files import Files
from penstock.server.app import Server
from penstock.testing.faulty import FaultyFiles


def start_and_stop(data: Path, files: Files | None = None) -> None:
    settings = ServeSettings(data=data, kafka=Address("127.0.0.1", 0))

    async def body() -> None:
        server = Server(settings, files=files)
        await server.start()
        await server.stop()

    asyncio.run(body())


def test_a_disk_without_room_for_a_new_folder(tmp_path: Path) -> None:
    with pytest.raises(DiskFullError, match=r"open data folder .* free some space"):
        start_and_stop(tmp_path, FaultyFiles(capacity=0))


@pytest.mark.parametrize(
    ("code", "told"),
    [(errno.EMFILE, "raise the limit"), (errno.EIO, "check that disk and the rights")],
)
def test_files_that_cannot_be_opened(tmp_path: Path, code: int, told: str) -> None:
    files = FaultyFiles()
    start_and_stop(tmp_path, files)
    files.fail("open", code)
    with pytest.raises(StorageError, match=told):
        start_and_stop(tmp_path, files)
    start_and_stop(tmp_path, files)
