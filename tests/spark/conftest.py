"""Fixtures of the Spark tests: one session for all, and brokers as the client tests have them.

Every test of a topic runs on Penstock in `make test`, and on a real Kafka too in `make compat`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.clients.conftest import broker, make_topic, new_name, topic, wire

from penstock.spark import session

__all__ = ["broker", "make_topic", "new_name", "spark", "topic", "wire"]


@pytest.fixture(scope="session", autouse=True)
def spark() -> Iterator[SparkSession]:
    started = session("tests", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()
