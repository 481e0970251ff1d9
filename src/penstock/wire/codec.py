"""Every message but Produce and Fetch, by kafka-python's schema-driven codec.

The codec trusts its input more than a server may: whatever it raises on malformed bytes becomes one
error here.
"""

from __future__ import annotations

from typing import Any

from penstock.wire.primitives import MalformedRequestError

# kafka-python's messages are built from schemas at run time and have no static types.
Message = Any
MessageClass = Any


def decode(message_class: MessageClass, body: memoryview, version: int) -> Message:
    """A request from its body."""
    try:
        return message_class.decode(bytes(body), version=version)
    except Exception as error:
        raise MalformedRequestError(f"{message_class.__name__} v{version}: {error}") from error


def encode(message: Message, version: int) -> bytes:
    """A response's body."""
    data: bytes = message.encode(version=version)
    return data


def is_flexible(message_class: MessageClass, version: int) -> bool:
    """Whether a version uses compact lengths and tagged fields."""
    return bool(message_class.flexible_version_q(version))
