"""One connection, over which requests are sent one by one in the version that is wanted.

For what kafka-python's own clients cannot say. It speaks to the broker whose address it was given, and
to no other of a cluster.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

from penstock.client.connection import REQUEST_SECONDS_MAX, library, parse_bootstrap, reach
from penstock.errors import UnavailableError, UsageError

_SIZE: Final = struct.Struct(">i")
_CLIENT_ID: Final = "penstock-client"


class Direct:
    """See the module. A connection that broke is replaced when something is asked again."""

    def __init__(self, bootstrap: str, operation: str) -> None:
        self._bootstrap = bootstrap
        self._operation = operation
        self._socket: socket.socket | None = None
        self._sent = 0

    def check_offers(self, api_key: int, version: int, missing: str) -> None:
        """Pass if the broker knows a version of a request.

        Raises:
            UsageError: it does not.
            UnavailableError: it could not be asked.
        """
        answer = self.ask(library("kafka.protocol.metadata").ApiVersionsRequest(), 0)
        highest = {one.api_key: one.max_version for one in answer.api_keys}
        if highest.get(api_key, -1) < version:
            raise UsageError(self._operation, missing, "use a broker that has them")

    def ask(self, request: Any, version: int) -> Any:
        """The answer to a request.

        Raises:
            UnavailableError: there was none; the broker may have done what was asked all the same.
        """
        try:
            return self._ask(request, version)
        except (OSError, EOFError) as error:
            self.close()
            cause = str(error) or type(error).__name__
            raise UnavailableError(
                self._operation, f"the connection broke: {cause}", "check that the broker runs"
            ) from error

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, request: Any, version: int) -> Any:
        connection = self._connected()
        self._sent += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._sent, client_id=_CLIENT_ID)
        connection.sendall(request.encode(header=True, framed=True))
        (size,) = _SIZE.unpack(_exactly(connection, _SIZE.size))
        responses = library("kafka.protocol.api_header").ResponseClassRegistry
        answer = responses.get_response_class(request.header).decode(
            _exactly(connection, size), header=True
        )
        if answer.header.correlation_id != self._sent:
            raise EOFError("an answer to another request")
        return answer

    def _connected(self) -> socket.socket:
        if self._socket is None:
            reach(self._bootstrap)
            address = parse_bootstrap(self._bootstrap)[0]
            where = (address.host, address.port)
            self._socket = socket.create_connection(where, REQUEST_SECONDS_MAX)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError("the broker closed it")
        data += part
    return bytes(data)
