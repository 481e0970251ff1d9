"""Protobuf schemas: messages out of their text, and the columns that they stand for."""

from __future__ import annotations

import base64
import functools
import re
import tempfile
from collections.abc import Mapping
from importlib import import_module, resources
from pathlib import Path, PurePosixPath
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import DecodeError
from grpc_tools import protoc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.client.schemas import Schema
from penstock.errors import UsageError
from penstock.spark.options import READ

TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_OF_GOOGLE: Final = re.compile(r"google/protobuf/(\w+)\.proto")
_MAIN: Final = "penstock-value.proto"
_PLAIN: Final[dict[int, DataType]] = {
    Field.CPPTYPE_BOOL: BooleanType(),
    Field.CPPTYPE_INT32: IntegerType(),
    Field.CPPTYPE_UINT32: LongType(),
    Field.CPPTYPE_INT64: LongType(),
    Field.CPPTYPE_UINT64: DecimalType(20, 0),
    Field.CPPTYPE_FLOAT: FloatType(),
    Field.CPPTYPE_DOUBLE: DoubleType(),
    Field.CPPTYPE_ENUM: StringType(),
}


class File:
    """The messages of one schema."""

    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor

    @property
    def single(self) -> bool:
        """Whether there is just one message."""
        return len(self._descriptor.message_types_by_name) == 1

    def named(self, name: str) -> Any:
        """The class of a message: by its name, or the only one.

        Raises:
            UsageError: there is no such message, or it is not clear which.
        """
        messages = self._descriptor.message_types_by_name
        found = next(iter(messages.values())) if not name and self.single else messages.get(name)
        if found is None:
            cause = "the Protobuf schema has " + (
                f"no message {name}" if name else "several messages"
            )
            raise UsageError(READ, cause, f"set valueMessage to one of {', '.join(messages)}")
        return message_factory.GetMessageClass(found)

    def at(self, path: tuple[int, ...]) -> Any:
        """The class of the message that a value names by indexes.

        Raises:
            IndexError: there is no such message.
        """
        found = list(self._descriptor.message_types_by_name.values())[path[0]]
        for index in path[1:]:
            found = found.nested_types[index]
        return message_factory.GetMessageClass(found)


@functools.lru_cache(maxsize=1000)
def compiled(schema: Schema) -> File:
    """A schema with what it imports.

    Raises:
        UsageError: protoc cannot read it.
    """
    texts = {**dict(schema.references), _MAIN: schema.text}
    pool = descriptor_pool.DescriptorPool()
    ready = {name: found for name, text in texts.items() if (found := _serialized(name, text))}
    if len(ready) < len(texts):
        if ready:
            cause = "some files of the Protobuf schema are text, and others are not"
            raise UsageError(READ, cause, "register all of them in the same form")
        ready = {file.name: file for file in _compile(texts).file}
    for file in ready.values():
        _add(pool, file, ready)
    return File(pool.FindFileByName(_MAIN))


def _serialized(name: str, text: str) -> Any:
    """The descriptor that a client has registered in place of a text, as confluent-kafka does."""
    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None
    found.name = name
    return found


def _add(pool: Any, file: Any, ready: Mapping[str, Any]) -> None:
    """Add a file after those that it imports, of which Google's own come with the library."""
    try:
        pool.FindFileByName(file.name)
    except KeyError:
        for name in file.dependency:
            if name in ready:
                _add(pool, ready[name], ready)
            elif found := _OF_GOOGLE.fullmatch(name):
                descriptor = import_module(f"google.protobuf.{found[1]}_pb2").DESCRIPTOR
                known = descriptor_pb2.FileDescriptorProto()
                descriptor.CopyToProto(known)
                _add(pool, known, ready)
        pool.Add(file)


def _compile(texts: Mapping[str, str]) -> Any:
    with tempfile.TemporaryDirectory(prefix="penstock-protoc-") as folder:
        for name, text in texts.items():
            parts = PurePosixPath(name).parts
            if not parts or name.startswith("/") or ".." in parts:
                raise UsageError(READ, f"{name!r} cannot be the name of a file", "rename it")
            path = Path(folder).joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        made = Path(folder) / "set"
        status = protoc.main(
            [
                "protoc",
                f"-I{folder}",
                f"-I{resources.files('grpc_tools') / '_proto'}",
                "--include_imports",
                f"--descriptor_set_out={made}",
                _MAIN,
            ]
        )
        if status:
            raise UsageError(READ, "protoc cannot read the Protobuf schema", "see its own message")
        return descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())


def struct_of(message: Any) -> StructType:
    """The columns of a message.

    Raises:
        UsageError: it contains itself.
    """
    return _struct(message.DESCRIPTOR, ())


def _struct(descriptor: Any, within: tuple[str, ...]) -> StructType:
    if descriptor.full_name in within:
        cause = f"{descriptor.full_name} contains itself"
        raise UsageError(READ, cause, "give a schema of columns that leaves it out")
    inner = (*within, descriptor.full_name)
    return StructType([StructField(one.name, _type(one, inner)) for one in descriptor.fields])


def _type(field: Any, within: tuple[str, ...]) -> DataType:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = message.fields_by_name["key"], message.fields_by_name["value"]
        return MapType(_single(key, within), _single(value, within))
    single = _single(field, within)
    return ArrayType(single) if field.is_repeated else single


def _single(field: Any, within: tuple[str, ...]) -> DataType:
    if field.message_type is None:
        if field.cpp_type == Field.CPPTYPE_STRING:
            return BinaryType() if field.type == Field.TYPE_BYTES else StringType()
        return _PLAIN[field.cpp_type]
    name = field.message_type.full_name
    if name == TIMESTAMP:
        return TimestampType()
    if name in WRAPPERS:
        return _single(field.message_type.fields_by_name["value"], within)
    return _struct(field.message_type, within)
