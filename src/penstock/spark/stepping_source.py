"""`format("penstock-stepping")`: rows that a test wrote down step by step, one step for each batch.

The steps are files in a folder, 0, 1, 2 and so on: Arrow's stream format, and the watermark in its
metadata. An offset is how many steps have been read, and the time of the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.spark.batch import TIME, WATERMARK

STEPS: Final = "steps"
_METADATA: Final = b"watermark"


def write_step(folder: Path, rows: pa.Table, watermark_ms: int | None) -> None:
    """Add a step; it is there all at once."""
    number = count_steps(folder)
    metadata = {} if watermark_ms is None else {_METADATA: str(watermark_ms)}
    beside = folder / "new"
    with pa.OSFile(str(beside), "wb") as file:
        rows = rows.replace_schema_metadata(metadata)
        with pa.ipc.new_stream(file, rows.schema) as writer:
            writer.write_table(rows)
    beside.rename(folder / str(number))


def read_step(folder: Path, number: int) -> pa.Table:
    """The rows of a step."""
    with pa.OSFile(str(folder / str(number)), "rb") as file:
        return pa.ipc.open_stream(file).read_all()


def watermark_of(folder: Path, number: int) -> int | None:
    """The watermark of a step: the last one that was set."""
    for step in range(number, -1, -1):
        metadata = read_step(folder, step).schema.metadata or {}
        if _METADATA in metadata:
            return int(metadata[_METADATA])
    return None


def count_steps(folder: Path) -> int:
    """How many there are."""
    return sum(1 for path in folder.iterdir() if path.name.isdecimal())


def offset_after(folder: Path, steps: int) -> dict[str, Any]:
    """The offset when so many steps have been read."""
    watermark = watermark_of(folder, steps - 1) if steps else None
    return {STEPS: {"0": steps}, TIME: {WATERMARK: watermark}}


@dataclass
class _Step(InputPartition):
    number: int


class SteppingSource(DataSource):
    """See the module."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._folder = options["path"]

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "penstock-stepping"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Read one step in each batch."""
        return _Reader(Path(self._folder))


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        # Steps are added between runs and not during one; without this Spark ends after one batch.
        pass

    def initialOffset(self) -> dict[str, Any]:
        return offset_after(self._folder, 0)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        done: int = start[STEPS]["0"]
        there = count_steps(self._folder)
        return offset_after(self._folder, done + 1) if there > done else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [_Step(number) for number in range(start[STEPS]["0"], end[STEPS]["0"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Step)
        yield from read_step(self._folder, partition.number).to_batches()
