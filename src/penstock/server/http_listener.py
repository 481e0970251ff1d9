"""The HTTP port: opened with the others, and loaded only where it is wanted.

The app behind it is imported when it starts: a broker without HTTP does not pay for it.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from penstock.broker.broker import Broker
from penstock.clock import Clock
from penstock.config import Address, ServeSettings
from penstock.limits import VIEW_READ_THREADS
from penstock.server.listening import cannot_listen

if TYPE_CHECKING:
    from penstock.http.routes import Route
    from penstock.server.http_connection import HttpConnections
    from penstock.views.store import ViewStore


class HttpListener:
    """Listens, or does not, as the settings say."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._server: asyncio.Server | None = None
        self._connections: HttpConnections | None = None
        self._taken = False
        self._views: ViewStore | None = None
        self._view_threads: ThreadPoolExecutor | None = None
        self.listening: list[Address] = []

    async def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the address.

        Raises:
            PenstockError: it cannot be had, and was asked for.
        """
        address = self._settings.http
        if address is None:
            return
        from penstock.server.http_connection import HttpConnection  # noqa: PLC0415 -- see above

        if self._settings.views is not None:
            from penstock.views.store import open_store  # noqa: PLC0415 -- see above

            self._views = open_store(self._settings.views)

        def connection() -> HttpConnection:
            assert self._connections is not None, "nobody is served before start_serving"
            return HttpConnection(self._connections)

        try:
            self._server = await loop.create_server(
                connection, address.host, address.port, start_serving=False
            )
        except OSError as error:
            if self._settings.http_if_free and error.errno == errno.EADDRINUSE:
                self._taken = True
                return
            raise cannot_listen(address, "--http", error) from error
        names = [socket.getsockname() for socket in self._server.sockets]
        self.listening = [Address(name[0], name[1]) for name in names]

    async def start_serving(self, broker: Broker, clock: Clock) -> None:
        """Answer, now that there is a broker."""
        if self._server is None:
            return
        from penstock.http.app import App  # noqa: PLC0415 -- see above
        from penstock.http.registry import RegistryRoutes  # noqa: PLC0415
        from penstock.registry.registry import Registry  # noqa: PLC0415
        from penstock.registry.topic import SchemaTopic  # noqa: PLC0415
        from penstock.server.http_connection import HttpConnections  # noqa: PLC0415

        async def durable() -> None:
            done = asyncio.get_running_loop().create_future()
            broker.commit.after(lambda: done.set_result(None))
            await done

        registry = RegistryRoutes(Registry(SchemaTopic(broker, clock)), durable)
        routes = [*registry.routes(), *self._view_routes()]
        self._connections = HttpConnections(App(broker.commit, routes))
        await self._server.start_serving()

    def _view_routes(self) -> list[Route]:
        if self._views is None:
            return []
        from penstock.http.views import ViewRoutes  # noqa: PLC0415 -- see above

        # They wait for a database; few of them, so that questions cannot take the machine.
        threads = ThreadPoolExecutor(VIEW_READ_THREADS, thread_name_prefix="penstock-views")
        self._view_threads = threads
        loop = asyncio.get_running_loop()

        def run(job: Callable[[], Any]) -> Awaitable[Any]:
            return loop.run_in_executor(threads, job)

        return ViewRoutes(self._views, run).routes()

    def report(self) -> list[str]:
        """What to print about it."""
        if self._taken:
            address = self._settings.http
            return [f"http off: another program listens on {address}; choose one with --http"]
        return [f"http listening on {address}" for address in self.listening]

    def close(self) -> None:
        """Accept nobody any more."""
        if self._server is not None:
            self._server.close()

    async def stop(self, seconds: float) -> None:
        """Answer what was asked, and close every connection."""
        if self._connections is not None:
            await self._connections.stop(seconds)
        if self._view_threads is not None:
            self._view_threads.shutdown(wait=False, cancel_futures=True)
