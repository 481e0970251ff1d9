"""A broker on a thread of the test's own process: real sockets, real files, a free port."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.config import Address, ServeSettings
from penstock.server.app import Server, new_event_loop


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """How to reach a broker that a test started."""

    bootstrap: str
    """For `bootstrap.servers`."""
    data: Path
    """Its data folder."""
    http: str | None = None
    """The URL of its HTTP port, for `schema.registry.url`; None unless it was asked for."""


@contextmanager
def broker(
    data: str | Path | None = None, *, http: bool = False, views: str | None = None
) -> Iterator[RunningBroker]:
    """Run a broker for the length of a with block.

    Args:
        data: where it keeps its data; by default a folder that is removed afterwards. Give the same
            folder to a second broker to see what a restart finds.
        http: also serve HTTP, with the schema registry.
        views: the store of materialized views to be asked over HTTP, which it needs.
    """
    if data is not None:
        with _running(Path(data), http, views) as running:
            yield running
        return
    with (
        tempfile.TemporaryDirectory(prefix="penstock-") as folder,
        _running(Path(folder), http, views) as running,
    ):
        yield running


@contextmanager
def _running(data: Path, http: bool, views: str | None) -> Iterator[RunningBroker]:
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="penstock-broker", daemon=True)
    thread.start()
    free = Address("127.0.0.1", 0)
    settings = ServeSettings(data=data, kafka=free, http=free if http else None, views=views)
    server = Server(settings)
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        try:
            yield RunningBroker(
                bootstrap=str(server.listening[0]),
                data=data,
                http=f"http://{server.http.listening[0]}" if http else None,
            )
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
