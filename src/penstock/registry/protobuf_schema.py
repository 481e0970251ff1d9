"""Protobuf schemas: protoc compiles them; what may follow what stands in protobuf_rules.

A schema comes as the text of a .proto file or, from Confluent's client for Python among others, as a
compiled FileDescriptorProto in base 64. Both are kept as they came; both are the same schema if they
compile to the same.
"""

from __future__ import annotations

import ast
import base64
import binascii
import re
import tempfile
from collections.abc import Hashable, Mapping
from importlib import import_module, resources
from pathlib import Path, PurePosixPath
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from grpc_tools import _protoc_compiler as protoc

from penstock.registry.errors import InvalidSchemaError
from penstock.registry.kinds import Parsed
from penstock.registry.protobuf_rules import Comparison, Types

# What Confluent's registry calls a file that has no name.
_UNNAMED: Final = "default"
_WELL_KNOWN: Final = re.compile(r"google/protobuf/(\w+)\.proto")
_SYNTAX: Final = re.compile(r"""\b(syntax|edition)\s*=\s*["']""")
_DESCRIPTOR: Final = re.compile(rb"AddSerializedFile\((b'.*')\)$", re.MULTILINE)


class ProtobufSchema:
    """See kinds.Parsed."""

    def __init__(self, text: str, file: Any, imported: list[Any]) -> None:
        self._text = text
        self._file = file
        self._types = Types(file, imported)

    @property
    def text(self) -> str:
        """As it was given."""
        return self._text

    @property
    def identity(self) -> Hashable:
        """What it compiles to."""
        return bytes(self._bare().SerializeToString(deterministic=True))

    def _bare(self) -> Any:
        """The descriptor without what other spellings may have, or not."""
        bare = FileDescriptorProto()
        bare.CopyFrom(self._file)
        for name in ("name", "source_code_info"):
            bare.ClearField(name)
        if bare.syntax == "proto2":
            bare.ClearField("syntax")
        messages = list(bare.message_type)
        while messages:
            message = messages.pop()
            messages += message.nested_type
            for field in message.field:
                field.ClearField("json_name")
        return bare

    def normalized(self) -> str:
        """A text stays as it is: its compiled form is what is compared."""
        return self._text

    def formatted(self, form: str) -> str:
        """`serialized`: compiled, in base 64."""
        if form != "serialized":
            return self._text
        return base64.b64encode(self._file.SerializeToString()).decode()

    def cannot_read(self, writer: Parsed) -> list[str]:
        """Why this schema does not understand what was written with the other."""
        assert isinstance(writer, ProtobufSchema)
        comparison = Comparison(writer._types, self._types)
        comparison.files()
        return comparison.problems


def parse(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """See kinds.Kind."""
    pool = DescriptorPool()
    texts = {name: other for name, other in references.items() if _descriptor(other) is None}
    compiled = references.keys() - texts.keys()
    if compiled and _descriptor(text) is None:
        raise InvalidSchemaError(
            f"Invalid schema: it is source and refers to {', '.join(sorted(compiled))}, which was "
            "registered compiled; register that as source, or this one compiled"
        )
    imported = [_built(pool, name, other, texts) for name, other in references.items()]
    return ProtobufSchema(text.strip(), _built(pool, "", text, texts), imported)


def _built(pool: Any, name: str, text: str, texts: Mapping[str, str]) -> Any:
    """A file's descriptor with all names in it resolved, which makes sure that they can be."""
    file = _descriptor(text) or _compiled(name or _UNNAMED, text, texts)
    if name:
        file.name = name
    for dependency in file.dependency:
        _add_well_known(pool, dependency)
    try:
        pool.AddSerializedFile(file.SerializeToString())
        resolved = FileDescriptorProto()
        pool.FindFileByName(file.name).CopyToProto(resolved)
    except (TypeError, KeyError) as error:
        raise InvalidSchemaError(f"Invalid schema: {error}") from error
    return resolved


def _descriptor(text: str) -> Any:
    """The compiled schema that a text in base 64 stands for; None if it is source."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    if not (file.message_type or file.enum_type):
        return None  # a word that happens to be base 64
    file.name = file.name or _UNNAMED
    return file


def _add_well_known(pool: Any, name: str) -> None:
    found = _WELL_KNOWN.fullmatch(name)
    if found is None:
        return
    try:
        module = import_module(f"google.protobuf.{found[1]}_pb2")
    except ModuleNotFoundError:
        return
    for dependency in module.DESCRIPTOR.dependencies:
        _add_well_known(pool, dependency.name)
    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def _compiled(name: str, text: str, texts: Mapping[str, str]) -> Any:
    with tempfile.TemporaryDirectory(prefix="penstock-protoc-") as folder:
        for other, source in {**texts, name: text}.items():
            _write(Path(folder), other, _with_syntax(source))
        includes = [folder, str(resources.files("grpc_tools") / "_proto")]
        try:
            made = protoc.get_protos(name.encode(), [path.encode() for path in includes])
        except protoc.ProtocErrors as error:
            raise InvalidSchemaError(f"Invalid schema: {_told(error)}") from error
    # protoc as a library gives a Python module for each file, the wanted one last, and in it the
    # descriptor as a literal.
    found = _DESCRIPTOR.search(made[-1][1])
    assert found is not None, "protoc writes its modules in another form now"
    return FileDescriptorProto.FromString(ast.literal_eval(found[1].decode()))


def _with_syntax(source: str) -> str:
    """Say what goes without saying; otherwise protoc says so, on standard error."""
    return source if _SYNTAX.search(source) else f'syntax = "proto2"; {source}'


def _write(folder: Path, name: str, source: str) -> None:
    """Put a file where protoc finds it. The name comes from outside: it must not lead elsewhere."""
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or not parts or "\0" in name:
        raise InvalidSchemaError(f"Invalid schema: {name!r} cannot be the name of a file")
    path = folder.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8", newline="")
    except (OSError, ValueError) as error:
        raise InvalidSchemaError(f"Invalid schema: no file {name!r}: {error}") from error


def _told(error: Any) -> str:
    """What protoc found wrong, with lines and columns counted from 1."""
    lines = [
        f"{e.filename.decode()}:{e.line + 1}:{e.column + 1}: {e.message.decode()}"
        for e in error.args[0]
    ]
    return "; ".join(lines)
