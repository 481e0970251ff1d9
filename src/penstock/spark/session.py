"""A Spark session with the settings that matter on one machine, and that are wrong by default."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from penstock.pipelines.terms import current_terms
from penstock.spark.sinks.topic import SETTINGS
from penstock.spark.source import PenstockSource
from penstock.spark.supervised import supervision

_SETTINGS: Final = {
    # Fixed per checkpoint, and transformWithState takes nothing else.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Frozen into a checkpoint at its first start; 200 of them cost seconds per batch on a laptop.
    "spark.sql.shuffle.partitions": "4",
    # Two files and a process for each commit of a checkpoint on a local disk, for a checksum. Not
    # fs.file.impl as well: RocksDB's snapshots are copied by what takes nothing but the default there.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    # What topics are written with must not be written twice by a second try (sinks/topic.py).
    **SETTINGS,
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # A port that anybody on the network could look into.
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
_CLUSTER_SETTINGS: Final = ("spark.driver.bindAddress", "spark.driver.host", "spark.ui.enabled")


def session(
    name: str = "penstock",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session that knows `format("penstock")`.

    Args:
        name: what Spark calls the application.
        master: local[*], or the address of a Spark cluster; by default what `penstock run --master`
            or PENSTOCK_MASTER says, and local[*] without them.
        settings: Spark's own, which win over those set here.
    """
    # Without it the workers run the system's Python, which has no pyspark, and die after a while.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or current_terms().master
    local = master.startswith("local")
    chosen = {k: v for k, v in _SETTINGS.items() if local or k not in _CLUSTER_SETTINGS}
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(PenstockSource)
    if (supervised := supervision()) is not None:
        supervised.attach(spark)
    return spark
