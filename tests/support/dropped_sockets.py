"""Sockets of kafka-python that close when they are dropped.

It drops those of connections that were refused, and of clients that are closed while they connect or
while something is left to send. Python warns of that when it collects them, and which test runs then is
chance. Whoever else drops a socket still fails one.
"""

from __future__ import annotations

import socket

from kafka.net.inet import KafkaNetSocket


class ClosedWhenDropped(socket.socket):
    """Has a finalizer of its own, in the place of the one that warns."""

    def __del__(self) -> None:
        self.close()


def close_dropped_sockets() -> None:
    """Give kafka-python such sockets from now on."""

    def new_socket(_: KafkaNetSocket, *kind: int) -> socket.socket:
        return ClosedWhenDropped(*kind)

    KafkaNetSocket.socket = new_socket
