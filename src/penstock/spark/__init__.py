"""Stream processing on Apache Spark: topics as DataFrames, and DataFrames to topics exactly once.

What is here reaches the log over the Kafka protocol only, so that the same program runs against
Penstock or a Kafka cluster, and on this machine or a Spark cluster. Needs the extra `spark`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import UsageError
from penstock.spark.materialize import materialize
from penstock.spark.reading import read, read_stream
from penstock.spark.session import session
from penstock.spark.sinks.parquet import ParquetSink
from penstock.spark.sinks.parquet_manifest import Manifest, read_manifest
from penstock.spark.sinks.routing import RoutedSink, output_of
from penstock.spark.sinks.sqlite import SqliteSink
from penstock.spark.sinks.topic import TopicSink
from penstock.spark.sinks.view import ViewSink
from penstock.spark.sinks.webhook import WebhookSink
from penstock.spark.source import PenstockSource
from penstock.spark.state import keyed, read_state, savepoint
from penstock.spark.time.lateness import adjusted_time, split_late
from penstock.spark.time.progress import PartitionTime, SourceTime, source_times
from penstock.spark.writing import Sink, write_stream

if TYPE_CHECKING:
    from penstock.spark.sinks.delta import DeltaSink
    from penstock.spark.sinks.postgres import PostgresSink

__all__ = [
    "DeltaSink",
    "Manifest",
    "ParquetSink",
    "PartitionTime",
    "PenstockSource",
    "PostgresSink",
    "RoutedSink",
    "Sink",
    "SourceTime",
    "SqliteSink",
    "TopicSink",
    "ViewSink",
    "WebhookSink",
    "adjusted_time",
    "keyed",
    "materialize",
    "output_of",
    "read",
    "read_manifest",
    "read_state",
    "read_stream",
    "savepoint",
    "session",
    "source_times",
    "split_late",
    "write_stream",
]

# Imported when asked for: each needs a package that is behind an extra of this name.
_EXTRAS: Final = {"DeltaSink": "delta", "PostgresSink": "postgres"}


def __getattr__(name: str) -> Any:
    if name not in _EXTRAS:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    extra = _EXTRAS[name]
    try:
        return getattr(importlib.import_module(f"{__name__}.sinks.{extra}"), name)
    except ModuleNotFoundError as error:
        cause = f"there is no package {error.name}"
        raise UsageError(f"cannot use {name}", cause, f"pip install 'penstock[{extra}]'") from error
