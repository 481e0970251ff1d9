"""The control batch that ends a transaction in a partition: one record that says how it ended.

Key: int16 version 0, int16 type (0 abort, 1 commit). Value: int16 version 0, int32 coordinator epoch.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from penstock.record.batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    TRANSACTIONAL_FLAG,
    Buffer,
    InvalidBatchError,
)
from penstock.record.decode import read_varint
from penstock.record.encode import NewRecord, encode

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1
_ATTRIBUTES_BYTES = 1
_RECORD_BYTES_MAX = 100  # four varints of ten bytes at the most, key and value


def encode_marker(
    producer_id: int, producer_epoch: int, timestamp: int, *, commit: bool
) -> bytearray:
    """A marker, ready to be appended."""
    key = _KEY.pack(0, _COMMIT if commit else _ABORT)
    return encode(
        [NewRecord(_VALUE.pack(0, 0), key, timestamp)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=CONTROL_FLAG | TRANSACTIONAL_FLAG,
    )


def commits(batch: Buffer, position: int = 0) -> bool:
    """Whether the control batch at position is the marker of a commit; not if it is no marker."""
    # Time and offset delta are of any length: compaction lets times count from another base.
    record = bytes(batch[position + HEADER_BYTES : position + HEADER_BYTES + _RECORD_BYTES_MAX])
    try:
        _, at = read_varint(record, 0)
        _, at = read_varint(record, at + _ATTRIBUTES_BYTES)
        _, at = read_varint(record, at)
        _, at = read_varint(record, at)
        _, kind = _KEY.unpack_from(record, at)
    except (IndexError, struct_error, InvalidBatchError):
        return False
    return bool(kind == _COMMIT)
