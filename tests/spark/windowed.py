"""What tests of windows need: a sink that remembers, and a table that follows its changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row

from penstock.spark import RoutedSink, write_stream


class Remembering:
    """Keeps the rows of each batch; a batch that runs again must bring the same ones."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: dict[int, list[Row]] = {}
        self.again = 0

    def prepare(self, frame: DataFrame) -> None:
        pass

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        rows = sorted(batch.collect(), key=repr)
        if batch_id in self.batches:
            assert rows == self.batches[batch_id], "another try of a batch gives the same"
            self.again += 1
        self.batches[batch_id] = rows

    def rows(self) -> list[Row]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]


class Outputs:
    """Both outputs of windows, over several starts of the same query."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder
        self.results, self.late = Remembering("results"), Remembering("late")

    def run(self, frame: DataFrame) -> None:
        query = write_stream(
            frame,
            RoutedSink({"results": self.results, "late": self.late}),
            checkpoint=str(self.checkpoint),
            trigger={"availableNow": True},
        )
        query.awaitTermination()

    def forget_last_commit(self) -> None:
        """As if Spark had died after everything was written and before it said so."""
        commits = self.checkpoint / "commits"
        max(commits.glob("[0-9]*"), key=lambda file: int(file.name)).unlink()

    def table(self, key: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
        return applied(self.results.rows(), key)


def applied(changes: Iterable[Row], key: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The table that changes lead to. Of one batch and one key there is one old and one new line."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in changes:
        line = row.asDict(recursive=True)
        change = line.pop("_change_type")
        line.pop("watermark")
        name = tuple(line[column] for column in key)
        if change in ("insert", "update_postimage"):
            found[name] = line
        elif change == "delete":
            del found[name]
    return found
