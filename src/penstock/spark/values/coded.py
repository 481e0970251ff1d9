"""Values in Avro or Protobuf: what they are read as, chosen once on the driver and sent to the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructField, StructType

from penstock.client.schemas import Registry, Schema
from penstock.errors import NotFoundError, UsageError
from penstock.spark.options import READ, SourceOptions, ValueFormat
from penstock.spark.values import avro_schema
from penstock.spark.values.avro import AvroValues, parse_registered
from penstock.spark.values.decoded import Decoded


@dataclass(frozen=True, slots=True)
class CodedValues:
    """See the module."""

    format: ValueFormat
    registry: Registry | None
    reader: Schema | None
    """What values are read as; None: as they were written."""
    message: str
    """Of a Protobuf schema; nothing: the only one."""
    own: bool
    """Whether the schema is the user's, and not the newest of the registry."""

    @classmethod
    def of(cls, options: SourceOptions) -> CodedValues | None:
        """What options ask for; None if values are neither Avro nor Protobuf.

        Raises:
            UsageError: the schema cannot be read, or nothing says what values are.
            UnavailableError: the registry does not answer.
        """
        form = options.value_format
        if form is not ValueFormat.AVRO and form is not ValueFormat.PROTOBUF:
            return None
        chosen = cls(
            format=form,
            registry=options.registry,
            reader=_reader(options, form),
            message=options.value_message,
            own=bool(options.value_schema),
        )
        chosen._read_as()  # says now what cannot be read
        return chosen

    def columns(self) -> StructType:
        """A column for each field.

        Raises:
            UsageError: a field is of a type that is none of a column, or there is no one schema.
        """
        if self.reader is None:
            cause = "there is no schema of columns, and none that all values are read as"
            raise UsageError(READ, cause, "give a schema, or set valueSchema")
        if self.format is ValueFormat.AVRO:
            return avro_schema.struct_of(self._read_as())
        self._check_kind(self.reader)
        message = _protobuf().compiled(self.reader).named(self.message)
        found: StructType = _protobuf().struct_of(message)
        return found

    def decoder(self, fields: Sequence[StructField]) -> Callable[[Iterable[bytes | None]], Decoded]:
        """What reads values into columns."""
        if self.format is ValueFormat.AVRO:
            return AvroValues(fields, self.registry, self._read_as()).decode
        from penstock.spark.values.protobuf import ProtobufValues  # noqa: PLC0415 -- see _protobuf

        reader = self._read_as()
        return ProtobufValues(fields, self.registry, reader, any_name=self.own).decode

    def _read_as(self) -> Any:
        """The schema in the form of the library that reads it."""
        if self.reader is None:
            return None
        self._check_kind(self.reader)
        if self.format is ValueFormat.AVRO:
            return parse_registered(self.reader)
        file = _protobuf().compiled(self.reader)
        # Where a registry's schema has several messages, each value says which one it is.
        told = self.own or self.message or file.single
        return file.named(self.message) if told else None

    def _check_kind(self, schema: Schema) -> None:
        if schema.kind != self.format.value.upper():
            cause = f"valueFormat is {self.format.value}, but the schema is {schema.kind}"
            raise UsageError(READ, cause, f"set valueFormat to {schema.kind.lower()}")


def _reader(options: SourceOptions, form: ValueFormat) -> Schema | None:
    if options.value_schema:
        return Schema(form.value.upper(), options.value_schema, ())
    if options.registry is None:
        cause = f"nothing says what the values in {form.value} are"
        raise UsageError(READ, cause, "set schemaRegistryUrl or valueSchema")
    if len(options.topics) != 1:
        return None
    try:
        return options.registry.latest(f"{options.topics[0]}-value")
    except NotFoundError:
        return None  # it is named by another rule than that of the topic


def _protobuf() -> Any:
    """Imported on first use: protoc is installed for those who want it."""
    try:
        from penstock.spark.values import protobuf_schema  # noqa: PLC0415
    except ModuleNotFoundError as error:
        cause = f"Protobuf needs {error.name}"
        raise UsageError(READ, cause, "pip install 'penstock[registry,spark]'") from error
    return protobuf_schema
