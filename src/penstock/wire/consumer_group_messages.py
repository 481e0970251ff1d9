"""The messages of KIP-848, which kafka-python does not have: built by it from schemas of our own."""

from __future__ import annotations

from types import new_class
from typing import Final

from kafka.protocol.api_message import ApiMessage

from penstock.wire import schemas
from penstock.wire.codec import MessageClass


def _message(name: str) -> MessageClass:
    return new_class(name, (ApiMessage,), {"load_json": schemas})


ConsumerGroupHeartbeatRequest: Final = _message("ConsumerGroupHeartbeatRequest")
ConsumerGroupHeartbeatResponse: Final = _message("ConsumerGroupHeartbeatResponse")
ConsumerGroupDescribeRequest: Final = _message("ConsumerGroupDescribeRequest")
ConsumerGroupDescribeResponse: Final = _message("ConsumerGroupDescribeResponse")
