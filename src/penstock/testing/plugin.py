"""The pytest plugin: found by its entry point, so that tests only name the fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.testing import RunningBroker


@pytest.fixture
def penstock_broker() -> Iterator[RunningBroker]:
    """A real broker with an empty data folder, for one test."""
    # Imported here: a test run that does not use the fixture should not pay for it.
    from penstock.testing import broker  # noqa: PLC0415

    with broker() as running:
        yield running


@pytest.fixture(scope="session")
def penstock_spark() -> Iterator[SparkSession]:
    """A Spark session on this machine, for all tests of a run."""
    from penstock.spark import session  # noqa: PLC0415 -- as above, and it needs the extra spark

    # As little as there can be: tests have few rows, and every task costs milliseconds.
    few = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}
    # And a JVM of minutes: its second compiler would take longer than it saves.
    few["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    spark = session("tests", master="local[1]", settings=few)
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()
