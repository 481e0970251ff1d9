"""JSON Schema: jsonschema checks the schemas themselves; what may follow what stands in json_rules."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import jsonschema
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY as DRAFTS
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from penstock.registry.errors import InvalidSchemaError
from penstock.registry.json_rules import Comparison, Place
from penstock.registry.kinds import Parsed


class JsonSchema:
    """See kinds.Parsed."""

    def __init__(self, value: Any, place: Place) -> None:
        self._value = value
        self._place = place

    @property
    def text(self) -> str:
        """The JSON as it was given, without spaces."""
        return json.dumps(self._value, separators=(",", ":"), ensure_ascii=False)

    @property
    def identity(self) -> Hashable:
        """The order of keywords carries no meaning."""
        return self.normalized()

    def normalized(self) -> str:
        """Keywords in alphabetical order."""
        return json.dumps(self._value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def formatted(self, form: str) -> str:
        """There is one form only."""
        return self.text

    def cannot_read(self, writer: Parsed) -> list[str]:
        """Why not all that the writer's schema allows is allowed by this one."""
        assert isinstance(writer, JsonSchema)
        comparison = Comparison()
        try:
            comparison.compare(writer._place, self._place, "#")
        except RecursionError as error:
            raise InvalidSchemaError("Invalid schema: it is nested too deeply") from error
        return comparison.problems


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """See kinds.Kind."""
    try:
        value = json.loads(text)
        if not isinstance(value, dict | bool):
            raise InvalidSchemaError("Invalid schema: it is neither an object nor true or false")
        draft = validator_for(value, default=jsonschema.Draft7Validator)
        # Formats are not looked at: patterns may be in a dialect that Python does not have.
        draft.check_schema(value, format_checker=None)
        registry = DRAFTS.with_resources(
            (name, _resource(json.loads(other))) for name, other in references.items()
        )
        place = _place(value, registry)
        for reference in _refs(value):
            place.resolver.lookup(reference)
    except jsonschema.SchemaError as error:
        raise InvalidSchemaError(f"Invalid schema: {error.message}") from error
    except Unresolvable as error:
        raise InvalidSchemaError(f"Invalid schema: nothing is found at {error.ref}") from error
    except (ValueError, AttributeError) as error:
        raise InvalidSchemaError(f"Invalid schema: {error}") from error
    except RecursionError as error:
        raise InvalidSchemaError("Invalid schema: it is nested too deeply") from error
    return JsonSchema(value, place)


def _resource(value: Any) -> Resource[Any]:
    return Resource.from_contents(value, default_specification=DRAFT7)


def _place(value: Any, registry: Registry[Any]) -> Place:
    base = value.get("$id", "") if isinstance(value, dict) else ""
    whole = registry.with_resource(base, _resource(value))
    return Place(value, whole.resolver(base))


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str):
            yield reference
        # What stands below another $id is relative to that; it is looked at when it is used.
        inner = (v for v in value.values() if not (isinstance(v, dict) and "$id" in v))
        for item in inner:
            yield from _refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _refs(item)
