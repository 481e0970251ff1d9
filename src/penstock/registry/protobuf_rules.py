"""When one Protobuf schema may follow another. Problems have the names that Confluent's registry uses.

A problem: a message, a required field or a member of a oneof goes; a required field comes; fields that
stood alone move together into a oneof, or one into a oneof that was there; a field's type changes to one
that is encoded differently; a number becomes repeated or stops being so. All else is allowed: names are
not sent, and readers skip fields that they do not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

# Scalar types that can be read as one another, see "Updating A Message Type" in Protobuf's manual.
_ENCODINGS: Final = (
    ("number", (Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64)),
    ("number", (Field.TYPE_BOOL, Field.TYPE_ENUM)),
    ("signed number", (Field.TYPE_SINT32, Field.TYPE_SINT64)),
    ("text", (Field.TYPE_STRING, Field.TYPE_BYTES)),
    ("fixed32", (Field.TYPE_FIXED32, Field.TYPE_SFIXED32)),
    ("fixed64", (Field.TYPE_FIXED64, Field.TYPE_SFIXED64)),
    ("float", (Field.TYPE_FLOAT,)),
    ("double", (Field.TYPE_DOUBLE,)),
)
_ENCODING: Final = {kind: name for name, kinds in _ENCODINGS for kind in kinds}


class Types:
    """The messages of a file and of what it imports, by the names that fields call them."""

    def __init__(self, file: Any, imported: Iterable[Any]) -> None:
        self.file = file
        self._messages: dict[str, tuple[Any, str]] = {}
        for each in (*imported, file):
            prefix = f".{each.package}" if each.package else ""
            self._add(each.message_type, prefix, prefix)

    def _add(self, messages: Iterable[Any], prefix: str, package: str) -> None:
        for message in messages:
            name = f"{prefix}.{message.name}"
            self._messages[name] = (message, name.removeprefix(package))
            self._add(message.nested_type, name, package)

    def message(self, name: str) -> Any | None:
        """A message; None for those that every schema has, as google.protobuf.Timestamp."""
        return self._messages.get(name, (None, ""))[0]

    def local_name(self, name: str) -> str:
        """A message's name without the package, which may change."""
        return self._messages.get(name, (None, name))[1]

    def map_entry(self, field: Any) -> Any | None:
        """The pair that a map consists of, if the field is one."""
        message = self.message(field.type_name) if field.type == Field.TYPE_MESSAGE else None
        return message if message is not None and message.options.map_entry else None


class Comparison:
    """Compares an old with a new schema, and collects what is wrong."""

    def __init__(self, old: Types, new: Types) -> None:
        self.problems: list[str] = []
        self._old = old
        self._new = new
        self._seen: set[tuple[int, int]] = set()

    def files(self) -> None:
        """Compare all."""
        self._messages(self._old.file.message_type, self._new.file.message_type, "#")

    def _add(self, name: str, path: str) -> None:
        problem = f"{name} at {path}"
        if problem not in self.problems:
            self.problems.append(problem)

    def _messages(self, old: Iterable[Any], new: Iterable[Any], path: str) -> None:
        after = {message.name: message for message in new}
        for message in old:
            if message.options.map_entry:
                continue  # compared where the map is used
            if message.name not in after:
                self._add("MESSAGE_REMOVED", f"{path}/{message.name}")
            else:
                self._message(message, after[message.name], f"{path}/{message.name}")

    def _message(self, old: Any, new: Any, path: str) -> None:
        if (id(old), id(new)) in self._seen:
            return
        self._seen.add((id(old), id(new)))
        before = {field.number: field for field in old.field}
        after = {field.number: field for field in new.field}
        for number in sorted(before.keys() | after.keys()):
            where = f"{path}/{number}"
            if number not in after:
                if before[number].label == Field.LABEL_REQUIRED:
                    self._add("REQUIRED_FIELD_REMOVED", where)
            elif number not in before:
                if after[number].label == Field.LABEL_REQUIRED:
                    self._add("REQUIRED_FIELD_ADDED", where)
            else:
                self._field(before[number], after[number], where)
        self._oneofs(old, new, path)
        self._messages(old.nested_type, new.nested_type, path)

    # -- oneofs

    def _oneofs(self, old: Any, new: Any, path: str) -> None:
        before, after = _oneofs(old), _oneofs(new)
        alone = {field.number for field in old.field} - set().union(*before.values())
        together = set().union(*before.values())
        for name, members in after.items():
            moved = len(members & alone)
            if moved > 1:
                self._add("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{name}")
            elif moved == 1 and members & together:
                self._add("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{name}")
        for name, members in before.items():
            for number in sorted(members - after.get(name, members)):
                self._add("ONEOF_FIELD_REMOVED", f"{path}/{name}/{number}")

    # -- fields

    def _field(self, old: Any, new: Any, path: str) -> None:
        was, now = self._old.map_entry(old), self._new.map_entry(new)
        if was is not None and now is not None:
            for one, other in zip(was.field, now.field, strict=True):
                self._field(one, other, path)
            return
        if (was is None) != (now is None) or _is_message(old) != _is_message(new):
            self._add("FIELD_KIND_CHANGED", path)
        elif _is_message(old):
            self._message_field(old, new, path)
        elif _ENCODING[old.type] != _ENCODING[new.type]:
            self._add("FIELD_SCALAR_KIND_CHANGED", path)
        elif _ENCODING[old.type] != "text" and _is_repeated(old) != _is_repeated(new):
            self._add("FIELD_NUMERIC_LABEL_CHANGED", path)

    def _message_field(self, old: Any, new: Any, path: str) -> None:
        if self._old.local_name(old.type_name) != self._new.local_name(new.type_name):
            self._add("FIELD_NAMED_TYPE_CHANGED", path)
            return
        was, now = self._old.message(old.type_name), self._new.message(new.type_name)
        if was is not None and now is not None:
            self._message(was, now, f"#{self._old.local_name(old.type_name).replace('.', '/')}")


def _oneofs(message: Any) -> dict[str, set[int]]:
    """Members of each oneof. Those that only stand for `optional` in proto3 do not count."""
    found: dict[str, set[int]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            found.setdefault(message.oneof_decl[field.oneof_index].name, set()).add(field.number)
    return found


def _is_message(field: Any) -> bool:
    return field.type in (Field.TYPE_MESSAGE, Field.TYPE_GROUP)


def _is_repeated(field: Any) -> bool:
    return bool(field.label == Field.LABEL_REPEATED)
