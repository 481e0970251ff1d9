"""What the registry keeps: a schema, where it stands, and what it refers to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AVRO: Final = "AVRO"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses, and the name it uses for it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it was registered."""

    text: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """A schema's place in a subject."""

    subject: str
    number: int
    id: int
    schema: Schema
    deleted: bool = False
    """Hidden from new users; those who know its id may still read with it."""
