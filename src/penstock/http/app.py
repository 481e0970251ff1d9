"""The one app behind the HTTP port: from a request to an answer, whatever happens on the way."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.http import routes
from penstock.http.messages import HttpError, Request, Response, error_response, json_response
from penstock.http.routes import Route
from penstock.log.commit import GroupCommit

_log = logging.getLogger(__name__)


class App:
    """See the module.

    Args:
        commit: what makes things durable; a server that cannot do that any more is not ready.
        more: the routes of what else is served.
    """

    def __init__(self, commit: GroupCommit, more: Sequence[Route]) -> None:
        self._commit = commit
        self._routes = (
            Route("GET", "/livez", self._livez),
            Route("GET", "/readyz", self._readyz),
            *more,
        )

    async def answer(self, request: Request) -> Response:
        """Answer one request; never raises."""
        try:
            handler, opened = routes.find(self._routes, request)
            return await handler(request, *opened)
        except HttpError as error:
            return error_response(error)
        except Exception:
            _log.exception("%s /%s failed", request.method, "/".join(request.path))
            return error_response(HttpError(500, 500, "HTTP 500 Internal Server Error"))

    async def _livez(self, _: Request) -> Response:
        return json_response({"status": "alive"})

    async def _readyz(self, _: Request) -> Response:
        failed = self._commit.metadata_failed
        if failed is not None:
            cause = f"nothing can be made durable: {failed}; restart the server"
            return json_response({"status": "not ready", "cause": cause}, status=503)
        return json_response({"status": "ready"})
