"""The broker at one address and no other of its cluster; a connection that broke is replaced."""

from __future__ import annotations

from typing import Any

from penstock.client.connection import parse_bootstrap, reach
from penstock.client.link import Link
from penstock.errors import UnavailableError, UsageError


class Direct:
    """See the module."""

    def __init__(self, bootstrap: str, operation: str) -> None:
        self._bootstrap = bootstrap
        self._operation = operation
        self._link: Link | None = None

    def check_offers(self, api_key: int, version: int, missing: str) -> None:
        """Pass if the broker knows a version of a request.

        Raises:
            UsageError: it does not.
            UnavailableError: it could not be asked.
        """
        if not self._connected().offers(api_key, version):
            raise UsageError(self._operation, missing, "use a broker that has them")

    def ask(self, request: Any, version: int) -> Any:
        """The answer to a request.

        Raises:
            UnavailableError: there was none; the broker may have done what was asked all the same.
        """
        try:
            return self._connected().ask(request, version)
        except UnavailableError:
            self.close()
            raise

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _connected(self) -> Link:
        if self._link is None:
            reach(self._bootstrap)  # says at once what is wrong with an address
            self._link = Link(parse_bootstrap(self._bootstrap)[0], self._operation)
        return self._link
