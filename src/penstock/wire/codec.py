"""Every message but Produce and Fetch, by kafka-python's schema-driven codec.

The codec trusts its input more than a server may: whatever it raises on malformed bytes becomes one
error here, and what it lets through although the schema forbids it (null) is looked for.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from penstock.limits import REQUEST_VALUES_MAX
from penstock.wire.errors import MalformedRequestError

# kafka-python's messages are built from schemas at run time and have no static types.
Message = Any
MessageClass = Any


# Decoded as None where they are all zeros or unset, which is no null on the wire.
_NEVER_NULL = ("uuid", "bitfield")


class _Counted(BytesIO):
    """Counts what is read of it, which is how many values there are, and ends when they are too many."""

    left = REQUEST_VALUES_MAX

    def read(self, size: int | None = -1) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"it has more than {REQUEST_VALUES_MAX} values")
        return super().read(size)


def decode(message_class: MessageClass, body: memoryview, version: int) -> Message:
    """A request from its body."""
    return _decode(message_class, BytesIO(body), version)


def decode_bounded(message_class: MessageClass, body: memoryview, version: int) -> Message:
    """The same for a large one, unless it is made of too many values."""
    return _decode(message_class, _Counted(body), version)


def _decode(message_class: MessageClass, body: BytesIO, version: int) -> Message:
    flexible = is_flexible(message_class, version)
    schema = message_class._struct
    try:
        # Not message_class.decode, which is compiled for speed: it believes every length, and a varint
        # of 256 KiB keeps it busy for four seconds, one of a megabyte for a minute.
        message = schema.decode(
            body,
            version=version,
            compact=flexible,
            tagged=flexible,
            data_class=message_class,
        )
        _check_nulls(schema, message, version)
    except Exception as error:
        raise MalformedRequestError(f"{message_class.__name__} v{version}: {error}") from error
    return message


def _check_nulls(schema: Any, message: Message, version: int) -> None:
    for field in schema.untagged_fields(version):
        value = getattr(message, field.name)
        if value is None:
            if not (field.nullable_for_version_q(version) or field.type_str in _NEVER_NULL):
                raise ValueError(f"{field.name} is null")
        elif field.is_struct_array():
            for item in value:
                _check_nulls(field.array_of, item, version)
        elif field.is_array():
            if None in value and field.array_of.type_str not in _NEVER_NULL:
                raise ValueError(f"null in {field.name}")
        elif field.is_struct():
            _check_nulls(field, value, version)


def encode(message: Message, version: int) -> bytes:
    """A response's body."""
    data: bytes = message.encode(version=version)
    return data


def is_flexible(message_class: MessageClass, version: int) -> bool:
    """Whether a version uses compact lengths and tagged fields."""
    return bool(message_class.flexible_version_q(version))
