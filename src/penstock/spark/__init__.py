"""Stream processing on Apache Spark: topics as DataFrames, and DataFrames to topics exactly once.

What is here reaches the log over the Kafka protocol only, so that the same program runs against
Penstock or a Kafka cluster, and on this machine or a Spark cluster. Needs the extra `spark`.
"""

from penstock.spark.lateness import adjusted_time, split_late
from penstock.spark.progress import PartitionTime, SourceTime, source_times
from penstock.spark.reading import read, read_stream
from penstock.spark.routing import RoutedSink, output_of
from penstock.spark.session import session
from penstock.spark.source import PenstockSource
from penstock.spark.sqlite_sink import SqliteSink
from penstock.spark.state import keyed
from penstock.spark.topic_sink import TopicSink
from penstock.spark.writing import Sink, write_stream

__all__ = [
    "PartitionTime",
    "PenstockSource",
    "RoutedSink",
    "Sink",
    "SourceTime",
    "SqliteSink",
    "TopicSink",
    "adjusted_time",
    "keyed",
    "output_of",
    "read",
    "read_stream",
    "session",
    "source_times",
    "split_late",
    "write_stream",
]
