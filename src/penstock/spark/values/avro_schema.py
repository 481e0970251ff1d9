"""The columns that an Avro schema stands for."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import UsageError
from penstock.spark.options import READ

_PLAIN: Final[dict[str, DataType]] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "fixed": BinaryType(),
    "enum": StringType(),
}
_LOGICAL: Final[dict[str, DataType]] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
    "uuid": StringType(),
}


def struct_of(schema: Any) -> StructType:
    """The columns of a record, as fastavro has parsed it.

    Raises:
        UsageError: it has a type that is no type of a column.
    """
    found = _Types().of("value", schema)
    if not isinstance(found, StructType):
        raise UsageError(READ, "the Avro schema is not of a record", "give a schema of columns")
    return found


class _Types:
    """Remembers records that have a name, which may be used again."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []

    def of(self, path: str, schema: Any) -> DataType:
        if isinstance(schema, list):
            return self._union(path, schema)
        if isinstance(schema, str):
            return _PLAIN[schema] if schema in _PLAIN else self._again(path, schema)
        kind = schema["type"]
        if "name" in schema and isinstance(kind, str) and kind in ("record", "enum", "fixed"):
            self._named[schema["name"]] = schema
        logical = schema.get("logicalType")
        if logical == "decimal":
            return DecimalType(schema["precision"], schema.get("scale", 0))
        return _LOGICAL[logical] if logical in _LOGICAL else self._nested(path, kind, schema)

    def _nested(self, path: str, kind: Any, schema: Any) -> DataType:
        if kind == "record":
            return self._record(path, schema)
        if kind == "array":
            return ArrayType(self.of(path, schema["items"]))
        if kind == "map":
            return MapType(StringType(), self.of(path, schema["values"]))
        return self.of(path, kind)

    def _record(self, path: str, schema: Any) -> StructType:
        self._open.append(schema["name"])
        fields = [
            StructField(one["name"], self.of(f"{path}.{one['name']}", one["type"]))
            for one in schema["fields"]
        ]
        self._open.pop()
        return StructType(fields)

    def _union(self, path: str, branches: list[Any]) -> DataType:
        left = [one for one in branches if one != "null"]
        if len(left) == 1:
            return self.of(path, left[0])
        cause = f"{path} is a union of several types"
        raise UsageError(READ, cause, "give a schema of columns that leaves it out")

    def _again(self, path: str, name: str) -> DataType:
        if name in self._open or name not in self._named:
            cause = f"{path} is a {name} that contains itself, or is not known"
            raise UsageError(READ, cause, "give a schema of columns that leaves it out")
        return self.of(path, self._named[name])
