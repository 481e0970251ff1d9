"""What the registry refuses, one class per reason, so that a protocol can give each its own code.

RegistryError                     its text is what the client is told, in Confluent's words
├── SubjectNotFoundError, VersionNotFoundError, SchemaNotFoundError
├── SubjectDeletedError, SubjectNotDeletedError, VersionDeletedError, VersionNotDeletedError
├── LevelNotSetError, ModeNotSetError
├── IncompatibleError
├── InvalidSchemaError, InvalidVersionError, InvalidLevelError, InvalidModeError
├── ReadOnlyError, ReferencedError
├── UnsupportedError              something that Confluent's registry has, and this one does not
└── MissingLibraryError           the library for this type of schema is not installed
"""

from __future__ import annotations


class RegistryError(Exception):
    """Base of all."""


class SubjectNotFoundError(RegistryError):
    """No such subject."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' not found.")


class VersionNotFoundError(RegistryError):
    """The subject has no such version."""

    def __init__(self, version: int | str) -> None:
        super().__init__(f"Version {version} not found.")


class SchemaNotFoundError(RegistryError):
    """No such schema, under that subject or with that id."""

    def __init__(self, schema_id: int | None = None) -> None:
        super().__init__(
            "Schema not found" if schema_id is None else f"Schema {schema_id} not found"
        )


class SubjectDeletedError(RegistryError):
    """It was deleted before, and is to be deleted again."""

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
        )


class SubjectNotDeletedError(RegistryError):
    """It is to be removed for good, and is still in use."""

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"Subject '{subject}' was not deleted first before being permanently deleted"
        )


class VersionDeletedError(RegistryError):
    """It was deleted before, and is to be deleted again."""

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject '{subject}' Version {version} was soft deleted. "
            "Set permanent=true to delete permanently"
        )


class VersionNotDeletedError(RegistryError):
    """It is to be removed for good, and is still in use."""

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject '{subject}' Version {version} was not deleted first before being "
            "permanently deleted"
        )


class LevelNotSetError(RegistryError):
    """The subject has no level of its own."""

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"Subject '{subject}' does not have subject-level compatibility configured"
        )


class ModeNotSetError(RegistryError):
    """The subject has no mode of its own."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' does not have subject-level mode configured")


class IncompatibleError(RegistryError):
    """The schema breaks what readers or writers of the subject rely on."""

    def __init__(self, subject: str, problems: list[str]) -> None:
        details = ", ".join(problems)
        super().__init__(
            "Schema being registered is incompatible with an earlier schema for subject "
            f'"{subject}", details: [{details}]'
        )


class InvalidSchemaError(RegistryError):
    """The text is not a schema."""


class InvalidVersionError(RegistryError):
    """Not the number of a version."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"The specified version '{text}' is not a valid version id. Allowed values are between "
            '[1, 2^31-1] and the string "latest"'
        )


class InvalidLevelError(RegistryError):
    """Not a compatibility level."""


class InvalidModeError(RegistryError):
    """Not a mode."""


class ReadOnlyError(RegistryError):
    """Nothing may be registered now."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject {subject} is in read-only mode")


class ReferencedError(RegistryError):
    """Other schemas stand on this one."""

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            "One or more references exist to the schema "
            f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}."
        )


class UnsupportedError(RegistryError):
    """Not available here; refused rather than ignored."""


class MissingLibraryError(RegistryError):
    """The optional libraries are not installed."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"{kind} schemas need libraries that are not installed: "
            "run `pip install 'penstock[registry]'` and start the server again"
        )
