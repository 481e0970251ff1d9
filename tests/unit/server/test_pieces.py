"""Of a large frame the loop is woken for large pieces only."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from pathlib import Path

from tests.unit.server.served import Client, Handler, Run, Served, framed, serving

from penstock.limits import MIB, RECEIVE_PIECE_BYTES


async def accepted(served: Served) -> Client:
    """A client that the server knows of."""
    client = await served.client()
    await served.until(lambda: bool(served.connections.open))
    return client


def socket_towards(client: Client) -> socket.socket:
    """The server's end of a connection: it is one of this process."""
    name = client.writer.get_extra_info("sockname")
    for descriptor in Path("/proc/self/fd").iterdir():
        if not descriptor.readlink().name.startswith("socket:"):
            continue
        found = socket.socket(fileno=os.dup(int(descriptor.name)))
        if found.family == socket.AF_INET and is_peer(found, name):
            return found
        found.close()
    raise AssertionError("the client is not connected")


def is_peer(connected: socket.socket, name: object) -> bool:
    try:
        return bool(connected.getpeername() == name)
    except OSError:
        return False


def woken_for(client: Client) -> int:
    """How much has to come until the server is told of it."""
    with socket_towards(client) as connected:
        return connected.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def test_it_is_a_large_piece_as_long_as_so_much_is_missing(run: Run) -> None:
    async def test() -> None:
        async with serving(Handler(lambda _: b"!")) as served:
            client = await accepted(served)
            frame = framed(bytes(3 * RECEIVE_PIECE_BYTES))
            client.write(frame[:1000])
            await served.until(lambda: woken_for(client) == RECEIVE_PIECE_BYTES)
            client.write(frame[1000:-1])
            await served.until(lambda: woken_for(client) == 1)
            client.write(frame[-1:])
            assert await client.receive(1) == b"!"
            assert woken_for(client) == 1

    run(test)


def test_frames_of_all_sizes_come_in_pieces_of_all_sizes(run: Run) -> None:
    """Who waits for more than there will be stands still."""
    chance = random.Random(7)
    sizes = [int(2 ** chance.uniform(0, 20)) for _ in range(60)]
    sizes += [RECEIVE_PIECE_BYTES + more for more in range(-5, 6)]

    async def test() -> None:
        async with serving(Handler(lambda frame: struct.pack(">i", len(frame)))) as served:
            client = await served.client()
            for size in sizes:
                frame = framed(bytes(size))
                while frame:
                    piece = int(2 ** chance.uniform(4, 21))
                    client.write(frame[:piece])
                    frame = frame[piece:]
                    await asyncio.sleep(chance.choice((0, 0, 0.002)))
                assert struct.unpack(">i", await client.receive(4)) == (size,)

    run(test)


def test_a_client_that_goes_in_the_middle_is_noticed(run: Run) -> None:
    async def test() -> None:
        async with serving() as served:
            client = await accepted(served)
            client.write(framed(bytes(MIB))[:1000])
            await served.until(lambda: woken_for(client) == RECEIVE_PIECE_BYTES)
            client.go_away()
            await served.until(lambda: not served.connections.open)

    run(test)
