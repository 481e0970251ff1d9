"""Real connections over loopback, to a handler whose answers the test gives."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.kafka.call import Answer, Peer
from penstock.server.connection import Connection, Connections
from penstock.server.turn import Turn
from penstock.testing.clock import ManualClock

PATIENCE = 10.0
Reply = Callable[[bytes], bytes | None]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@dataclass
class Handler:
    """Keeps every frame; answers those for which it has been told what to say."""

    reply: Reply = lambda _: None
    frames: list[bytes] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def handle(self, frame: memoryview, peer: Peer, answer: Answer) -> None:
        self.frames.append(bytes(frame[:20]))
        self.answers.append(answer)
        reply = self.reply(bytes(frame))
        if reply is not None:
            answer.fill([reply])


class Client:
    """One client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *bodies: bytes) -> None:
        self.write(b"".join(map(framed, bodies)))

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    @property
    def heard_nothing(self) -> bool:
        unread: bytearray = cast(Any, self.reader)._buffer
        return not unread

    def stop_listening(self) -> None:
        cast(asyncio.Transport, self.writer.transport).pause_reading()

    def listen_again(self) -> None:
        cast(asyncio.Transport, self.writer.transport).resume_reading()

    def go_away(self) -> None:
        self.writer.transport.abort()

    async def receive(self, size: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(size), PATIENCE)

    async def is_closed(self) -> bool:
        """Whether the server ends the connection, and sends nothing before it does."""
        try:
            return await asyncio.wait_for(self.reader.read(1), PATIENCE) == b""
        except ConnectionError:
            return True


@dataclass
class Served:
    """A server without a broker."""

    handler: Handler
    clock: ManualClock
    connections: Connections
    port: int
    clients: list[Client] = field(default_factory=list)

    async def client(self) -> Client:
        # Little is read ahead, so that a client that does not read is noticed.
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1000)
        self.clients.append(Client(reader, writer))
        return self.clients[-1]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when something has come about."""
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 -- of things that tell nobody
                await asyncio.sleep(0.001)

    async def settle(self) -> None:
        """Let everything happen that can."""
        await asyncio.sleep(0.05)

    async def standstill(self) -> int:
        """How many frames have been handled when no more are."""
        seen = -1
        async with asyncio.timeout(PATIENCE):
            while seen != len(self.handler.frames):
                seen = len(self.handler.frames)
                await asyncio.sleep(0.1)
        return seen

    async def handled(self, count: int) -> None:
        await self.until(lambda: len(self.handler.frames) >= count)


@asynccontextmanager
async def serving(handler: Handler | None = None, limit: int = 100) -> AsyncIterator[Served]:
    clock = ManualClock()
    used = handler or Handler()
    loop = asyncio.get_running_loop()
    connections = Connections(used, clock, Turn(loop.call_soon), limit)
    server = await loop.create_server(lambda: Connection(connections), "127.0.0.1", 0)
    served = Served(used, clock, connections, server.sockets[0].getsockname()[1])
    try:
        yield served
    finally:
        for client in served.clients:
            client.go_away()
        server.close()
        await served.until(lambda: not connections.open)
        await server.wait_closed()


Test = Callable[[], Awaitable[None]]
Run = Callable[[Test], None]
