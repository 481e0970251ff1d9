"""Reads schemas from a registry with Confluent's REST interface, Penstock's own or another."""

from __future__ import annotations

import base64
import functools
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import NotFoundError, PenstockError, UnavailableError, UsageError

_REQUEST_SECONDS_MAX: Final = 10.0
_RETRY_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = 0.5
_SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a schema, with those that it refers to, what is referred to first."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[tuple[str, str], ...]
    """Names and texts."""


@dataclass(frozen=True, slots=True)
class Registry:
    """Where the schemas are. Its text never holds the password.

    Args:
        url: http(s)://HOST:PORT.
        user_info: USER:PASSWORD, or nothing.
    """

    url: str
    user_info: str = field(default="", repr=False)

    def schema_of_id(self, number: int) -> Schema:
        """The schema that a value names; remembered, since it never changes.

        Raises:
            NotFoundError: there is none of this id.
            UnavailableError: the registry does not answer.
        """
        return _schema_of_id(self, number)

    def latest(self, subject: str) -> Schema:
        """The newest version of a subject.

        Raises:
            NotFoundError: there is no such subject.
            UnavailableError: the registry does not answer.
        """
        name = urllib.parse.quote(subject, safe="")
        return self._schema(self._get(f"/subjects/{name}/versions/latest", subject))

    def _schema(self, answer: dict[str, Any]) -> Schema:
        found: dict[str, str] = {}
        self._collect(answer.get("references") or [], found)
        return Schema(answer.get("schemaType", "AVRO"), answer["schema"], tuple(found.items()))

    def _collect(self, references: list[dict[str, Any]], found: dict[str, str]) -> None:
        for one in references:
            if one["name"] not in found:
                subject = urllib.parse.quote(one["subject"], safe="")
                path = f"/subjects/{subject}/versions/{one['version']}"
                answer = self._get(path, one["subject"])
                self._collect(answer.get("references") or [], found)
                found[one["name"]] = answer["schema"]

    def _get(self, path: str, what: str) -> dict[str, Any]:
        """An answer, asked for again while a registry that starts or restarts does not give one."""
        deadline = time.monotonic() + _RETRY_SECONDS
        while True:
            try:
                return self._once(path, what)
            except UnavailableError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _once(self, path: str, what: str) -> dict[str, Any]:
        operation = f"cannot get the schema of {what}"
        request = urllib.request.Request(self.url.rstrip("/") + path)  # noqa: S310 -- checked
        if self.user_info:
            encoded = base64.b64encode(self.user_info.encode()).decode()
            request.add_header("Authorization", f"Basic {encoded}")
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS_MAX) as answer:  # noqa: S310
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            error.close()
            raise self._refused(operation, what, error.code) from error
        except (OSError, ValueError) as error:
            said = getattr(error, "reason", error)
            cause = f"the schema registry at {self.url} does not answer: {said}"
            raise UnavailableError(operation, cause, "check that it runs") from error

    def _refused(self, operation: str, what: str, status: int) -> PenstockError:
        if status == 404:
            cause = f"the schema registry at {self.url} has no {what}"
            return NotFoundError(operation, cause, "register the schema, or name another registry")
        cause = f"the schema registry at {self.url} answered {status}"
        if status >= _SERVER_ERROR:
            return UnavailableError(operation, cause, "look into its log")
        return UsageError(operation, cause, "check schemaRegistryUserInfo and schemaRegistryUrl")


@functools.lru_cache(maxsize=1000)
def _schema_of_id(registry: Registry, number: int) -> Schema:
    return registry._schema(registry._get(f"/schemas/ids/{number}", f"id {number}"))
