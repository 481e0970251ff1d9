"""What is known of a segment up to some position, so that recovery need not read it again.

    <base offset>.checkpoint: magic "PCP1", uint32 CRC-32C of the rest, then
        int64 next offset, int64 position, int64 max timestamp, int64 offset of max timestamp,
        int64 first timestamp, int64 batches, uint32 length and uint32 CRC-32C of the .index,
        uint32 length and uint32 CRC-32C of the .timeindex, uint32 length of the observer's state, state

It is written only after everything below its position was synced. A missing or damaged checkpoint
costs a full read of its segment and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct, error
from typing import NamedTuple

from penstock.crc32c import crc32c
from penstock.files import Files, read_whole

_MAGIC = b"PCP1"
_CHECKSUM = Struct(">I")
_FIELDS = Struct(">qqqqqqIIIII")
_START = len(_MAGIC) + _CHECKSUM.size


class Checkpoint(NamedTuple):
    """A segment's state at a position where a batch ends."""

    next_offset: int
    position: int
    max_timestamp: int
    max_timestamp_offset: int
    first_timestamp: int
    batches: int
    index_bytes: int
    index_checksum: int
    time_index_bytes: int
    time_index_checksum: int
    state: bytes


def checkpoint_path(folder: Path, base_offset: int) -> Path:
    """Where the checkpoint of a segment lies."""
    return folder / f"{base_offset:020d}.checkpoint"


def encode(checkpoint: Checkpoint) -> bytes:
    """The file's bytes."""
    body = _FIELDS.pack(*checkpoint[:-1], len(checkpoint.state)) + checkpoint.state
    return _MAGIC + _CHECKSUM.pack(crc32c(body)) + body


def decode(data: bytes) -> Checkpoint | None:
    """The checkpoint, or None if the bytes are not a whole one."""
    try:
        (checksum,) = _CHECKSUM.unpack_from(data, len(_MAGIC))
        *fields, state_bytes = _FIELDS.unpack_from(data, _START)
    except error:
        return None
    state = data[_START + _FIELDS.size :]
    if not data.startswith(_MAGIC) or crc32c(data[_START:]) != checksum:
        return None
    return Checkpoint._make((*fields, state)) if len(state) == state_bytes else None


def load(files: Files, folder: Path, base_offset: int) -> Checkpoint | None:
    """The checkpoint of a segment, or None where there is no usable one."""
    try:
        return decode(read_whole(files, checkpoint_path(folder, base_offset)))
    except FileNotFoundError:
        return None
