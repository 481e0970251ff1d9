"""The registry: what may be registered, looked up, deleted and set.

Looking answers from the state. What changes something is planned here as records and an answer; the
records must be durable before the answer is given, and one plan must be done before the next is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from penstock.registry import compatibility, kinds, records
from penstock.registry.compatibility import DEFAULT_LEVEL, LEVELS, Old
from penstock.registry.errors import (
    IncompatibleError,
    InvalidLevelError,
    InvalidModeError,
    InvalidSchemaError,
    LevelNotSetError,
    ModeNotSetError,
    ReadOnlyError,
    ReferencedError,
    SchemaNotFoundError,
    SubjectDeletedError,
    SubjectNotDeletedError,
    SubjectNotFoundError,
    VersionDeletedError,
    VersionNotDeletedError,
    VersionNotFoundError,
)
from penstock.registry.kinds import Parsed
from penstock.registry.records import StoredRecord
from penstock.registry.schema import Reference, Schema, Version
from penstock.registry.state import State
from penstock.registry.topic import SchemaTopic

LATEST: Final = -1
READWRITE: Final = "READWRITE"
MODES: Final = (READWRITE, "READONLY")
# Parsed schemas that are kept: every registration compares with some, mostly the same ones.
_PARSED_KEPT: Final = 256


class Plan(NamedTuple):
    """What to write, and what to answer once it is durable."""

    records: list[StoredRecord]
    answer: Any


class Registry:
    """See the module."""

    def __init__(self, topic: SchemaTopic) -> None:
        self.topic = topic
        self._parse = lru_cache(_PARSED_KEPT)(_parse)

    @property
    def state(self) -> State:
        """What is known."""
        return self.topic.state

    # -- looking

    def subjects(self, prefix: str = "", *, deleted: bool = False, only: bool = False) -> list[str]:
        """Names of subjects: those in use, the deleted ones too, or only those."""
        found = []
        for name, versions in self.state.subjects.items():
            used = any(not v.deleted for v in versions.values())
            if name.startswith(prefix) and (not used if only else used or deleted):
                found.append(name)
        return sorted(found)

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Versions of a subject, or SubjectNotFoundError."""
        found = self.state.versions(subject, deleted=deleted)
        if not found:
            raise SubjectNotFoundError(subject)
        return found

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """One version of a subject."""
        found = self.versions(subject, deleted=deleted)
        if number == LATEST:
            return found[-1]
        for version in found:
            if version.number == number:
                return version
        raise VersionNotFoundError(number)

    def schema(self, schema_id: int) -> Schema:
        """The schema of an id; of deleted versions too, as what was written can still be read."""
        found = self.state.schema(schema_id)
        if found is None:
            raise SchemaNotFoundError(schema_id)
        return found

    def places(self, schema_id: int, *, deleted: bool = False) -> list[Version]:
        """The versions that have an id."""
        self.schema(schema_id)
        return [v for v in self.state.places(schema_id) if deleted or not v.deleted]

    def referenced_by(self, subject: str, number: int) -> list[int]:
        """Ids of the schemas that refer to a version."""
        version = self.version(subject, number, deleted=True)
        return sorted({user.id for user in self.state.using(subject, version.number)})

    def lookup(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> Version:
        """The version of a subject that is this schema, in whatever spelling."""
        if not self.state.versions(subject, deleted=deleted):
            raise SubjectNotFoundError(subject)
        found = self._find(subject, self._read(schema, normalize or self._normalizes(subject)))
        for version in reversed(found):
            if deleted or not version.deleted:
                return version
        raise SchemaNotFoundError

    def formatted(self, schema: Schema, form: str) -> Schema:
        """A schema in another form."""
        return replace(schema, text=self._parsed(schema).formatted(form)) if form else schema

    # -- schemas

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> Plan:
        """Give a subject a new version, unless it has this schema."""
        self._check_writable(subject)
        new, parsed = self._read(schema, normalize or self._normalizes(subject))
        twins = self._find(subject, (new, parsed))
        for version in twins:
            if not version.deleted:
                return Plan([], version)
        found = self.incompatibilities(subject, new, self.state.versions(subject))
        if found:
            raise IncompatibleError(subject, found)
        if twins:
            # Deleted before: it comes back with its id, and so in the spelling that the id stands for.
            known, new = twins[-1].id, twins[-1].schema
        else:
            known = self.state.id_of(new) or self.state.highest_id + 1
        before = self.state.versions(subject, deleted=True)
        number = before[-1].number + 1 if before else 1
        version = Version(subject, number, known, new)
        return Plan([records.version_record(version)], version)

    def check(
        self, subject: str, schema: Schema, olds: list[Version], normalize: bool
    ) -> list[str]:
        """Why a schema could not follow these versions."""
        new, _ = self._read(schema, normalize or self._normalizes(subject))
        return self.incompatibilities(subject, new, olds)

    def incompatibilities(self, subject: str, new: Schema, olds: list[Version]) -> list[str]:
        """Why a schema breaks the rules of a subject, compared with these versions."""
        level = self.level(subject)["compatibilityLevel"]
        if level == "NONE":
            return []
        parsed = [Old(v.schema.type, v.number, self._parsed(v.schema)) for v in olds]
        return compatibility.problems(level, new.type, self._parsed(new), parsed)

    def delete_version(self, subject: str, number: int, *, permanent: bool) -> Plan:
        """Hide a version, or remove a hidden one for good."""
        self._check_writable(subject)
        version = self.version(subject, number, deleted=number != LATEST or permanent)
        if self.state.using(subject, version.number):
            raise ReferencedError(subject, version.number)
        if not permanent:
            if version.deleted:
                raise VersionDeletedError(subject, version.number)
            return Plan([records.version_record(replace(version, deleted=True))], version)
        if not version.deleted:
            raise VersionNotDeletedError(subject, version.number)
        return Plan(self._removals([version]), version)

    def delete_subject(self, subject: str, *, permanent: bool) -> Plan:
        """Hide a subject, or remove a hidden one for good."""
        self._check_writable(subject)
        every = self.versions(subject, deleted=True)
        used = [version for version in every if not version.deleted]
        if not permanent and not used:
            raise SubjectDeletedError(subject)
        if permanent and used:
            raise SubjectNotDeletedError(subject)
        going = every if permanent else used
        for version in going:
            if self.state.using(subject, version.number):
                raise ReferencedError(subject, version.number)
        numbers = [version.number for version in going]
        if permanent:
            return Plan(self._removals(going), numbers)
        settings = []
        if subject in self.state.modes:
            settings.append(records.mode_record(subject, None))
        if subject in self.state.levels:
            settings.append(records.level_record(subject, None))
        return Plan([records.subject_deletion(subject, every[-1].number), *settings], numbers)

    def _removals(self, versions: Iterable[Version]) -> list[StoredRecord]:
        remembered = records.highest_id_record(self.state.highest_id)
        return [remembered, *(records.removal(version) for version in versions)]

    def _find(self, subject: str, wanted: tuple[Schema, Parsed]) -> list[Version]:
        """Versions of a subject that are this schema, deleted ones too, oldest first."""
        schema, parsed = wanted
        return [
            version
            for version in self.state.versions(subject, deleted=True)
            if version.schema.type == schema.type
            and version.schema.references == schema.references
            and (
                version.schema.text == schema.text
                or self._parsed(version.schema).identity == parsed.identity
            )
        ]

    # -- understanding schemas

    def _read(self, schema: Schema, normalize: bool) -> tuple[Schema, Parsed]:
        """A schema that comes from outside, as it is kept."""
        if not schema.text.strip():
            raise InvalidSchemaError("Empty schema")
        references = tuple(self._exact(reference) for reference in schema.references)
        parsed = self._parsed(replace(schema, references=references))
        text = parsed.normalized() if normalize else parsed.text
        kept = Schema(text, schema.type, references)
        return kept, self._parsed(kept)

    def _exact(self, reference: Reference) -> Reference:
        """A reference to the latest version is to the one that is the latest now."""
        try:
            found = self.version(reference.subject, reference.version)
        except (SubjectNotFoundError, VersionNotFoundError) as error:
            raise InvalidSchemaError(
                f"Invalid schema: no schema reference found for subject '{reference.subject}' and "
                f"version {reference.version}"
            ) from error
        return replace(reference, version=found.number)

    def _parsed(self, schema: Schema) -> Parsed:
        texts: dict[str, str] = {}
        self._gather(schema, texts, ())
        return self._parse(schema.type, schema.text, tuple(texts.items()))

    def _gather(self, schema: Schema, texts: dict[str, str], above: tuple[Schema, ...]) -> None:
        """The schemas that one stands on, those first that others of them stand on."""
        if schema in above:
            raise InvalidSchemaError("Invalid schema: its references lead back to it")
        for reference in schema.references:
            version = self.state.subjects.get(reference.subject, {}).get(reference.version)
            if version is None:
                raise InvalidSchemaError(
                    f"Invalid schema: no schema reference found for subject "
                    f"'{reference.subject}' and version {reference.version}"
                )
            if reference.name not in texts:
                self._gather(version.schema, texts, (*above, schema))
                texts[reference.name] = version.schema.text

    # -- settings

    def level(self, subject: str | None, *, inherit: bool = True) -> dict[str, Any]:
        """The compatibility that holds for a subject, or for all that have none of their own."""
        found = self.state.levels.get(subject)
        if found is None and subject is not None and not inherit:
            raise LevelNotSetError(subject)
        if found is None or "compatibilityLevel" not in found:
            inherited = {"compatibilityLevel": DEFAULT_LEVEL} | self.state.levels.get(None, {})
            return inherited | (found or {})
        return found

    def _normalizes(self, subject: str) -> bool:
        return bool(self.level(subject).get("normalize"))

    def set_level(self, subject: str | None, level: str | None, normalize: bool | None) -> Plan:
        """Set what rules hold."""
        wanted: dict[str, Any] = dict(self.state.levels.get(subject, {}))
        if level is not None:
            if level.upper() not in LEVELS:
                names = ", ".join(name.lower() for name in LEVELS)
                raise InvalidLevelError(f"Invalid compatibility level. Valid values are {names}")
            wanted["compatibilityLevel"] = level.upper()
        if normalize is not None:
            wanted["normalize"] = normalize
        return Plan([records.level_record(subject, wanted)], wanted)

    def drop_level(self, subject: str | None) -> Plan:
        """Go back to what holds for all, or to the default."""
        old = self.level(subject, inherit=subject is None)
        return Plan([records.level_record(subject, None)], old)

    def mode(self, subject: str | None, *, inherit: bool = True) -> str:
        """Whether schemas may be registered."""
        found = self.state.modes.get(subject)
        if found is None and subject is not None and not inherit:
            raise ModeNotSetError(subject)
        return found or self.state.modes.get(None, READWRITE)

    def set_mode(self, subject: str | None, mode: str) -> Plan:
        """Allow or forbid to register schemas."""
        if mode.upper() not in MODES:
            raise InvalidModeError(f"Invalid mode. Valid values are {', '.join(MODES)}")
        return Plan([records.mode_record(subject, mode.upper())], mode.upper())

    def drop_mode(self, subject: str) -> Plan:
        """Go back to the mode of all."""
        old = self.mode(subject, inherit=False)
        return Plan([records.mode_record(subject, None)], old)

    def _check_writable(self, subject: str) -> None:
        if self.mode(subject) != READWRITE:
            raise ReadOnlyError(subject)


def _parse(kind: str, text: str, references: tuple[tuple[str, str], ...]) -> Parsed:
    return kinds.kind(kind).parse(text, dict(references))
