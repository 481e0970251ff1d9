"""One file of keyed state: a header in JSON, and rows as an Arrow file, each with its checksum.

Rows are neither compressed nor split, so that a file on a local disk is used where it lies: a look
for a few keys reads the pages that hold them. See docs/formats/state.md.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

import pyarrow as pa

from penstock.crc32c import crc32c
from penstock.errors import FormatError, StorageError

_MAGIC: Final = b"PENSTAT1"
_FIXED: Final = struct.Struct("<8sII")  # magic, length of the header, its checksum
_ALIGNMENT: Final = 64  # what Arrow wants of its buffers
BODY_CHECKSUM: Final = "body_checksum"
BODY_BYTES: Final = "body_bytes"


class DamagedStateError(StorageError):
    """A file of state is missing, cut short or changed."""

    def __init__(self, file: str, cause: str) -> None:
        remedy = "restore that file from a copy, or start with a new checkpoint from a savepoint"
        super().__init__(f"cannot read the state in {file}", cause, remedy)


def encode(header: dict[str, Any], rows: pa.Table) -> bytes:
    """The bytes of a file; the same for the same rows and header."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    body = sink.getvalue()
    header = {**header, BODY_CHECKSUM: crc32c(body), BODY_BYTES: body.size}
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-(_FIXED.size + len(text)) % _ALIGNMENT)
    return b"".join((_FIXED.pack(_MAGIC, len(text), crc32c(text)), text, body))


def header_of(data: pa.Buffer, file: str) -> dict[str, Any]:
    """The header, checked.

    Raises:
        DamagedStateError: these are not the bytes that were written.
        FormatError: a newer Penstock wrote them.
    """
    if data.size < _FIXED.size:
        raise DamagedStateError(file, "it is cut short")
    magic, length, checksum = _FIXED.unpack(data[: _FIXED.size].to_pybytes())
    text = data[_FIXED.size : _FIXED.size + length].to_pybytes()
    if magic[:7] == _MAGIC[:7] and magic != _MAGIC:
        cause = f"its format {magic[7:].decode('latin-1')} is not known"
        raise FormatError(f"cannot read the state in {file}", cause, "use a newer Penstock")
    if magic != _MAGIC or crc32c(text) != checksum:
        raise DamagedStateError(file, "its header is not what was written")
    header: dict[str, Any] = json.loads(text)
    return header


def rows_of(data: pa.Buffer, file: str) -> pa.Table:
    """The rows, checked; they lie in the buffer itself."""
    header = header_of(data, file)
    begin = _FIXED.size + struct.unpack_from("<I", data[8:12].to_pybytes())[0]
    body = data[begin:]
    if body.size != header[BODY_BYTES] or crc32c(body) != header[BODY_CHECKSUM]:
        raise DamagedStateError(file, "its rows are not what was written")
    return pa.ipc.open_file(pa.BufferReader(body)).read_all()
