"""Savepoints: the states of a query in a folder of their own, for a changed query to begin with."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.errors import ConflictError, NotFoundError
from penstock.spark.batch import offsets_at
from penstock.spark.state.bucket import Bucket, check_schema
from penstock.spark.state.container import encode, header_of, rows_of
from penstock.spark.state.places import place, states_place
from penstock.spark.state.reading import last_batch, stored
from penstock.spark.state.runs import sorted_rows
from penstock.spark.state.sorted_rows import HASH
from penstock.spark.state.versions import SUFFIX

_CONTENTS: Final = "savepoint.json"


def savepoint(checkpoint: str, to: str) -> dict[str, Any]:
    """Copy the states of a query after its last committed batch.

    Returns what `to` is written with last: `batch`, `states`, and `positions`, where each source was
    after that batch, to be given to the new query as `startingOffsets`.

    Args:
        checkpoint: of a query that does not run.
        to: a folder that is not there yet.

    Raises:
        NotFoundError: the query has no batch yet.
        ConflictError: there is something at `to`.
        DamagedStateError: files of the state are missing or damaged.
    """
    target = place(to)
    if target.names():
        raise ConflictError(f"cannot write a savepoint to {to}", "it is not empty", "name another")
    last, names = last_batch(checkpoint), states_place(checkpoint).names()
    for name in names:
        for number, (bucket, rows) in enumerate(stored(checkpoint, name)):
            header = {"by": bucket.by, "rows": len(rows)}
            target.below(name).write(f"{number}{SUFFIX}", encode(header, sorted_rows(rows)))
    contents = {"batch": last, "states": names, "positions": _positions(checkpoint, last)}
    # The last: without it there is no savepoint.
    target.write(_CONTENTS, json.dumps(contents).encode())
    return contents


def _positions(checkpoint: str, batch_id: int) -> list[str]:
    """Where the sources were after a batch, without the times that they carry."""
    found = offsets_at(checkpoint, batch_id)
    topics = [{k: v for k, v in offset.items() if not k.startswith("$")} for offset in found]
    return [json.dumps(offset) for offset in topics]


def begin(
    bucket: Bucket, number: int, buckets: int, batch_id: int, start_from: str, name: str
) -> None:
    """Let an empty bucket begin with its keys of a savepoint, whatever number of buckets that had.

    Raises:
        NotFoundError: there is no savepoint, or none of that state.
        UsageError: it does not fit the schema.
    """
    source = place(start_from)
    try:
        contents = json.loads(source.read(_CONTENTS).to_pybytes())
    except FileNotFoundError:
        cause = f"{start_from} is no savepoint"
        raise NotFoundError(f"cannot begin the state {name}", cause, "name one") from None
    if name not in contents["states"]:
        cause = f"{start_from} has only {', '.join(contents['states'])}"
        raise NotFoundError(f"cannot begin the state {name}", cause, "name one of these")
    folder, tables = source.below(name), []
    for file in folder.names():
        data, path = folder.read(file), f"{folder.url}/{file}"
        rows, by = rows_of(data, path), tuple(header_of(data, path)["by"])
        check_schema(folder.url, rows.schema, by, bucket.schema, bucket.by)
        mine = np.mod(rows[HASH].to_numpy(), buckets) == number
        tables.append(rows.filter(pa.array(mine)))
    rows = sorted_rows(bucket.shaped(tables))
    if len(rows):
        bucket.adopt(f"{batch_id}-begin{SUFFIX}", rows)
