"""Looks at the state of a query from outside, without Spark."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import NotFoundError
from penstock.spark.state.bucket import INTERNAL, Bucket
from penstock.spark.state.container import DamagedStateError
from penstock.spark.state.opened import Opened
from penstock.spark.state.places import Place, operator_place, place, states_place
from penstock.spark.state.sorted_rows import DUE_ORDER
from penstock.spark.state.versions import read_version


def read_state(checkpoint: str, name: str) -> pa.Table:
    """All rows of a state after the last batch that Spark committed.

    Rows that have outlived their time may still be there until a merge meets them.

    Args:
        checkpoint: of the query, which may be running.
        name: of the state, as given to `keyed`.

    Raises:
        NotFoundError: there is no such state.
        DamagedStateError: files are missing or damaged.
    """
    tables = [rows.drop_columns(list(INTERNAL)) for _, rows in stored(checkpoint, name)]
    return pa.concat_tables(tables, promote_options="default")


def stored(checkpoint: str, name: str) -> list[tuple[Bucket, pa.Table]]:
    """The buckets of a state, each with its rows, after the last batch that Spark committed."""
    root, last = operator_place(checkpoint, name), last_batch(checkpoint)
    found = []
    for folder in (root.below(bucket) for bucket in root.names()):
        bucket = bucket_at(folder, last)
        found.append((bucket, bucket.all()))
    if not found:
        known = ", ".join(states_place(checkpoint).names()) or "none"
        cause = f"{checkpoint} has no such state"
        raise NotFoundError(f"cannot read the state {name}", cause, f"name one of: {known}")
    return found


def last_batch(checkpoint: str) -> int:
    """The last batch that Spark committed.

    Raises:
        NotFoundError: there is none.
    """
    commits = [int(name) for name in place(checkpoint).below("commits").names() if name.isdigit()]
    if not commits:
        cause = f"no batch of {checkpoint} is done"
        raise NotFoundError("cannot read the state of a query", cause, "wait for the first")
    return max(commits)


def bucket_at(folder: Place, batch_id: int) -> Bucket:
    """A bucket as it was after a batch.

    Raises:
        DamagedStateError: files are missing or damaged.
    """
    try:
        version, schema = read_version(folder, batch_id)
    except FileNotFoundError:
        raise DamagedStateError(folder.url, f"batch {batch_id} is missing") from None
    own = pa.schema([column for column in schema if column.name not in (*INTERNAL, DUE_ORDER)])
    return Bucket(folder, own, version.by, version, Opened())
