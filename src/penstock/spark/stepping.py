"""A source for tests: rows come when the test says so, one batch at a time, at a time the test sets.

A function from DataFrame to DataFrame is run over the steps in one of two ways, with the same result:

- alone: each step is an ordinary DataFrame, run with all that a task of a batch can ask for (its
  number, its checkpoint, its watermark). There is no streaming engine in between, which would cost more
  than everything else. What Penstock adds to Spark keeps its state by these and works as in a stream;
  state of Spark's own (groupBy, dropDuplicates, joins of streams) does not: it sees each step alone.
- through the whole engine: a real query over the same steps, for these, and to be sure.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import UsageError
from penstock.spark.batch import batch_properties
from penstock.spark.stepping_source import (
    SteppingSource,
    count_steps,
    offset_after,
    read_step,
    write_step,
)
from penstock.spark.writing import write_stream

Function: TypeAlias = Callable[[DataFrame], DataFrame]


class Steps(Protocol):
    """A function that is run step by step."""

    def step(self) -> list[Row]:
        """Run the steps that were added and not run yet, each as a batch; what comes out."""
        ...

    def again(self) -> list[Row]:
        """Run the last batch again, as Spark does after a crash; what comes out."""
        ...


class Stepping:
    """See the module; made by `stepping`."""

    def __init__(self, spark: SparkSession, schema: StructType) -> None:
        self._spark = spark
        self._schema = schema
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-steps-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._steps = self.folder / "steps"
        self._steps.mkdir()

    @property
    def frame(self) -> DataFrame:
        """The steps as a streaming DataFrame: one batch for each."""
        self._spark.dataSource.register(SteppingSource)
        reader = self._spark.readStream.format(SteppingSource.name()).schema(self._schema)
        return reader.load(str(self._steps))

    def add(
        self,
        rows: Iterable[Mapping[str, Any] | tuple[Any, ...]] = (),
        *,
        watermark_ms: int | None = None,
    ) -> None:
        """Add a step.

        Args:
            rows: as dictionaries or tuples; none: a batch in which only time passes.
            watermark_ms: the watermark of this batch and those after it, in milliseconds since 1970;
                by default that of the step before.
        """
        names = self._schema.fieldNames()
        found = [
            row if isinstance(row, Mapping) else dict(zip(names, row, strict=True)) for row in rows
        ]
        table = pa.Table.from_pylist(found, schema=to_arrow_schema(self._schema, timezone="UTC"))
        write_step(self._steps, table, watermark_ms)

    def through(self, function: Function, *, engine: bool = False) -> Steps:
        """Run a function over the steps.

        Args:
            function: from a DataFrame of this schema to what comes out.
            engine: through the whole of Spark's streaming engine; otherwise alone.
        """
        return _ThroughEngine(self, function) if engine else _Alone(self, function)

    # -- for those who run it

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._spark

    @property
    def count(self) -> int:
        """How many steps there are."""
        return count_steps(self._steps)

    def rows(self, number: int) -> DataFrame:
        """One step as an ordinary DataFrame."""
        rows = read_step(self._steps, number)
        if rows.num_rows:
            return self._spark.createDataFrame(rows, self._schema)
        # Not as a table, which Spark would know to be empty: it would not run what comes after it, as a
        # stream does.
        nothing = self._spark.sparkContext.parallelize([], 1)
        return self._spark.createDataFrame(nothing, self._schema)

    def offset(self, steps: int) -> dict[str, Any]:
        """What Spark would keep of the source when so many steps were read."""
        return offset_after(self._steps, steps)

    def new_checkpoint(self) -> Path:
        """A folder for a query's."""
        return Path(tempfile.mkdtemp(prefix="checkpoint-", dir=self.folder))


def stepping(spark: SparkSession, schema: StructType | str) -> Stepping:
    """A source to which a test adds rows, step by step.

    Args:
        spark: the session.
        schema: of the rows.
    """
    return Stepping(spark, StructType.fromDDL(schema) if isinstance(schema, str) else schema)


class _Alone:
    """Each step as a DataFrame of its own, in what looks like a batch to the tasks."""

    def __init__(self, source: Stepping, function: Function) -> None:
        self._source = source
        self._function = function
        self._checkpoint = source.new_checkpoint()
        (self._checkpoint / "offsets").mkdir()
        self._done = 0

    def step(self) -> list[Row]:
        found: list[Row] = []
        while self._done < self._source.count:
            self._done += 1
            found += self._run(self._done - 1)
        return found

    def again(self) -> list[Row]:
        _check_run(self._done)
        return self._run(self._done - 1)

    def _run(self, number: int) -> list[Row]:
        offset = json.dumps(self._source.offset(number + 1))
        # In the form of Spark's own, which is where tasks look for the time of their batch.
        (self._checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{offset}")
        properties = batch_properties(str(self._checkpoint), "stepping", number)
        context = self._source.spark.sparkContext
        for name, value in properties.items():
            context.setLocalProperty(name, value)
        try:
            return list(self._function(self._source.rows(number)).collect())
        finally:
            for name in properties:
                context.setLocalProperty(name, None)


class _ThroughEngine:
    """A real query, for as long as a step takes nobody but Spark."""

    def __init__(self, source: Stepping, function: Function) -> None:
        self._source = source
        self._sink = _Collecting()
        self._checkpoint = source.new_checkpoint()
        self._function = function

    def step(self) -> list[Row]:
        if _last(self._checkpoint / "commits") + 1 < self._source.count:
            self._run()
        return self._sink.taken()

    def again(self) -> list[Row]:
        last = _last(self._checkpoint / "commits")
        _check_run(last + 1)
        (self._checkpoint / "commits" / str(last)).unlink()
        self._run()
        return self._sink.taken()

    def _run(self) -> None:
        # Spark runs a batch again that was begun, and then as many as there are steps.
        query = write_stream(
            self._function(self._source.frame),
            self._sink,
            checkpoint=str(self._checkpoint),
            trigger={"availableNow": True},
        )
        query.awaitTermination()


class _Collecting:
    """A sink that keeps rows for who asks."""

    name = "collected"

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def prepare(self, frame: DataFrame) -> None:
        """Everything can be kept."""

    def write(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Keep a batch."""
        self._rows += batch.collect()

    def taken(self) -> list[Row]:
        """What came since the last time."""
        rows, self._rows = self._rows, []
        return rows


def _last(folder: Path) -> int:
    names = (file.name for file in folder.glob("[0-9]*")) if folder.exists() else iter(())
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _check_run(done: int) -> None:
    if not done:
        raise UsageError("cannot run a batch again", "none was run", "call step() first")
