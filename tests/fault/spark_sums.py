"""Counts and sums by user in keyed state of our own, by workers that die when they are asked to."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.spark import keyed
from penstock.spark.batch import Times
from penstock.spark.sinks.row_modes import CHANGE
from penstock.spark.state.bucket import Bucket
from penstock.spark.state.operators import Function

NAME = "sums"
READ, WRITTEN = "state-read", "state-written"
TAKEN_EVERY = 3
"""A user with as many rows, or a multiple, is taken away, until the next row."""


def summed(frame: DataFrame, read: Path, written: Path) -> DataFrame:
    """For each user of a batch the change of its count and sum.

    Args:
        frame: users and numbers.
        read: a file that asks for a worker's death when it has read the state of a bucket.
        written: the same when it has written it, and has returned no row yet.
    """
    totals = "rows bigint, total bigint"
    return keyed(
        frame,
        by=["user"],
        function=_sums(read, written),
        state=totals,
        output=f"user string, {totals}, {CHANGE} string",
        name=NAME,
    )


def _sums(read: Path, written: Path) -> Function:
    every, change = TAKEN_EVERY, CHANGE  # a cluster's workers do not have this module

    def function(state: pa.Table, rows: pa.Table, times: Times) -> tuple[pa.Table, pa.Table]:
        if read.exists():
            read.unlink(missing_ok=True)  # of two workers only one
            os.kill(os.getpid(), signal.SIGKILL)
        if written.exists():
            written.unlink(missing_ok=True)
            write = Bucket.write

            def last_words(self: Bucket, batch_id: int, rows: pa.Table) -> None:
                write(self, batch_id, rows)
                os.kill(os.getpid(), signal.SIGKILL)

            Bucket.write = last_words  # type: ignore[method-assign]
        ones = pa.array(np.ones(len(rows), np.int64))
        new = pa.table({"user": rows["user"], "rows": ones, "total": rows["n"]})
        by_user = pa.concat_tables([state, new]).group_by("user")
        sums = by_user.aggregate([("rows", "sum"), ("total", "sum")])
        sums = sums.rename_columns(["user", "rows", "total"])
        taken = sums["rows"].to_numpy() % every == 0
        kinds = pa.array(np.where(taken, "delete", "update_postimage"))
        return sums, sums.append_column(change, kinds)

    return function
