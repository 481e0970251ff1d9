"""A request and an answer of HTTP, free of how they travel."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

JSON: Final = "application/json"


class HttpError(Exception):
    """A request that is refused, with what the client is told."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked for."""

    method: str
    path: tuple[str, ...]
    """The parts between slashes, with percent signs resolved."""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""
    pairs: tuple[tuple[str, str], ...] = ()
    """The query as it was written, in which a name may come more than once."""

    def flag(self, name: str) -> bool:
        """Whether a query parameter says true."""
        return self.query.get(name, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class Response:
    """What a client is told."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncGenerator[bytes] | None = None
    """What comes instead of a body, piece by piece, for as long as the client stays."""


def json_response(value: Any, *, status: int = 200, content_type: str = JSON) -> Response:
    """An answer in JSON."""
    body = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    return Response(status, body, content_type)


def error_response(error: HttpError, content_type: str = JSON) -> Response:
    """An answer in the form that Confluent's clients expect of errors."""
    value = {"error_code": error.code, "message": error.message}
    return json_response(value, status=error.status, content_type=content_type)
