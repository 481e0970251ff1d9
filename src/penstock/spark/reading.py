"""Topics as DataFrames in one call."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

from penstock.pipelines.terms import current_terms
from penstock.spark.columns import ERROR
from penstock.spark.source import PenstockSource


def read_stream(
    spark: SparkSession,
    bootstrap: str | None = None,
    topics: str = "",
    schema: StructType | str | None = None,
    **options: Any,
) -> DataFrame:
    """What is written to topics, as a streaming DataFrame.

    Args:
        spark: the session.
        bootstrap: addresses of the cluster, HOST:PORT, separated by commas; by default what
            `penstock run --bootstrap` or PENSTOCK_BOOTSTRAP says, and 127.0.0.1:9092 without them.
        topics: their names, separated by commas.
        schema: the fields of JSON values; without one the columns of Spark's own Kafka source.
        options: those of the source, such as startingOffsets="earliest".

    Where malformed values do not stop the query, their number is in the progress of each batch,
    under observedMetrics, `malformed TOPICS`.
    """
    options = current_terms().source_options(topics, options)
    if schema is None:
        return _reader(spark, spark.readStream, bootstrap, topics, None, options).load()
    asked = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    apart = str(options.get("malformed", "")).startswith("topic:") and ERROR not in asked.names
    whole = StructType([*asked, StructField(ERROR, StringType())]) if apart else asked
    frame = _reader(spark, spark.readStream, bootstrap, topics, whole, options).load()
    if ERROR in whole.names:
        frame = frame.observe(f"malformed {topics}", sql.count(ERROR).alias("records"))
    return frame.where(sql.col(ERROR).isNull()).drop(ERROR) if apart else frame


def read(
    spark: SparkSession,
    bootstrap: str | None = None,
    topics: str = "",
    schema: StructType | str | None = None,
    **options: Any,
) -> DataFrame:
    """What is in topics now, or in the range that options name; arguments as for read_stream."""
    return _reader(spark, spark.read, bootstrap, topics, schema, options).load()


def _reader(
    spark: SparkSession,
    reader: Any,
    bootstrap: str | None,
    topics: str,
    schema: StructType | str | None,
    options: dict[str, Any],
) -> Any:
    spark.dataSource.register(PenstockSource)
    address = bootstrap or current_terms().bootstrap
    reader = reader.format(PenstockSource.name()).option("kafka.bootstrap.servers", address)
    reader = reader.option("subscribe", topics).options(**options)
    return reader if schema is None else reader.schema(schema)
