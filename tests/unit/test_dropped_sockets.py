"""Which dropped sockets fail a test: everybody's but kafka-python's."""

from __future__ import annotations

import gc
import socket
import warnings

import pytest
from kafka.net.inet import KafkaNetSocket

KIND = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)


def test_one_of_kafka_python_closes_by_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            dropped = KafkaNetSocket().socket(*KIND)
            dropped.connect(server.getsockname())
            accepted, _ = server.accept()
            del dropped
            gc.collect()
        with accepted:
            assert accepted.recv(1) == b""
    assert not seen


def test_any_other_is_warned_of() -> None:
    with pytest.warns(ResourceWarning, match="unclosed"):
        socket.socket(*KIND)
