"""One HTTP/1.1 connection: h11 reads and writes the protocol, this moves the bytes.

Requests are answered one after the other. While one is answered, or the client does not take what it
was answered, nothing is read: a connection holds one request at most. An answer may be a stream, which
ends when its client goes or the server stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast
from urllib.parse import parse_qsl, unquote

import h11

from penstock.http.app import App
from penstock.http.messages import HttpError, Request, Response, error_response
from penstock.limits import HTTP_BODY_BYTES_MAX, HTTP_CONNECTIONS_MAX, HTTP_REQUEST_SECONDS_MAX

_log = logging.getLogger(__name__)


class HttpConnections:
    """All of them, so that a server that stops can wait for their answers."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.open: set[HttpConnection] = set()
        self.stopping = False

    async def stop(self, seconds: float) -> None:
        """Answer what was asked, and close."""
        self.stopping = True
        for connection in self.open:
            connection.end_stream()
        answers = [connection.answering for connection in self.open if connection.answering]
        if answers:
            await asyncio.wait(answers, timeout=seconds)
        for connection in list(self.open):
            connection.close()


class HttpConnection(asyncio.Protocol):
    """See the module."""

    def __init__(self, connections: HttpConnections) -> None:
        self._connections = connections
        self._http = h11.Connection(h11.SERVER)
        self._request: h11.Request | None = None
        self._body = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = False
        self._taken: asyncio.Event | None = None  # for a stream: set while the client takes it
        self.answering: asyncio.Task[None] | None = None
        """The answer that is being made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        if len(self._connections.open) >= HTTP_CONNECTIONS_MAX or self._connections.stopping:
            self._transport.abort()
            return
        self._connections.open.add(self)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone. What it asked for is still done: it may be half done already."""
        self._connections.open.discard(self)
        self.end_stream()
        self._stop_waiting()

    def _wait(self) -> None:
        """The whole of the next request must come within some time."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HTTP_REQUEST_SECONDS_MAX, self.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        """The client sends no more; it may still wait for its answer."""
        self._http.receive_data(b"")
        self._advance()
        return True

    def pause_writing(self) -> None:
        """The client does not take its answers: read no further requests of it."""
        self._unsent = True
        if self._taken is not None:
            self._taken.clear()
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It does again."""
        self._unsent = False
        if self._taken is not None:
            self._taken.set()
        self._read_on()

    def _read_on(self) -> None:
        if not (self._unsent or self.answering or self._transport.is_closing()):
            self._transport.resume_reading()
            self._advance()

    def close(self) -> None:
        """Send what was answered, and end."""
        self._transport.close()

    # -- reading

    def _advance(self) -> None:
        try:
            while not (self.answering or self._unsent or self._transport.is_closing()):
                event = self._http.next_event()
                if not isinstance(event, h11.Event):  # more is needed, or the answer comes first
                    self._encourage()
                    return
                if not self._take(event):
                    return
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint
            self._refuse(HttpError(status, status, f"HTTP {status} {error}"))

    def _encourage(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[]))

    def _take(self, event: h11.Event) -> bool:
        """Use one event; whether to go on."""
        if isinstance(event, h11.Request):
            self._request = event
            self._body.clear()
        elif isinstance(event, h11.Data):
            self._body += event.data
            if len(self._body) > HTTP_BODY_BYTES_MAX:
                text = f"HTTP 413 a request has {HTTP_BODY_BYTES_MAX} bytes at most"
                self._refuse(HttpError(413, 413, text))
                return False
        elif isinstance(event, h11.EndOfMessage):
            assert self._request is not None
            self._stop_waiting()
            self._transport.pause_reading()
            loop = asyncio.get_running_loop()
            self.answering = loop.create_task(self._answer(_request(self._request, self._body)))
        else:
            self.close()
            return False
        return True

    # -- answering

    async def _answer(self, request: Request) -> None:
        response = await self._connections.app.answer(request)
        if response.stream is not None:
            try:
                await self._stream(response, response.stream)
            except Exception:
                _log.exception("a stream of answers failed")
            finally:
                self.close()
            return
        self.answering = None
        if self._transport.is_closing():
            return
        self._respond(response)
        if self._http.our_state is not h11.DONE or self._connections.stopping:
            self.close()
            return
        self._http.start_next_cycle()
        self._wait()
        self._read_on()

    async def _stream(self, response: Response, pieces: AsyncGenerator[bytes]) -> None:
        """Send pieces as they come, each when the client has taken those before it."""
        self._taken = asyncio.Event()
        self._taken.set()
        async with aclosing(pieces):
            if self._transport.is_closing() or self._connections.stopping:
                return
            self._send(self._head(response, [("connection", "close")]))
            if self._is_head_only:
                return
            async for piece in pieces:
                self._send(h11.Data(data=piece))
                await self._taken.wait()
        self._send(h11.EndOfMessage())

    def end_stream(self) -> None:
        """Send no more of an answer that has no end of its own."""
        if self._taken is not None and self.answering is not None:
            self.answering.cancel()

    def _refuse(self, error: HttpError) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._respond(error_response(error))
        self.close()

    def _respond(self, response: Response) -> None:
        headers = [("content-length", str(len(response.body)))]
        if self._connections.stopping:
            headers.append(("connection", "close"))
        self._send(self._head(response, headers))
        if not self._is_head_only:
            self._send(h11.Data(data=response.body))
        self._send(h11.EndOfMessage())

    @property
    def _is_head_only(self) -> bool:
        return self._request is not None and self._request.method == b"HEAD"

    def _head(self, response: Response, more: list[tuple[str, str]]) -> h11.Response:
        headers = [
            ("content-type", response.content_type),
            # What is answered here is not to be guessed at, nor shown as a page.
            ("x-content-type-options", "nosniff"),
            *response.headers.items(),
            *more,
        ]
        return h11.Response(status_code=response.status, headers=headers)

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._transport.write(data)


def _request(head: h11.Request, body: bytearray) -> Request:
    # Split before percent signs are resolved: a subject's name may hold a slash.
    target, _, query = head.target.decode("ascii", "replace").partition("?")
    path = target.strip("/")
    pairs = tuple(parse_qsl(query, keep_blank_values=True))
    return Request(
        method=head.method.decode("ascii"),
        path=tuple(unquote(part) for part in path.split("/")) if path else (),
        query=dict(pairs),
        headers={name.decode("ascii"): value.decode("latin-1") for name, value in head.headers},
        body=bytes(body),
        pairs=pairs,
    )
