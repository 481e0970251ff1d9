"""Reads what clients of the registry send, and refuses what makes no sense."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from penstock.http.messages import HttpError, Request
from penstock.registry.errors import (
    InvalidSchemaError,
    InvalidVersionError,
    SchemaNotFoundError,
    UnsupportedError,
)
from penstock.registry.registry import LATEST
from penstock.registry.schema import AVRO, Reference, Schema

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
# Not what a page of another site can send without being asked first: forms and plain text.
_ACCEPTED: Final = (
    CONTENT_TYPE,
    "application/vnd.schemaregistry+json",
    "application/json",
    "application/octet-stream",
)
_INT32_MAX: Final = 2**31 - 1
# Data contracts, which are not available; null is what clients send that do not use them.
_UNAVAILABLE: Final = ("metadata", "ruleSet", "schemaTagsToAdd", "schemaTagsToRemove")
_UNAVAILABLE_CONFIG: Final = (
    "alias", "compatibilityGroup", "compatibilityPolicy", "validateFields", "validateNames",
    "validateRules", "defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet",
)  # fmt: skip


def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that a request carries."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _ACCEPTED:
        raise HttpError(415, 415, f"HTTP 415 Unsupported Media Type: send {CONTENT_TYPE}")
    try:
        value = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, 400, f"Invalid JSON: {error}") from error
    if not isinstance(value, dict):
        raise HttpError(422, 422, "The body must be a JSON object")
    return value


def schema_of(request: Request) -> Schema:
    """The schema that a request carries."""
    body = body_of(request)
    _refuse(body, _UNAVAILABLE)
    if (body.get("id") or -1) > 0 or (body.get("version") or -1) > 0:
        raise UnsupportedError("ids and versions cannot be chosen: there is no import mode")
    text, kind = body.get("schema"), body.get("schemaType") or AVRO
    if not isinstance(text, str) or not isinstance(kind, str):
        raise InvalidSchemaError("Empty schema" if text is None else "A schema is sent as text")
    references = body.get("references") or []
    try:
        return Schema(text, kind, tuple(_reference(item) for item in references))
    except (KeyError, TypeError, ValueError) as error:
        message = "Invalid schema: a reference has a name, a subject and a version"
        raise InvalidSchemaError(message) from error


def _reference(item: Mapping[str, Any]) -> Reference:
    name, subject, version = item["name"], item["subject"], int(item["version"])
    if not (isinstance(name, str) and isinstance(subject, str)):
        raise TypeError
    return Reference(name, subject, version)


def level_of(request: Request) -> tuple[str | None, bool | None]:
    """A compatibility level, and whether schemas are normalised."""
    body = body_of(request)
    _refuse(body, _UNAVAILABLE_CONFIG)
    level, normalize = body.get("compatibility"), body.get("normalize")
    if level is None and normalize is None:
        level = ""  # which is not a level
    if not isinstance(level, str | None) or not isinstance(normalize, bool | None):
        raise HttpError(422, 422, "compatibility is a text, normalize is true or false")
    return level, normalize


def mode_of(request: Request) -> str:
    """A mode."""
    return str(body_of(request).get("mode"))


def _refuse(body: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if body.get(name):
            raise UnsupportedError(f"{name} is not available")


def version_of(text: str) -> int:
    """A version's number; the latest if it says so."""
    if text in ("latest", "-1"):
        return LATEST
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _INT32_MAX:
        raise InvalidVersionError(text)
    return int(text)


def id_of(text: str) -> int:
    """A schema's id."""
    if not (text.isascii() and text.isdigit()):
        raise HttpError(404, 404, "HTTP 404 Not Found")
    if int(text) > _INT32_MAX:
        raise SchemaNotFoundError(int(text))
    return int(text)


def page_of(request: Request) -> slice:
    """What part of a list is wanted: offset and limit, where -1 is no limit."""
    try:
        offset = max(0, int(request.query.get("offset", "0")))
        limit = int(request.query.get("limit", "-1"))
    except ValueError as error:
        raise HttpError(422, 422, "offset and limit are whole numbers") from error
    return slice(offset, None if limit < 0 else offset + limit)
