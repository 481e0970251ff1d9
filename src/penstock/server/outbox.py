"""What a connection has to send, in order: bytes from memory, and ranges of files by sendfile.

Answers go straight to the socket; what it does not take waits here until it does. The loop's own
transport only reads: it could not send a file, and a socket has one writer.

This module may run compiled (setup.py), with the C types that stand in outbox.pxd.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from penstock.files import Buffer, FileSlice

Part = Buffer | FileSlice
# One system call takes so many pieces (Linux's IOV_MAX is 1,024).
_PIECES_MAX = 512


class Outbox:
    """Sends to one socket.

    Args:
        loop: tells when the socket takes more.
        connected: the connection's socket; a duplicate of it is used, because the loop does not let
            a transport's descriptor be watched by anybody else.
        progressed: called when something that had to wait was sent.
        broken: called when the peer has gone.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: int,
        progressed: Callable[[], None],
        broken: Callable[[], None],
    ) -> None:
        self._loop = loop
        self.socket = socket.socket(fileno=socket.dup(connected))
        self.socket.setblocking(False)
        self._send = self.socket.send
        self._parts: deque[Part] = deque()
        self._progressed = progressed
        self._broken = broken
        self._watching = False
        self.waiting_bytes = 0

    def send(self, parts: list[Part]) -> None:
        """Send parts after everything that waits."""
        if len(parts) == 1 and not self._watching and self._sent_whole(parts[0]):
            return
        self._parts.extend(parts)
        if self._watching:
            self.waiting_bytes += sum(map(len, parts))
        else:
            self._pump()

    def _sent_whole(self, part: Part) -> bool:
        """Try to send one buffer at once, as is nearly always possible."""
        if isinstance(part, FileSlice):
            return False
        try:
            sent = self._send(part)
        except OSError:
            return False  # what is wrong shows again when it is tried in order
        if sent < len(part):
            self._parts.append(memoryview(part)[sent:])
            self._pump()
        return True

    def _pump(self) -> None:
        """Send until all is sent or the socket takes no more."""
        parts = self._parts
        try:
            while parts:
                first = parts[0]
                if isinstance(first, FileSlice):
                    if first.send(self.socket.fileno()) == 0 and first.size:
                        raise ConnectionError("a segment is shorter than it was")
                    if first.size == 0:
                        parts.popleft()
                else:
                    self._send_buffers()
        except (BlockingIOError, InterruptedError):
            self._watch()
        except OSError:
            self._broken()
        else:
            self._unwatch()
        self.waiting_bytes = sum(map(len, parts))

    def _send_buffers(self) -> None:
        """Send the buffers before the next file slice by one call."""
        parts = self._parts
        buffers: list[Buffer] = []
        for part in parts:
            if isinstance(part, FileSlice) or len(buffers) == _PIECES_MAX:
                break
            buffers.append(part)
        # A file follows: what it begins with should share the packet.
        more = socket.MSG_MORE if len(buffers) < len(parts) else 0
        sent = self.socket.sendmsg(buffers, (), more)
        while parts and sent >= len(parts[0]):
            sent -= len(parts.popleft())
            if not sent and not (parts and len(parts[0]) == 0):
                break
        if sent:
            rest = parts[0]
            assert not isinstance(rest, FileSlice)
            parts[0] = memoryview(rest)[sent:]

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            self._loop.add_writer(self.socket.fileno(), self._writable)

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_writer(self.socket.fileno())

    def _writable(self) -> None:
        self._pump()
        self._progressed()

    def close(self) -> None:
        """Give the descriptor back; what waits is not sent."""
        self._unwatch()
        self._parts.clear()
        self.waiting_bytes = 0
        self.socket.close()
