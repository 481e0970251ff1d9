"""Sends the rows of a query to a web address, each of them at least once.

A web server has no transaction that a batch could be committed in. So a page of rows is sent until the
server has taken it, and a batch that Spark runs again is sent again, page by page with the same contents
and the same `webhook-id`: a server that remembers these takes every page once.

Requests are those of Standard Webhooks (standardwebhooks.com): `webhook-id`, `webhook-timestamp`, and
with a secret `webhook-signature`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from penstock.errors import UnavailableError, UsageError
from penstock.spark.sinks.row_modes import column, row_mode

_TRIES_MAX: Final = 8
_PAUSE_SECONDS: Final = 0.2
_PAUSE_SECONDS_MAX: Final = 30.0
_TIMEOUT_SECONDS: Final = 15.0  # what Standard Webhooks advises for an answer
# Worth another try: the server was busy, slow or away. Any other refusal would be repeated.
_PASSING: Final = (408, 425, 429, *range(500, 600))
_log = logging.getLogger(__name__)


class WebhookSink:
    """See the module.

    Args:
        url: of http or https.
        secret: `whsec_` and base64, to sign requests with.
        rows_per_request: how many rows a page has at most.
        order_by: columns by which the rows of a batch are sent; then by their text.
        name: what tells it from other sinks of the same query; by default the server, and a checksum of
            the address, which may have secrets in it.
        sleep: waits for so many seconds.
        now: seconds since 1970.
        chance: between 0 and 1, so that many senders do not come back together.

    Raises:
        UsageError: the address or the secret is none.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | None = None,
        rows_per_request: int = 100,
        order_by: Sequence[str] = (),
        name: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = lambda: time.time_ns() / 1e9,
        chance: Callable[[], float] = random.random,
    ) -> None:
        parts = urlsplit(url)
        # Without what may be secret in it: many services have a token in the path.
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._operation = f"cannot send to {shown}"
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(self._operation, f"{shown} is no address of http or https")
        if rows_per_request < 1:
            raise UsageError(self._operation, "rows_per_request is less than 1")
        self._parts = parts
        self._secret = None if secret is None else _key(secret, self._operation)
        self._page_rows = rows_per_request
        self._order = tuple(order_by)
        self._name = name or f"webhook:{shown}-{_digest(url)}"
        self._sleep, self._now, self._chance = sleep, now, chance
        self._mode = row_mode("append", (), self._operation)

    @property
    def name(self) -> str:
        """What tells it from other sinks of the same query."""
        return self._name

    def prepare(self, frame: DataFrame) -> None:
        """Say before a query starts what would stop it.

        Raises:
            UsageError: a column to order by is not there, or cannot be JSON.
        """
        self._mode.check(frame)
        missing = [name for name in self._order if name not in frame.columns]
        if missing:
            cause = f"there is no column {missing[0]} to order by"
            raise UsageError(self._operation, cause, f"there are {', '.join(frame.columns)}")

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Send one batch, also if it has been sent before.

        Raises:
            UnavailableError: the server did not take a page.
        """
        # A header cannot hold every name.
        sink = _digest(self.name)
        text = sql.to_json(sql.struct("*"), {"ignoreNullFields": "false"})
        rows = batch.select(*map(column, self._order), text.alias("_row"))
        ordered = rows.sort(*map(column, self._order), "_row").select("_row")
        for number, page in enumerate(_pages(ordered, self._page_rows)):
            self._deliver(f"{query_id}-{sink}-{batch_id}-{number}", page)

    def _deliver(self, identity: str, page: list[str]) -> None:
        body = f'{{"rows": [{", ".join(page)}]}}'.encode()
        said = ""
        for attempt in range(_TRIES_MAX):
            if attempt:
                pause = min(_PAUSE_SECONDS * 2**attempt, _PAUSE_SECONDS_MAX)
                self._sleep(pause * (0.5 + self._chance() / 2))
            try:
                status, said = self._post(identity, body)
            except (OSError, http.client.HTTPException) as error:
                status, said = None, str(error) or type(error).__name__
            if status is not None and 200 <= status < 300:
                return
            if status is not None and status not in _PASSING:
                raise UsageError(self._operation, said, "see what the server says to it")
            _log.warning("%s: %s; it is tried again", self._operation, said)
        remedy = (
            "see what the server says to it; the batch is sent again when the query starts again"
        )
        raise UnavailableError(self._operation, said, remedy)

    def _post(self, identity: str, body: bytes) -> tuple[int, str]:
        """The status, and what is to be said about it."""
        host, port = self._parts.hostname or "", self._parts.port
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(host, port, timeout=_TIMEOUT_SECONDS)
        path = self._parts.path or "/"
        target = f"{path}?{self._parts.query}" if self._parts.query else path
        try:
            connection.request("POST", target, body, self._headers(identity, body))
            answer = connection.getresponse()
            answer.read()
            return answer.status, f"it answered {answer.status} {answer.reason}"
        finally:
            connection.close()

    def _headers(self, identity: str, body: bytes) -> dict[str, str]:
        stamp = str(int(self._now()))
        headers = {
            "content-type": "application/json",
            "webhook-id": identity,
            "webhook-timestamp": stamp,
        }
        if self._secret is not None:
            signed = f"{identity}.{stamp}.".encode() + body
            digest = hmac.new(self._secret, signed, hashlib.sha256).digest()
            headers["webhook-signature"] = "v1," + base64.b64encode(digest).decode()
        if self._parts.username is not None:
            # An address has what is special in it, such as @, as %40.
            login = (self._parts.username, self._parts.password or "")
            pair = ":".join(map(unquote, login)).encode()
            headers["authorization"] = "Basic " + base64.b64encode(pair).decode()
        return headers


def _pages(rows: DataFrame, size: int) -> Iterator[list[str]]:
    each = iter(rows.toLocalIterator())
    while page := [row[0] for row in islice(each, size)]:
        yield page


def _key(secret: str, operation: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        cause = f"the secret is not base64: {error}"
        raise UsageError(operation, cause, "it is whsec_ and base64") from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
