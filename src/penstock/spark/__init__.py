"""Stream processing on Apache Spark: topics as DataFrames, and DataFrames to topics exactly once.

What is here reaches the log over the Kafka protocol only, so that the same program runs against
Penstock or a Kafka cluster, and on this machine or a Spark cluster. Needs the extra `spark`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import UsageError
from penstock.spark.lateness import adjusted_time, split_late
from penstock.spark.materialize import materialize
from penstock.spark.parquet_manifest import Manifest, read_manifest
from penstock.spark.parquet_sink import ParquetSink
from penstock.spark.progress import PartitionTime, SourceTime, source_times
from penstock.spark.reading import read, read_stream
from penstock.spark.routing import RoutedSink, output_of
from penstock.spark.session import session
from penstock.spark.source import PenstockSource
from penstock.spark.sqlite_sink import SqliteSink
from penstock.spark.state import keyed, read_state, savepoint
from penstock.spark.topic_sink import TopicSink
from penstock.spark.view_sink import ViewSink
from penstock.spark.webhook_sink import WebhookSink
from penstock.spark.writing import Sink, write_stream

if TYPE_CHECKING:
    from penstock.spark.delta_sink import DeltaSink
    from penstock.spark.postgres_sink import PostgresSink

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
        return getattr(importlib.import_module(f"{__name__}.{extra}_sink"), name)
    except ModuleNotFoundError as error:
        cause = f"there is no package {error.name}"
        raise UsageError(f"cannot use {name}", cause, f"pip install 'penstock[{extra}]'") from error
