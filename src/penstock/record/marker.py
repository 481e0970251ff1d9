"""The control batch that ends a transaction in a partition: one record that says how it ended.

Key: int16 version 0, int16 type (0 abort, 1 commit). Value: int16 version 0, int32 coordinator epoch.
"""

from __future__ import annotations

from struct import Struct

from penstock.record.batch import CONTROL_FLAG, HEADER_BYTES, TRANSACTIONAL_FLAG, Buffer
from penstock.record.encode import NewRecord, encode

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1
# Length, attributes, time delta, offset delta and length of the key take a byte each.
_KEY_POSITION = HEADER_BYTES + 5


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
    if len(batch) < position + _KEY_POSITION + _KEY.size:
        return False
    _, kind = _KEY.unpack_from(batch, position + _KEY_POSITION)
    return bool(kind == _COMMIT)
