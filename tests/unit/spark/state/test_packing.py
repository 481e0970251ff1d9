"""Rows on their way to their buckets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.spark.state.packing import Packing, unpacked
from penstock.spark.state.sorted_rows import HASH

SCHEMA = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", "UTC")), (HASH, pa.int64())])
BUCKETS = 3


def batch(hashes: list[int]) -> pa.RecordBatch:
    names = pa.array([None if one % 5 == 0 else f"user {one}" for one in hashes])
    times = pa.array(np.arange(len(hashes)), pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays([names, times, pa.array(hashes, pa.int64())], schema=SCHEMA)


def moved(*tasks: list[pa.RecordBatch]) -> dict[int, pa.Table]:
    """What all buckets get of what some tasks read."""
    packed = [one for task in tasks for one in Packing(SCHEMA, BUCKETS)(iter(task))]
    return unpacked(iter(packed), SCHEMA)


def test_every_row_comes_to_its_bucket_in_order() -> None:
    hashes = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 1000).tolist()
    first, second, third = batch(hashes[:10]), batch(hashes[10:600]), batch(hashes[600:])
    found = moved([first, second], [third])
    every = pa.Table.from_batches([first, second, third])
    for bucket, rows in found.items():
        # Python's remainder, which is never negative.
        own = every.filter(pa.array([one % BUCKETS == bucket for one in hashes]))
        assert rows.equals(own)
    assert sum(map(len, found.values())) == 1000


def test_every_bucket_hears_of_a_batch() -> None:
    some: list[list[list[pa.RecordBatch]]] = [[[]], [[batch([])]], [[batch([3])], []]]
    for tasks in some:
        found = moved(*tasks)
        assert list(found) == list(range(BUCKETS))
        assert all(rows.schema == SCHEMA for rows in found.values())
        assert sum(map(len, found.values())) == sum(len(one) for task in tasks for one in task)


def test_columns_that_spark_says_have_no_nulls() -> None:
    strict = pa.schema([field.with_nullable(False) for field in SCHEMA])
    rows = pa.RecordBatch.from_arrays(batch([1, 2]).columns, schema=strict)
    assert moved([rows])[1].schema == SCHEMA
