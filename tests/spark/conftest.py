"""Fixtures of the Spark tests: one session for all, and brokers as the client tests have them.

Every test of a topic runs on Penstock in `make test`, and on a real Kafka too in `make compat`. With
PENSTOCK_TEST_SPARK=cluster Spark is a cluster of two workers in processes of their own, and every
test runs on it, those without a topic, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.clients.conftest import broker, brokers, make_topic, new_name, topic, wire
from tools.spark_cluster import DRIVER_SETTINGS, running_cluster

from penstock.spark import session

__all__ = [
    "broker",
    "brokers",
    "make_topic",
    "new_name",
    "spark",
    "spark_master",
    "topic",
    "wire",
]
CLUSTER = os.environ.get("PENSTOCK_TEST_SPARK") == "cluster"


@pytest.fixture(scope="session")
def spark_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The second of the two addresses."""
    if not CLUSTER:
        yield "local[2]"
        return
    with running_cluster(tmp_path_factory.mktemp("spark-cluster")) as master:
        yield master


@pytest.fixture(scope="session", autouse=True)
def spark(spark_master: str) -> Iterator[SparkSession]:
    settings = {"spark.sql.shuffle.partitions": "2", **(DRIVER_SETTINGS if CLUSTER else {})}
    started = session("tests", master=spark_master, settings=settings)
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()
