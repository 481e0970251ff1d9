"""The table of routes, and finding the one a request means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from penstock.http.messages import HttpError, Request, Response

Handler = Callable[..., Awaitable[Response]]
"""Takes the request, then the parts of the path that the route leaves open."""


class Route(NamedTuple):
    """One row: a path whose open parts are written {name}."""

    method: str
    path: str
    handler: Handler

    def match(self, path: Sequence[str]) -> list[str] | None:
        """The open parts, or None if the path is another."""
        wanted = self.path.strip("/").split("/")
        if len(wanted) != len(path):
            return None
        opened: list[str] = []
        for want, part in zip(wanted, path, strict=True):
            if want.startswith("{"):
                opened.append(part)
            elif want != part:
                return None
        return opened


def find(routes: Sequence[Route], request: Request) -> tuple[Handler, list[str]]:
    """The handler of a request, and what its path says.

    Raises:
        HttpError: nothing has that path, or not with that method.
    """
    method = "GET" if request.method == "HEAD" else request.method
    found = False
    for route in routes:
        opened = route.match(request.path)
        if opened is None:
            continue
        if route.method == method:
            return route.handler, opened
        found = True
    if found:
        raise HttpError(405, 405, f"HTTP 405 {request.method} is not allowed here")
    raise HttpError(404, 404, "HTTP 404 Not Found")
