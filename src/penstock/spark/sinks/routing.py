"""Sends the outputs of one query to sinks of their own, each exactly once.

What has several outputs (windows and their late rows) is one DataFrame: a column `_output` names the
output of a row, and a struct column of that name holds it. One query, so that every row of the input
has one fate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from penstock.errors import UsageError
from penstock.spark.writing import Sink

OUTPUT: Final = "_output"


def output_of(frame: DataFrame, name: str) -> DataFrame:
    """The rows of one output."""
    return frame.where(sql.col(OUTPUT) == name).select(f"{name}.*")


class RoutedSink:
    """See the module.

    Args:
        sinks: for each output its sink. An output without one is not written anywhere.
    """

    def __init__(self, sinks: Mapping[str, Sink]) -> None:
        self._sinks = dict(sinks)

    @property
    def name(self) -> str:
        """What tells it from other sinks of the same query."""
        return "+".join(f"{output}={sink.name}" for output, sink in self._sinks.items())

    def prepare(self, frame: DataFrame) -> None:
        """Say before a query starts what would stop it.

        Raises:
            UsageError: there is no such output, two sinks would share a marker, or a sink cannot
                take its output.
        """
        names = [sink.name for sink in self._sinks.values()]
        shared = [name for name in names if names.count(name) > 1]
        if shared:
            # The marker of the first would tell the second that its batch has been written.
            cause = f"two sinks are called {shared[0]}"
            raise UsageError("cannot write several outputs", cause, "give one of them a name=")
        missing = [output for output in self._sinks if output not in frame.columns]
        if missing or OUTPUT not in frame.columns:
            cause = f"there is no output {', '.join(missing)} among {', '.join(frame.columns)}"
            raise UsageError("cannot write several outputs", cause, "name outputs that are there")
        for output, sink in self._sinks.items():
            sink.prepare(output_of(frame, output))

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Write all outputs of a batch; those that were written find it out by themselves."""
        batch.persist()
        try:
            for output, sink in self._sinks.items():
                sink.write(output_of(batch, output), batch_id, query_id)
        finally:
            batch.unpersist()
