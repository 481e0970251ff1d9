"""The types of schemas. Each is loaded when the first schema of it comes: the libraries are optional."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Mapping
from typing import Final, Protocol, cast

from penstock.registry.errors import InvalidSchemaError, MissingLibraryError


class Parsed(Protocol):
    """A schema that was understood."""

    @property
    def text(self) -> str:
        """What is kept: the schema as it was given, without what carries no meaning."""
        ...

    @property
    def identity(self) -> Hashable:
        """The same for schemas of one type that differ in their spelling only."""
        ...

    def normalized(self) -> str:
        """One spelling for all that mean the same."""
        ...

    def formatted(self, form: str) -> str:
        """The schema in another form that clients may ask for."""
        ...

    def cannot_read(self, writer: Parsed) -> list[str]:
        """Why a reader with this schema does not understand what a writer with the other writes."""
        ...


class Kind(Protocol):
    """What reads one type of schema."""

    def parse(self, text: str, references: Mapping[str, str]) -> Parsed:
        """Understand a schema.

        Args:
            text: the schema.
            references: texts of the schemas it stands on, by the names it has for them; those that
                others of them stand on come first.

        Raises:
            InvalidSchemaError: it makes no sense.
        """
        ...


_MODULES: Final = {
    "AVRO": "penstock.registry.avro_schema",
    "JSON": "penstock.registry.json_schema",
    "PROTOBUF": "penstock.registry.protobuf_schema",
}
NAMES: Final = tuple(_MODULES)


def kind(name: str) -> Kind:
    """What reads a type of schema.

    Raises:
        InvalidSchemaError: there is no such type.
        MissingLibraryError: its library is not installed.
    """
    module = _MODULES.get(name)
    if module is None:
        raise InvalidSchemaError(f"Invalid schema type {name}")
    try:
        return cast(Kind, importlib.import_module(module))
    except ModuleNotFoundError as error:
        raise MissingLibraryError(name) from error
