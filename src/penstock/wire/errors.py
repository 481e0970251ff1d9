"""What can be wrong with a request's bytes."""

from __future__ import annotations

from penstock.errors import PenstockError


class MalformedRequestError(PenstockError):
    """Bytes that are not the request they claim to be; the connection is closed."""

    def __init__(self, cause: str) -> None:
        super().__init__("read request", cause)
