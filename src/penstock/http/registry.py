"""The schema registry over HTTP: Confluent's REST interface."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.errors import PenstockError
from penstock.http.messages import HttpError, Request, Response, error_response, json_response
from penstock.http.registry_input import (
    CONTENT_TYPE,
    id_of,
    level_of,
    mode_of,
    page_of,
    schema_of,
    version_of,
)
from penstock.http.routes import Handler, Route
from penstock.registry import errors, kinds
from penstock.registry.records import schema_json, version_json
from penstock.registry.registry import LATEST, Plan, Registry
from penstock.registry.schema import Version

_log = logging.getLogger(__name__)

_CODES: Final[dict[type[errors.RegistryError], tuple[int, int]]] = {
    errors.SubjectNotFoundError: (404, 40401),
    errors.VersionNotFoundError: (404, 40402),
    errors.SchemaNotFoundError: (404, 40403),
    errors.SubjectDeletedError: (404, 40404),
    errors.SubjectNotDeletedError: (404, 40405),
    errors.VersionDeletedError: (404, 40406),
    errors.VersionNotDeletedError: (404, 40407),
    errors.LevelNotSetError: (404, 40408),
    errors.ModeNotSetError: (404, 40409),
    errors.IncompatibleError: (409, 409),
    errors.InvalidSchemaError: (422, 42201),
    errors.InvalidVersionError: (422, 42202),
    errors.InvalidLevelError: (422, 42203),
    errors.InvalidModeError: (422, 42204),
    errors.ReadOnlyError: (422, 42205),
    errors.ReferencedError: (422, 42206),
    errors.UnsupportedError: (422, 42205),
    errors.MissingLibraryError: (501, 50101),
}
_STORE_FAILED: Final = 50001


class RegistryRoutes:
    """See the module.

    Args:
        registry: what answers.
        durable: waits for a commit round that starts now.
    """

    def __init__(self, registry: Registry, durable: Callable[[], Awaitable[None]]) -> None:
        self._registry = registry
        self._durable = durable
        # One change at a time: the next is planned on what the last one left.
        self._writing = asyncio.Lock()

    def routes(self) -> list[Route]:
        """Everything the registry answers."""
        return [
            Route(method, path, self._guarded(handler)) for method, path, handler in self._table()
        ]

    def _table(self) -> list[tuple[str, str, Handler]]:
        subject, versions = "/subjects/{subject}", "/subjects/{subject}/versions"
        version, by_id = versions + "/{version}", "/schemas/ids/{id}"
        return [
            ("GET", "/subjects", self._subjects),
            ("POST", subject, self._lookup),
            ("DELETE", subject, self._delete_subject),
            ("GET", versions, self._versions),
            ("POST", versions, self._register),
            ("GET", version, self._version),
            ("DELETE", version, self._delete_version),
            ("GET", version + "/schema", self._version_text),
            ("GET", version + "/referencedby", self._referenced_by),
            ("GET", "/schemas", self._schemas),
            ("GET", "/schemas/types", self._types),
            ("GET", by_id, self._schema),
            ("GET", by_id + "/schema", self._schema_text),
            ("GET", by_id + "/subjects", self._subjects_of_id),
            ("GET", by_id + "/versions", self._versions_of_id),
            ("GET", "/config", self._level),
            ("PUT", "/config", self._set_level),
            ("DELETE", "/config", self._drop_level),
            ("GET", "/config/{subject}", self._level),
            ("PUT", "/config/{subject}", self._set_level),
            ("DELETE", "/config/{subject}", self._drop_level),
            ("GET", "/mode", self._mode),
            ("PUT", "/mode", self._set_mode),
            ("GET", "/mode/{subject}", self._mode),
            ("PUT", "/mode/{subject}", self._set_mode),
            ("DELETE", "/mode/{subject}", self._drop_mode),
            ("POST", "/compatibility/subjects/{subject}/versions", self._check_all),
            ("POST", "/compatibility/subjects/{subject}/versions/{version}", self._check_one),
        ]

    # -- what every request goes through

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: Request, *opened: str) -> Response:
            try:
                self._registry.topic.catch_up()
                return await handler(request, *opened)
            except HttpError as error:
                return error_response(error, CONTENT_TYPE)
            except errors.RegistryError as error:
                status, code = _CODES[type(error)]
                return error_response(HttpError(status, code, str(error)), CONTENT_TYPE)
            except (PenstockError, OSError) as error:
                _log.error("the schema registry failed: %s", error)
                text = f"Error in the backend data store: {error}"
                return error_response(HttpError(500, _STORE_FAILED, text), CONTENT_TYPE)

        return guarded

    async def _write(self, plan: Callable[[], Plan]) -> Any:
        """Do what a plan says, and give its answer when it is durable."""
        topic = self._registry.topic
        async with self._writing:
            topic.catch_up()
            records, answer = plan()
            if records:
                topic.append(records)
                await self._durable()
                topic.check_durable()
                topic.catch_up()
        return answer

    # -- subjects and versions

    async def _subjects(self, request: Request) -> Response:
        found = self._registry.subjects(
            request.query.get("subjectPrefix", ""),
            deleted=request.flag("deleted"),
            only=request.flag("deletedOnly"),
        )
        return _json(found[page_of(request)])

    async def _lookup(self, request: Request, subject: str) -> Response:
        found = self._registry.lookup(
            subject,
            schema_of(request),
            normalize=request.flag("normalize"),
            deleted=request.flag("deleted"),
        )
        return self._version_answer(request, found)

    async def _register(self, request: Request, subject: str) -> Response:
        schema, normalize = schema_of(request), request.flag("normalize")
        made: Version = await self._write(
            lambda: self._registry.register(subject, schema, normalize=normalize)
        )
        return _json({"id": made.id})

    async def _delete_subject(self, request: Request, subject: str) -> Response:
        permanent = request.flag("permanent")
        return _json(
            await self._write(lambda: self._registry.delete_subject(subject, permanent=permanent))
        )

    async def _versions(self, request: Request, subject: str) -> Response:
        found = self._registry.versions(subject, deleted=request.flag("deleted"))
        return _json([version.number for version in found][page_of(request)])

    async def _version(self, request: Request, subject: str, version: str) -> Response:
        return self._version_answer(request, self._find(request, subject, version))

    async def _version_text(self, request: Request, subject: str, version: str) -> Response:
        return _text(self._find(request, subject, version).schema.text)

    def _find(self, request: Request, subject: str, version: str) -> Version:
        deleted = request.flag("deleted")
        return self._registry.version(subject, version_of(version), deleted=deleted)

    def _version_answer(self, request: Request, version: Version) -> Response:
        schema = self._registry.formatted(version.schema, request.query.get("format", ""))
        return _json(version_json(version) | schema_json(schema))

    async def _delete_version(self, request: Request, subject: str, version: str) -> Response:
        number, permanent = version_of(version), request.flag("permanent")
        gone: Version = await self._write(
            lambda: self._registry.delete_version(subject, number, permanent=permanent)
        )
        return _json(gone.number)

    async def _referenced_by(self, _: Request, subject: str, version: str) -> Response:
        return _json(self._registry.referenced_by(subject, version_of(version)))

    # -- schemas

    async def _schemas(self, request: Request) -> Response:
        found: list[Version] = []
        deleted = request.flag("deleted")
        prefix = request.query.get("subjectPrefix", "")
        for subject in self._registry.subjects(prefix, deleted=deleted):
            versions = self._registry.versions(subject, deleted=deleted)
            found += versions[-1:] if request.flag("latestOnly") else versions
        return _json([version_json(version) for version in found[page_of(request)]])

    async def _types(self, _: Request) -> Response:
        return _json(list(kinds.NAMES))

    async def _schema(self, request: Request, schema_id: str) -> Response:
        schema = self._registry.schema(id_of(schema_id))
        answer = schema_json(self._registry.formatted(schema, request.query.get("format", "")))
        if request.flag("fetchMaxId"):
            answer["maxId"] = self._registry.state.highest_id
        return _json(answer)

    async def _schema_text(self, request: Request, schema_id: str) -> Response:
        schema = self._registry.schema(id_of(schema_id))
        return _text(self._registry.formatted(schema, request.query.get("format", "")).text)

    async def _subjects_of_id(self, request: Request, schema_id: str) -> Response:
        found = self._registry.places(id_of(schema_id), deleted=request.flag("deleted"))
        return _json(sorted({version.subject for version in found}))

    async def _versions_of_id(self, request: Request, schema_id: str) -> Response:
        found = self._registry.places(id_of(schema_id), deleted=request.flag("deleted"))
        return _json([{"subject": v.subject, "version": v.number} for v in found])

    # -- settings

    async def _level(self, request: Request, subject: str | None = None) -> Response:
        inherit = request.flag("defaultToGlobal")
        return _json(self._registry.level(subject, inherit=inherit))

    async def _set_level(self, request: Request, subject: str | None = None) -> Response:
        level, normalize = level_of(request)
        done: dict[str, Any] = await self._write(
            lambda: self._registry.set_level(subject, level, normalize)
        )
        answer = dict(done)
        if "compatibilityLevel" in answer:
            # The one place where Confluent gives it this name.
            answer["compatibility"] = answer.pop("compatibilityLevel")
        return _json(answer)

    async def _drop_level(self, _: Request, subject: str | None = None) -> Response:
        return _json(await self._write(lambda: self._registry.drop_level(subject)))

    async def _mode(self, request: Request, subject: str | None = None) -> Response:
        inherit = request.flag("defaultToGlobal")
        return _json({"mode": self._registry.mode(subject, inherit=inherit)})

    async def _set_mode(self, request: Request, subject: str | None = None) -> Response:
        mode = mode_of(request)
        return _json({"mode": await self._write(lambda: self._registry.set_mode(subject, mode))})

    async def _drop_mode(self, _: Request, subject: str) -> Response:
        return _json({"mode": await self._write(lambda: self._registry.drop_mode(subject))})

    # -- compatibility

    async def _check_all(self, request: Request, subject: str) -> Response:
        return self._checked(request, subject, self._registry.state.versions(subject))

    async def _check_one(self, request: Request, subject: str, version: str) -> Response:
        number = version_of(version)
        if number == LATEST:
            return self._checked(request, subject, self._registry.state.versions(subject)[-1:])
        return self._checked(request, subject, [self._registry.version(subject, number)])

    def _checked(self, request: Request, subject: str, olds: list[Version]) -> Response:
        schema = schema_of(request)
        found = self._registry.check(subject, schema, olds, request.flag("normalize"))
        answer: dict[str, Any] = {"is_compatible": not found}
        if request.flag("verbose"):
            answer["messages"] = found
        return _json(answer)


def _json(value: Any) -> Response:
    return json_response(value, content_type=CONTENT_TYPE)


def _text(text: str) -> Response:
    return Response(200, text.encode(), CONTENT_TYPE)
