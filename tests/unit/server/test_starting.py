"""What a server says that cannot start, or not stop in order, for something that it lacks."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.admin_requests import create_topics

from penstock.config import Address, ServeSettings
from penstock.errors import DiskFullError, MemoryFullError, StorageError, UsageError
from penstock.files import Files
from penstock.memory_files import failure
from penstock.record.encode import NewRecord, encode
from penstock.server.app import Server, calm_garbage_collector
from penstock.testing.faulty import FaultyFile, FaultyFiles


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


def test_a_stop_that_cannot_be_in_order(tmp_path: Path) -> None:
    files = FaultyFiles()

    async def body() -> None:
        server = Server(ServeSettings(data=tmp_path, kafka=Address("127.0.0.1", 0)), files=files)
        await server.start()
        files.fail("create", errno.ENOSPC, sticky=True)
        with pytest.raises(StorageError, match="nothing that was acknowledged is lost"):
            await server.stop()

    asyncio.run(body())
    files.heal()
    assert not files.exists(tmp_path / "clean")
    start_and_stop(tmp_path, files)  # the folder is free again


def test_topics_in_memory_have_a_quarter_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.app.memory_bytes", lambda: 4000)

    async def body() -> None:
        server = Server(ServeSettings(data=tmp_path, kafka=Address("127.0.0.1", 0)))
        await server.start()
        config = {"penstock.durability": "memory", "retention.ms": "-1"}
        topic = server.broker.create_topic("scratch", 1, config)
        append = server.broker.appender.append
        append(topic, topic.partition(0), encode([NewRecord(bytes(800))]))
        with pytest.raises(MemoryFullError, match="may hold 1000 bytes"):
            append(topic, topic.partition(0), encode([NewRecord(bytes(800))]))
        await server.stop()

    asyncio.run(body())


class LockedFiles(FaultyFiles):
    """Makes no file in one folder, once that is named."""

    locked: Path | None = None

    def open(self, path: Path, *, create: bool = False) -> FaultyFile:
        if create and path.parent == self.locked:
            raise failure(errno.EACCES, path)
        return super().open(path, create=create)


def test_a_stop_names_the_folder_that_it_may_not_write_to(tmp_path: Path) -> None:
    files = LockedFiles()

    async def body() -> None:
        server = Server(ServeSettings(data=tmp_path, kafka=Address("127.0.0.1", 0)), files=files)
        await server.start()
        made = asyncio.Event()
        server.broker.create_topic("orders", 1, {})
        server.broker.commit.after(made.set)
        await made.wait()
        files.locked = tmp_path / "topics" / "orders-0"
        await server.stop()

    told = r"the folder .*/topics/orders-0 cannot be written to: Permission denied; let the server"
    with pytest.raises(StorageError, match=told):
        asyncio.run(body())


@pytest.fixture
def folder_of_another() -> Iterator[Path]:
    """One that this process may look into and not write to, whoever it runs as."""
    nobody = 65534
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        ours = os.geteuid()
        if ours == 0:
            os.seteuid(nobody)
        yield folder
        os.seteuid(ours)
        folder.chmod(0o755)


def test_a_folder_of_another_user(folder_of_another: Path) -> None:
    with pytest.raises(UsageError, match="Permission denied; start the server as the user"):
        start_and_stop(folder_of_another)


def test_a_folder_in_the_place_of_the_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(UsageError, match="choose another folder"):
        start_and_stop(tmp_path)


def test_a_stop_does_not_wait_for_a_request_that_takes_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.app._STOP_SECONDS_MAX", 0.05)
    request = create_topics(*(f"topic-{number:05}" for number in range(5000)))
    request.API_VERSION = 5
    request.with_header(correlation_id=1, client_id="x")

    async def body() -> None:
        server = Server(ServeSettings(data=tmp_path, kafka=Address("127.0.0.1", 0)))
        await server.start()
        _, writer = await asyncio.open_connection("127.0.0.1", server.listening[0].port)
        writer.write(request.encode(version=5, header=True, framed=True))
        for _ in range(30_000):
            if server.broker.topics():
                break
            await asyncio.sleep(0.001)
        await server.stop()
        made = len(server.broker.topics())
        assert made < 5000
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(server.broker.topics()) == made
        writer.close()

    asyncio.run(body())
    assert (tmp_path / "clean").exists()


def test_the_collector_is_off_for_the_imports_only() -> None:
    thresholds = gc.get_threshold()
    gc.disable()
    try:
        calm_garbage_collector()
        assert gc.isenabled()
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        gc.enable()
