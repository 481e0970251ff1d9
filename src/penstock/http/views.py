"""Materialized views over HTTP: what there is, questions, and answers that come again when changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, NamedTuple

from penstock.errors import NotFoundError, PenstockError, UnavailableError, UsageError
from penstock.http.messages import HttpError, Request, Response, json_response
from penstock.http.routes import Handler, Route
from penstock.http.view_watcher import ViewWatcher
from penstock.limits import VIEW_SIGN_SECONDS, VIEW_SUBSCRIPTIONS_MAX
from penstock.views.kinds import iso_of_ms
from penstock.views.names import check_view
from penstock.views.query import Query
from penstock.views.store import Answer, ViewStore
from penstock.views.version import State, Version

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs what may wait for a disk or a network somewhere else than on the loop."""
_STATUS: Final[dict[type[PenstockError], int]] = {
    UsageError: 400,
    NotFoundError: 404,
    UnavailableError: 503,
}
_EVENTS: Final = "text/event-stream"
_SIGN_OF_LIFE: Final = b": still here\n\n"


class Reply(NamedTuple):
    """An answer as it is sent."""

    mark: tuple[int, int]
    """Version and batch that it is of."""
    digest: str
    """Of its rows: the same as long as they are."""
    body: bytes


class ViewRoutes:
    """See the module.

    Args:
        store: where the views are.
        run: for questions to it.
    """

    def __init__(self, store: ViewStore, run: Run) -> None:
        self._store = store
        self._run = run
        self._watcher = ViewWatcher(self._marks)

    def routes(self) -> list[Route]:
        """Everything that is answered."""
        return [
            Route("GET", "/views", _guarded(self._list)),
            Route("GET", "/views/{name}", _guarded(self._ask)),
            Route("GET", "/views/{name}/changes", _guarded(self._changes)),
        ]

    async def _list(self, _: Request) -> Response:
        versions: list[Version] = await self._run(self._store.versions)
        names = sorted({version.view for version in versions})
        return json_response([_summary(name, versions) for name in names])

    async def _ask(self, request: Request, name: str) -> Response:
        reply = await self._reply(name, Query.parse(request.pairs))
        return Response(200, reply.body, headers={"cache-control": "no-store"})

    async def _changes(self, request: Request, name: str) -> Response:
        query = Query.parse(request.pairs)
        reply = await self._reply(name, query)
        if self._watcher.waiting >= VIEW_SUBSCRIPTIONS_MAX:
            text = f"HTTP 503 {VIEW_SUBSCRIPTIONS_MAX} readers wait for changes already"
            raise HttpError(503, 503, text)
        known = request.headers.get("last-event-id", "")
        stream = self._events(name, query, reply, known)
        return Response(200, b"", _EVENTS, {"cache-control": "no-store"}, stream)

    async def _events(
        self, name: str, query: Query, reply: Reply, known: str
    ) -> AsyncGenerator[bytes]:
        """The answer unless the reader has it, and again whenever its rows have changed."""
        with self._watcher.joined():
            while True:
                if reply.digest != known:
                    known = reply.digest
                    yield b"id: %s\ndata: %s\n\n" % (known.encode(), reply.body)
                while not await self._watcher.has_moved(name, reply.mark, VIEW_SIGN_SECONDS):
                    yield _SIGN_OF_LIFE
                try:
                    reply = await self._reply(name, query)
                except PenstockError:
                    # Its reader connects again, and is told what is wrong.
                    return

    async def _reply(self, name: str, query: Query) -> Reply:
        def ask() -> Reply:
            return _reply(self._store.ask(name, query))

        reply: Reply = await self._run(ask)
        return reply

    async def _marks(self) -> dict[str, tuple[int, int]]:
        versions: list[Version] = await self._run(self._store.versions)
        return {version.view: _mark(version) for version in versions if _is_read(version)}


def _guarded(handler: Handler) -> Handler:
    async def guarded(request: Request, *opened: str) -> Response:
        try:
            for name in opened:
                _check_name(name)
            return await handler(request, *opened)
        except PenstockError as error:
            status = next((_STATUS[k] for k in type(error).__mro__ if k in _STATUS), 500)
            raise HttpError(status, status, f"HTTP {status} {error}") from error

    return guarded


def _check_name(name: str) -> None:
    try:
        check_view(name)
    except UsageError as error:
        raise NotFoundError("cannot read the view", "no view can have that name") from error


def _reply(answer: Answer) -> Reply:
    shown = {"rows": answer.rows, "more": answer.more}
    digest = hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:32]
    body = json.dumps(
        {"view": answer.version.view, **_reflected(answer.version), **shown},
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return Reply(_mark(answer.version), digest, body.encode())


def _reflected(version: Version) -> dict[str, Any]:
    """Which input an answer reflects."""
    last = version.last
    assert last is not None
    return {
        "version": version.number,
        "position": last.position,
        "watermark": iso_of_ms(last.watermark_ms),
        "updated": iso_of_ms(last.at_ms),
    }


def _summary(name: str, versions: list[Version]) -> dict[str, Any]:
    mine = [version for version in versions if version.view == name]
    found: dict[str, Any] = {"view": name, "version": None}
    for version in mine:
        if _is_read(version) and version.shape is not None:
            columns = {column.name: str(column.kind) for column in version.shape.columns}
            found |= {**_reflected(version), "key": version.shape.key, "columns": columns}
    building = [version.number for version in mine if version.state is State.BUILDING]
    return found | {"building": building[-1] if building else None}


def _is_read(version: Version) -> bool:
    return version.state is State.CURRENT


def _mark(version: Version) -> tuple[int, int]:
    assert version.last is not None
    return version.number, version.last.batch
