"""What is sent arrives in order, from memory and from files, however little the socket takes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.unit.server.served import Run

from penstock.files import Files, FileSlice, OsFiles
from penstock.memory_files import MemoryFiles
from penstock.server.outbox import Outbox


@dataclass
class Peers:
    """Both ends of a connection, and what the outbox said."""

    outbox: Outbox
    far: socket.socket
    said: list[str] = field(default_factory=list)

    async def received(self, size: int) -> bytes:
        """So many bytes, as the other end reads them."""
        loop = asyncio.get_running_loop()
        data = b""
        while len(data) < size:
            piece = await asyncio.wait_for(loop.sock_recv(self.far, 1 << 16), 10)
            assert piece, f"closed after {len(data)} of {size}"
            data += piece
        return data


@contextmanager
def peers(send_buffer: int | None = None) -> Iterator[Peers]:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.setblocking(False)
        if send_buffer is not None:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        said: list[str] = []
        outbox = Outbox(
            asyncio.get_running_loop(),
            near.fileno(),
            lambda: said.append("progressed"),
            lambda: said.append("broken"),
        )
        try:
            yield Peers(outbox, far, said)
        finally:
            outbox.close()


@pytest.fixture(params=["os", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return OsFiles() if request.param == "os" else MemoryFiles()


def slice_of(files: Files, folder: Path, data: bytes, position: int, size: int) -> FileSlice:
    files.make_folder(folder)
    file = files.open(folder / "segment", create=True)
    file.pwrite([data], 0)
    return FileSlice(file, position, size)


def test_what_the_socket_takes_is_sent_at_once(run: Run) -> None:
    async def test() -> None:
        with peers() as both:
            both.outbox.send([b"one ", bytearray(b"two "), memoryview(b"three")])
            assert both.outbox.waiting_bytes == 0
            assert both.far.recv(100) == b"one two three"
            assert both.said == []

    run(test)


def test_files_and_buffers_keep_their_order(run: Run, files: Files, tmp_path: Path) -> None:
    async def test() -> None:
        with peers() as both:
            content = bytes(range(256)) * 40
            first = slice_of(files, tmp_path / "a", content, 0, 1000)
            second = slice_of(files, tmp_path / "b", content, 5000, 3000)
            both.outbox.send([b"head", first, b"", b"middle", second, b"end"])
            expected = b"head" + content[:1000] + b"middle" + content[5000:8000] + b"end"
            assert await both.received(len(expected)) == expected

    run(test)


def test_what_does_not_fit_waits_and_says_when_it_went(
    run: Run, files: Files, tmp_path: Path
) -> None:
    async def test() -> None:
        with peers(send_buffer=5000) as both:
            content = bytes(range(256)) * 4000
            part = slice_of(files, tmp_path, content, 0, len(content))
            both.outbox.send([b"x" * 300_000, part, b"y" * 300_000])
            assert 0 < both.outbox.waiting_bytes < 600_000 + len(content)
            both.outbox.send([b"last"])
            waiting = both.outbox.waiting_bytes
            await asyncio.sleep(0.02)
            assert (both.outbox.waiting_bytes, both.said) == (waiting, []), "nobody reads"
            expected = b"x" * 300_000 + content + b"y" * 300_000 + b"last"
            assert await both.received(len(expected)) == expected
            assert both.outbox.waiting_bytes == 0
            assert set(both.said) == {"progressed"}

    run(test)


def test_what_is_added_while_some_waits_is_counted(run: Run) -> None:
    async def test() -> None:
        with peers(send_buffer=5000) as both:
            both.outbox.send([b"x" * 1_000_000])
            before = both.outbox.waiting_bytes
            both.outbox.send([b"y" * 1_000_000])
            assert both.outbox.waiting_bytes == before + 1_000_000

    run(test)


def test_thousands_of_pieces(run: Run) -> None:
    async def test() -> None:
        with peers() as both:
            pieces = [b"%04d" % number for number in range(3000)]
            both.outbox.send([*pieces, b"", *pieces])
            assert await both.received(24_000) == b"".join(pieces) * 2

    run(test)


def test_nothing_is_sent_as_nothing(run: Run) -> None:
    async def test() -> None:
        with peers() as both:
            both.outbox.send([])
            both.outbox.send([b"", b""])
            both.outbox.send([b"", b"x", b""])
            assert both.far.recv(10) == b"x"
            assert both.outbox.waiting_bytes == 0

    run(test)


def test_a_peer_that_went_away_breaks_it(run: Run) -> None:
    async def test() -> None:
        with peers() as both:
            both.far.close()
            both.outbox.send([b"anybody?"])
            assert both.said == ["broken"]

    run(test)


def test_a_peer_that_goes_away_while_some_waits_breaks_it(run: Run) -> None:
    async def test() -> None:
        with peers(send_buffer=5000) as both:
            both.outbox.send([b"x" * 1_000_000])
            both.far.close()
            await asyncio.sleep(0.02)
            assert "broken" in both.said

    run(test)


def test_a_file_that_became_shorter_breaks_it(run: Run, files: Files, tmp_path: Path) -> None:
    """Whatever was promised by the length in front of it cannot be sent any more."""

    async def test() -> None:
        with peers() as both:
            part = slice_of(files, tmp_path, b"short", 0, 100)
            both.outbox.send([b"head", part])
            assert both.said == ["broken"]

    run(test)


def test_after_closing_nothing_is_sent_and_nobody_called(run: Run) -> None:
    async def test() -> None:
        with peers(send_buffer=5000) as both:
            both.outbox.send([b"x" * 1_000_000])
            both.outbox.close()
            assert both.outbox.waiting_bytes == 0
            while both.far.recv(1 << 20) == b"":
                pass
            await asyncio.sleep(0.02)
            assert both.said == []

    run(test)
