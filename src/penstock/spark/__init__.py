"""Stream processing on Apache Spark: topics as DataFrames, and DataFrames to topics exactly once.

What is here reaches the log over the Kafka protocol only, so that the same program runs against
Penstock or a Kafka cluster, and on this machine or a Spark cluster. Needs the extra `spark`.
"""

from penstock.spark.reading import read, read_stream
from penstock.spark.routing import RoutedSink, output_of
from penstock.spark.session import session
from penstock.spark.source import PenstockSource
from penstock.spark.sqlite_sink import SqliteSink
from penstock.spark.state import keyed, read_state, savepoint
from penstock.spark.topic_sink import TopicSink
from penstock.spark.writing import Sink, write_stream

__all__ = [
    "PenstockSource",
    "RoutedSink",
    "Sink",
    "SqliteSink",
    "TopicSink",
    "keyed",
    "output_of",
    "read",
    "read_state",
    "read_stream",
    "savepoint",
    "session",
    "write_stream",
]
