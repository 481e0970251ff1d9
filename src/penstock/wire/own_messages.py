"""Messages that kafka-python does not have, built by it from the schemas that stand in schemas/."""

from __future__ import annotations

from types import new_class

from penstock.wire import schemas
from penstock.wire.codec import MessageClass
from penstock.wire.quietly import loading_schemas

with loading_schemas():
    from kafka.protocol.api_message import ApiMessage


def message(name: str) -> MessageClass:
    """The class of a message, from the schema of its name."""
    with loading_schemas():
        return new_class(name, (ApiMessage,), {"load_json": schemas})
