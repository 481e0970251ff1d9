"""The messages of share groups (KIP-932), which kafka-python does not have: from schemas of our own."""

from __future__ import annotations

from typing import Final

from penstock.wire.own_messages import message

ShareGroupHeartbeatRequest: Final = message("ShareGroupHeartbeatRequest")
ShareGroupHeartbeatResponse: Final = message("ShareGroupHeartbeatResponse")
ShareGroupDescribeRequest: Final = message("ShareGroupDescribeRequest")
ShareGroupDescribeResponse: Final = message("ShareGroupDescribeResponse")
ShareFetchRequest: Final = message("ShareFetchRequest")
ShareFetchResponse: Final = message("ShareFetchResponse")
ShareAcknowledgeRequest: Final = message("ShareAcknowledgeRequest")
ShareAcknowledgeResponse: Final = message("ShareAcknowledgeResponse")
DescribeShareGroupOffsetsRequest: Final = message("DescribeShareGroupOffsetsRequest")
DescribeShareGroupOffsetsResponse: Final = message("DescribeShareGroupOffsetsResponse")
AlterShareGroupOffsetsRequest: Final = message("AlterShareGroupOffsetsRequest")
AlterShareGroupOffsetsResponse: Final = message("AlterShareGroupOffsetsResponse")
DeleteShareGroupOffsetsRequest: Final = message("DeleteShareGroupOffsetsRequest")
DeleteShareGroupOffsetsResponse: Final = message("DeleteShareGroupOffsetsResponse")
