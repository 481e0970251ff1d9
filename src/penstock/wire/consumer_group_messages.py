"""The messages of KIP-848, which kafka-python does not have: built by it from schemas of our own."""

from __future__ import annotations

from typing import Final

from penstock.wire.own_messages import message

ConsumerGroupHeartbeatRequest: Final = message("ConsumerGroupHeartbeatRequest")
ConsumerGroupHeartbeatResponse: Final = message("ConsumerGroupHeartbeatResponse")
ConsumerGroupDescribeRequest: Final = message("ConsumerGroupDescribeRequest")
ConsumerGroupDescribeResponse: Final = message("ConsumerGroupDescribeResponse")
