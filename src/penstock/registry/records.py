"""The records of the topic `_schemas`, as Confluent's registry writes and reads them.

    key                                                                     value
    {"keytype":"SCHEMA","subject":"s","version":1,"magic":1}                the version; none: removed
    {"keytype":"DELETE_SUBJECT","subject":"s","magic":0}                    versions up to it are deleted
    {"keytype":"CONFIG","subject":null or "s","magic":0}                    compatibility level
    {"keytype":"MODE","subject":null or "s","magic":0}                      READWRITE or READONLY
    {"keytype":"NOOP","magic":0}                                            {"maxId":7}

Confluent's registry does not look at the value of a NOOP. Here it remembers the highest id given, which
would be forgotten, and given again, once compaction has removed the last trace of a deleted schema.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from penstock.registry.schema import AVRO, Reference, Schema, Version


class StoredRecord(NamedTuple):
    """A key, and a value or nothing."""

    key: dict[str, Any]
    value: dict[str, Any] | None

    def encode(self) -> tuple[bytes, bytes | None]:
        """As bytes for the log."""
        return _dump(self.key), None if self.value is None else _dump(self.value)


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode(key: bytes | None, value: bytes | None) -> StoredRecord | None:
    """Read a record; None if it is none of the registry's."""
    try:
        head = json.loads(key or b"")
        body = json.loads(value) if value else None
    except ValueError:
        return None
    whole = isinstance(head, dict) and (body is None or isinstance(body, dict))
    return StoredRecord(head, body) if whole else None


# -- building


def _version_key(subject: str, number: int) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": subject, "version": number, "magic": 1}


def version_record(version: Version) -> StoredRecord:
    """A version comes, or changes whether it is deleted."""
    value = version_json(version) | {"deleted": version.deleted}
    return StoredRecord(_version_key(version.subject, version.number), value)


def removal(version: Version) -> StoredRecord:
    """A version goes for good."""
    return StoredRecord(_version_key(version.subject, version.number), None)


def subject_deletion(subject: str, last: int) -> StoredRecord:
    """All versions of a subject, up to the last, are deleted."""
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return StoredRecord(key, {"subject": subject, "version": last})


def level_record(subject: str | None, level: dict[str, Any] | None) -> StoredRecord:
    """A compatibility level is set, or taken back."""
    value = None if level is None else {"subject": subject} | level
    return StoredRecord({"keytype": "CONFIG", "subject": subject, "magic": 0}, value)


def mode_record(subject: str | None, mode: str | None) -> StoredRecord:
    """A mode is set, or taken back."""
    value = None if mode is None else {"subject": subject, "mode": mode}
    return StoredRecord({"keytype": "MODE", "subject": subject, "magic": 0}, value)


def highest_id_record(highest: int) -> StoredRecord:
    """Remembers an id whose schema goes for good."""
    return StoredRecord({"keytype": "NOOP", "magic": 0}, {"maxId": highest})


# -- the parts that records and answers share


def version_json(version: Version) -> dict[str, Any]:
    """A version with its schema, in Confluent's names."""
    place = {"subject": version.subject, "version": version.number, "id": version.id}
    return place | schema_json(version.schema)


def schema_json(schema: Schema) -> dict[str, Any]:
    """A schema in Confluent's names; AVRO, the oldest type, goes without saying."""
    value: dict[str, Any] = {}
    if schema.type != AVRO:
        value["schemaType"] = schema.type
    if schema.references:
        value["references"] = [
            {"name": r.name, "subject": r.subject, "version": r.version} for r in schema.references
        ]
    return value | {"schema": schema.text}


def read_version(value: dict[str, Any]) -> Version:
    """The version that a record holds; KeyError or TypeError if it holds none."""
    references = tuple(
        Reference(r["name"], r["subject"], int(r["version"])) for r in value.get("references") or ()
    )
    return Version(
        subject=value["subject"],
        number=int(value["version"]),
        id=int(value["id"]),
        schema=Schema(value["schema"], value.get("schemaType") or AVRO, references),
        deleted=bool(value.get("deleted")),
    )
