"""One connection to one broker, one request at a time.

kafka-python's own connection reads 4 kB at a time and belongs to its event loop; whoever fetches
hundreds of megabytes a second needs neither. Its message schemas serve here as they do in the broker.
"""

from __future__ import annotations

import socket
import ssl
from struct import Struct
from typing import Any, Final

from penstock.client.connection import CONNECT_SECONDS_MAX, REQUEST_SECONDS_MAX, library
from penstock.client.login import encrypt, log_in, tls_refused
from penstock.client.security import OPEN, Security
from penstock.config import Address
from penstock.errors import UnavailableError

_SIZE: Final = Struct(">i")
_ANSWER_BYTES_MAX: Final = 1 << 30


class Link:
    """See the module.

    Args:
        address: where the broker listens.
        operation: what it is needed for, for the errors.
        security: TLS and who asks.

    Raises:
        UnavailableError: nobody answers there.
        RefusedError: one side does not trust the other.
    """

    def __init__(self, address: Address, operation: str, security: Security = OPEN) -> None:
        self.address = address
        self._operation = operation
        self._sent = 0
        self._socket = self._connected(security)
        self._versions = self._ask_versions()
        if security.named:
            try:
                log_in(self.ask, address.host, security, operation)
            except BaseException:
                self.close()
                raise

    def _connected(self, security: Security) -> socket.socket:
        try:
            plain = socket.create_connection(
                (self.address.host, self.address.port), CONNECT_SECONDS_MAX
            )
        except OSError as error:
            raise self._lost(error) from error
        plain.settimeout(REQUEST_SECONDS_MAX)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not security.encrypted:
            return plain
        try:
            return encrypt(plain, self.address.host, security, self._operation)
        except OSError as error:
            raise self._lost(error) from error
        finally:
            plain.close()  # once it is encrypted this does nothing

    def offers(self, api_key: int, version: int) -> bool:
        """Whether the broker knows a version of a request."""
        low, high = self._versions.get(api_key, (0, -1))
        return low <= version <= high

    def ask(self, request: Any, newest: int) -> Any:
        """Send a request in the newest version that both sides know; the answer.

        Raises:
            UnavailableError: the connection broke, or the broker does not know the request.
        """
        low, high = self._versions.get(int(request.API_KEY), (0, -1))
        version = min(newest, high)
        if version < low:
            cause = f"{self.address} does not know {type(request).__name__}"
            raise UnavailableError(self._operation, cause, "use a broker of Kafka 2.1 or newer")
        return self._exchange(request, version)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        answer = self._exchange(library("kafka.protocol.metadata").ApiVersionsRequest(), 0)
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _exchange(self, request: Any, version: int) -> Any:
        registry = library("kafka.protocol.api_header").ResponseClassRegistry
        self._sent += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._sent, client_id="penstock")
        try:
            self._socket.sendall(request.encode(header=True, framed=True))
            (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
            if not 0 < size <= _ANSWER_BYTES_MAX:
                raise OSError(f"an answer of {size} bytes is none of Kafka's")
            answer = registry.get_response_class(request.header).decode(
                self._exactly(size), header=True
            )
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            self.close()
            raise self._lost(error) from error
        except ssl.SSLError as error:
            self.close()
            raise tls_refused(self.address.host, error, self._operation) from error
        except OSError as error:
            self.close()
            raise self._lost(error) from error
        except BaseException:
            self.close()  # or what comes late would be taken for the answer to the next request
            raise
        if answer.header.correlation_id != self._sent:
            self.close()
            raise self._lost(OSError("it answered another request"))
        return answer

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionError("it closed the connection")
            view = view[count:]
        return data

    def _lost(self, error: OSError) -> UnavailableError:
        cause = f"{self.address}: {(error.strerror or str(error) or 'no answer in time').lower()}"
        remedy = "check that the broker runs, and whether it wants another security.protocol"
        return UnavailableError(self._operation, cause, remedy)
