"""All that the registry knows: what the records of its topic add up to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from penstock.registry.records import StoredRecord, read_version
from penstock.registry.schema import Schema, Version

_log = logging.getLogger(__name__)


class State:
    """Changed by records only, in the order of the topic."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        """Versions by number, in order; deleted ones too, removed ones not."""
        self.levels: dict[str | None, dict[str, Any]] = {}
        """Compatibility by subject; None for all that have none of their own."""
        self.modes: dict[str | None, str] = {}
        self.highest_id = 0
        """The highest id that was ever given."""
        self._places: dict[int, dict[tuple[str, int], Version]] = {}
        self._ids: dict[Schema, int] = {}

    # -- looking

    def places(self, schema_id: int) -> list[Version]:
        """Where a schema stands, deleted versions included."""
        return list(self._places.get(schema_id, {}).values())

    def schema(self, schema_id: int) -> Schema | None:
        """The schema of an id."""
        places = self._places.get(schema_id)
        return next(iter(places.values())).schema if places else None

    def id_of(self, schema: Schema) -> int | None:
        """The id of a schema that some subject has, letter by letter."""
        return self._ids.get(schema)

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Versions of a subject, oldest first."""
        found = self.subjects.get(subject, {})
        return [v for _, v in sorted(found.items()) if deleted or not v.deleted]

    def using(self, subject: str, number: int) -> list[Version]:
        """Versions that refer to another, the deleted ones left out."""
        return [
            version
            for versions in self.subjects.values()
            for version in versions.values()
            if not version.deleted
            and any(r.subject == subject and r.version == number for r in version.schema.references)
        ]

    # -- changing

    def apply(self, record: StoredRecord) -> None:
        """Take in one record. What makes no sense is reported and left out."""
        handler = _HANDLERS.get(record.key.get("keytype", ""))
        try:
            if handler is None:
                raise ValueError("unknown key type")
            handler(self, record.key, record.value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            _log.warning("a record of the schema topic was passed over: %r: %s", record.key, error)

    def _version(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        subject, number = key["subject"], int(key["version"])
        old = self.subjects.get(subject, {}).pop(number, None)
        if old is not None:
            self._forget(old)
        if value is None:
            if not self.subjects.get(subject):
                self.subjects.pop(subject, None)
            return
        version = read_version(value)
        self.subjects.setdefault(subject, {})[number] = version
        self._places.setdefault(version.id, {})[(subject, number)] = version
        self._ids.setdefault(version.schema, version.id)
        self.highest_id = max(self.highest_id, version.id)

    def _forget(self, version: Version) -> None:
        places = self._places[version.id]
        del places[(version.subject, version.number)]
        if not places:
            del self._places[version.id]
            if self._ids.get(version.schema) == version.id:
                del self._ids[version.schema]

    def _delete_subject(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        if value is None:
            return
        for version in self.versions(key["subject"]):
            if version.number <= int(value["version"]):
                gone = replace(version, deleted=True)
                self.subjects[version.subject][version.number] = gone
                self._places[version.id][(version.subject, version.number)] = gone

    def _level(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        if value is None:
            self.levels.pop(key["subject"], None)
        else:
            self.levels[key["subject"]] = {k: v for k, v in value.items() if k != "subject"}

    def _mode(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        if value is None:
            self.modes.pop(key["subject"], None)
        else:
            self.modes[key["subject"]] = value["mode"]

    def _noop(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        self.highest_id = max(self.highest_id, int((value or {}).get("maxId", 0)))


_Handler = Callable[[State, dict[str, Any], dict[str, Any] | None], None]
_HANDLERS: Final[dict[str, _Handler]] = {
    "SCHEMA": State._version,
    "DELETE_SUBJECT": State._delete_subject,
    "CONFIG": State._level,
    "MODE": State._mode,
    "NOOP": State._noop,
}
