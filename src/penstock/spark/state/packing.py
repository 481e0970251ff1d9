"""Takes rows to the tasks of their buckets, packed: Spark moves few large values, not many small ones.

A task packs its rows for each bucket into one value, in Arrow's own format, and Spark moves that. To
take rows out of Arrow and put them in again would take longer than all that is done with most of them.
One more for each bucket has nothing in it, so that each bucket runs in every batch, also in one without
rows, which is there because time has moved on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from penstock.spark.state.sorted_rows import HASH

BUCKET: Final = "_bucket"
_ROWS: Final = "_rows"
PACKED: Final = StructType([StructField(BUCKET, IntegerType()), StructField(_ROWS, BinaryType())])
_ARROW: Final = pa.schema([(BUCKET, pa.int32()), (_ROWS, pa.binary())])


class Packing:
    """What a task does before rows are moved. The schema is that of the rows, with their hashes."""

    def __init__(self, schema: pa.Schema, buckets: int) -> None:
        self._schema = schema
        self._buckets = buckets

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pack the rows of a task."""
        for batch in batches:
            # Spark says of a column that it has no nulls, or has a time zone, as it knows it.
            pairs = zip(batch.columns, self._schema.types, strict=True)
            columns = [column.cast(kind) for column, kind in pairs]
            yield self._packed(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        every = pa.array(range(self._buckets), pa.int32())
        nothing = pa.nulls(self._buckets, pa.binary())
        yield pa.RecordBatch.from_arrays([every, nothing], schema=_ARROW)

    def _packed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        buckets = rows[HASH].to_numpy() % self._buckets
        order = np.argsort(buckets, kind="stable")
        rows = rows.take(pa.array(order))
        found, begins, counts = np.unique(buckets[order], return_index=True, return_counts=True)
        parts = zip(begins, counts, strict=True)
        values = [_bytes(rows.slice(begin, count)) for begin, count in parts]
        columns = [pa.array(found, pa.int32()), pa.array(values, pa.binary())]
        return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def unpacked(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> dict[int, pa.Table]:
    """The rows of each bucket that a task was given, in the order of the buckets."""
    found: dict[int, list[pa.Table]] = {}
    for batch in batches:
        for bucket, packed in zip(batch[BUCKET].to_pylist(), batch[_ROWS], strict=True):
            tables = found.setdefault(bucket, [schema.empty_table()])
            if packed.is_valid:
                tables.append(pa.ipc.open_stream(packed.as_buffer()).read_all())
    return {bucket: pa.concat_tables(found[bucket]) for bucket in sorted(found)}


def _bytes(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content
