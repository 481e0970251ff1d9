"""A source whose batches and watermarks a test decides: each step is one batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.spark.batch import TIME, WATERMARK


@dataclass
class Step(InputPartition):
    number: int
    part: int


class SteppingSource(DataSource):
    """Reads a file of steps: [[watermark or null, [row, ...]], ...]."""

    @classmethod
    def name(cls) -> str:
        return "stepping"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return SteppingReader(self.options["path"])


class SteppingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def steps(self) -> list[Any]:
        found: list[Any] = json.loads(self._path.read_text())
        return found

    def _offset(self, number: int) -> dict[str, Any]:
        mark = self.steps()[number - 1][0] if number else None
        return {"steps": number, TIME: {WATERMARK: mark}}

    def initialOffset(self) -> dict[str, Any]:
        return self._offset(0)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._offset(min(start["steps"] + 1, len(self.steps())))

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._offset(len(self.steps()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [Step(end["steps"], part) for part in range(2)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, Step)
        rows = self.steps()[partition.number - 1][1]
        for row in rows[partition.part :: 2]:
            yield tuple(row)
