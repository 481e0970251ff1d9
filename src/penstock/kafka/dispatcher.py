"""Takes a frame to the handler of its request.

A request frame is: int16 key, int16 version, int32 correlation id, client id as a nullable string with
an int16 length in every version, then tagged fields if the version is flexible, then the body.

This module may run compiled (setup.py), with the C types that stand in dispatcher.pxd.
"""

from __future__ import annotations

from struct import Struct

import cython

from penstock.kafka import api_versions
from penstock.kafka.apis import APIS
from penstock.kafka.call import Answer, Call, Context, Peer
from penstock.limits import REQUEST_BYTES_MAX
from penstock.wire.errors import MalformedRequestError
from penstock.wire.requests import skip_header_tags

if cython.compiled:
    from cython.cimports.penstock.bigendian import load_int16, load_int32
    from cython.cimports.penstock.buffers import bytes_of

_START = Struct(">hhih")
_START_BYTES = _START.size
_PRODUCE = 0
_API_VERSIONS = 18


class Dispatcher:
    """Handles the frames of all connections; the state of each is in its answers."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def handle(self, frame: memoryview, peer: Peer, answer: Answer) -> None:
        """Answer a request, now or later. The frame may be reused once this returns, unless it is held.

        Raises:
            MalformedRequestError: the peer does not speak the protocol; close the connection.
        """
        size = len(frame)
        if size < _START_BYTES:
            raise MalformedRequestError(f"{size} bytes are less than a header")
        if cython.compiled:
            start = cython.declare(cython.p_const_uchar, bytes_of(frame, cython.address(size)))
            key, version = load_int16(start), load_int16(start + 2)
            correlation_id, client_id_bytes = load_int32(start + 4), load_int16(start + 8)
        else:
            key, version, correlation_id, client_id_bytes = _START.unpack_from(frame, 0)
        position = _START_BYTES + max(client_id_bytes, 0)
        if client_id_bytes < -1 or position > size:
            raise MalformedRequestError("the client id does not fit")
        api = APIS.get(key)
        if api is None:
            raise MalformedRequestError(f"request key {key} is not offered")
        if key != _PRODUCE and size > REQUEST_BYTES_MAX:
            raise MalformedRequestError(f"{size} bytes are too many for request key {key}")
        if api.lowest <= version <= api.highest:
            if version >= api.flexible_from:
                position = _skip_tags(frame, position)
            call = Call(self._context, peer, answer, version, correlation_id, frame, position)
            api.handle(call)
            if not call.is_large:
                call.forget_frame()
        elif key == _API_VERSIONS:
            # KIP-511: the client learns what it may use and asks again.
            call = Call(self._context, peer, answer, version, correlation_id, frame, position)
            api_versions.unsupported_version(call)
        else:
            raise MalformedRequestError(f"request key {key} has no version {version}")


def _skip_tags(frame: memoryview, position: int) -> int:
    """The position after the header's tagged fields, of which there are hardly ever any."""
    if position < len(frame) and frame[position] == 0:
        return position + 1
    return skip_header_tags(frame, position)
