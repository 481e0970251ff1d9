"""A version of a bucket: what one batch changed, and the runs that were there before.

Every batch writes one for every bucket, also if nothing changed: a version that is not there was lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from penstock.spark.state.container import (
    BODY_CHECKSUM,
    DamagedStateError,
    encode,
    header_of,
    rows_of,
)
from penstock.spark.state.places import Place
from penstock.spark.state.runs import Run, earliest_due

SUFFIX: Final = ".state"
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Merge:
    """Runs that are made into one, a range of hashes at each batch; `low` is where the next begins."""

    into: str
    members: tuple[str, ...]
    low: int


@dataclass(frozen=True, slots=True)
class Version:
    """What a bucket was after a batch: runs, the newest first.

    `dropped` are files that newer versions do not need, each with the batch that made it so.
    `epoch_ms` is the first time that was known, from which rows written before count as touched.
    """

    batch_id: int
    by: tuple[str, ...]
    runs: tuple[Run, ...] = ()
    merges: tuple[Merge, ...] = ()
    dropped: tuple[tuple[int, str], ...] = ()
    epoch_ms: int | None = None
    now_ms: int | None = None

    def to_header(self, rows: pa.Table) -> dict[str, Any]:
        """The header of its file, which holds the newest run itself."""
        return {
            "batch": self.batch_id,
            "by": self.by,
            "rows": len(rows),
            "due_first": earliest_due(rows),
            "runs": [run.to_json() for run in self.runs],
            "merges": [[merge.into, merge.members, merge.low] for merge in self.merges],
            "dropped": self.dropped,
            "epoch_ms": self.epoch_ms,
            "now_ms": self.now_ms,
        }


def name_of(batch_id: int) -> str:
    """The file of a version."""
    return f"{batch_id:0{_DIGITS}}{SUFFIX}"


def batches(names: list[str]) -> list[int]:
    """The versions among files, in order."""
    stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == _DIGITS and stem.isdigit())


def write_version(folder: Place, version: Version, rows: pa.Table) -> None:
    """Write a version with the rows of its own run; from now on it counts."""
    folder.write(name_of(version.batch_id), encode(version.to_header(rows), rows))


def read_version(folder: Place, batch_id: int) -> tuple[Version, pa.Schema]:
    """A version, and the columns that it has.

    Raises:
        FileNotFoundError: it is not there.
        DamagedStateError: it is not what was written.
    """
    name = name_of(batch_id)
    data, file = folder.read(name), f"{folder.url}/{name}"
    header, rows = header_of(data, file), rows_of(data, file)
    if header.get("batch") != batch_id:
        raise DamagedStateError(file, f"it is of batch {header.get('batch')}")
    runs = tuple(Run(**run) for run in header["runs"])
    if header["rows"]:
        own = Run(str(batch_id), name, header["rows"], header[BODY_CHECKSUM])
        runs = (replace(own, due_first=header["due_first"]), *runs)
    merges = tuple(Merge(into, tuple(members), low) for into, members, low in header["merges"])
    dropped = tuple((batch, file) for batch, file in header["dropped"])
    by, now = tuple(header["by"]), header["now_ms"]
    return Version(batch_id, by, runs, merges, dropped, header["epoch_ms"], now), rows.schema
