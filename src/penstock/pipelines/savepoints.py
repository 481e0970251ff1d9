"""Copies of a stopped pipeline's checkpoints, and the way back to one.

The checkpoint of a query that does not run is a whole: Spark's offsets and state, and Penstock's state.
A savepoint is a folder with a copy of each query's, written beside and given its name at the end, so
that one that has its name is complete and on disk:

    savepoints/LABEL/savepoint.json     the queries, and where their checkpoints were
    savepoints/LABEL/0, 1, ...          the checkpoints

A query that goes back and has gone on since gets a new id. Sinks know a batch by the query's id and its
number: under the old id they would take the batches that follow for those they have, and skip them.
"""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.errors import ConflictError, NotFoundError, UsageError
from penstock.files import Files, read_whole, write_atomically
from penstock.pipelines.folder import PipelineFolder, Query, check_name

KEPT_PLANS: Final = "kept-by-penstock"
"""In a checkpoint: what Spark has planned under its id (spark/checkpoints.py)."""
_FACTS: Final = "savepoint.json"
_COPY: Final = "copy.tmp"


@dataclass(frozen=True, slots=True)
class Savepoint:
    """One that is complete."""

    label: str
    taken_ms: int
    queries: dict[str, str]
    """Where the checkpoint of each query was."""


def take(files: Files, folder: PipelineFolder, label: str, now_ms: int) -> Savepoint:
    """Copy the checkpoints of all queries; the caller holds the pipeline's lock.

    Raises:
        ConflictError: there is a savepoint of that name.
        UsageError: there is nothing to copy, or it is not on this machine's disks.
    """
    operation = f"cannot take the savepoint {label}"
    check_name(operation, label)
    target = folder.savepoints / label
    if files.exists(target):
        raise ConflictError(operation, "there is one of that name", "choose another")
    places = _checkpoints(operation, folder.queries())
    copy = folder.savepoints / _COPY
    shutil.rmtree(copy, ignore_errors=True)  # left by one that was killed
    files.make_folder(copy)
    for number, place in enumerate(places.values()):
        shutil.copytree(place, copy / str(number))
    found = Savepoint(label, now_ms, {name: str(place) for name, place in places.items()})
    facts = {"taken_ms": now_ms, "queries": found.queries}
    write_atomically(files, copy / _FACTS, json.dumps(facts, indent=2).encode() + b"\n")
    files.sync_all(copy)
    files.rename(copy, target)
    files.sync_folder(folder.savepoints)
    return found


def savepoints(files: Files, folder: PipelineFolder) -> list[Savepoint]:
    """Those that are complete, the oldest first."""
    if not files.exists(folder.savepoints):
        return []
    names = [name for name in files.list(folder.savepoints) if name != _COPY]
    return sorted((_read(files, folder, name) for name in names), key=lambda one: one.taken_ms)


def go_back(files: Files, folder: PipelineFolder, label: str, now_ms: int) -> list[str]:
    """Put the checkpoints of a savepoint in place; the caller holds the pipeline's lock.

    What is there now is kept as another savepoint first. A crash on the way leaves some queries where
    they were and some not: a mark keeps the pipeline from running until this was done again.

    Returns:
        The queries that have gone on since, and now have a new id.

    Raises:
        NotFoundError: there is no such savepoint.
    """
    if not files.exists(folder.savepoints / label / _FACTS):
        remedy = f"`penstock pipelines describe {folder.name}` shows those that are there"
        raise NotFoundError(f"cannot go back to {label}", "there is no such savepoint", remedy)
    found = _read(files, folder, label)
    folder.mark_going_back(label)
    if all(Path(place).exists() for place in found.queries.values()):
        take(files, folder, f"before-{label}-{now_ms}", now_ms)
    renewed = []
    for number, (query, place) in enumerate(found.queries.items()):
        if _put(files, folder.savepoints / label / str(number), Path(place)):
            renewed.append(query)
    folder.mark_going_back(None)
    return renewed


def _put(files: Files, kept: Path, place: Path) -> bool:
    """Replace one checkpoint by a copy of the kept one; whether it was given a new id."""
    renew = (_newest(place), _identity(place)) != (_newest(kept), _identity(kept))
    copy = place.with_name(place.name + ".tmp")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(kept, copy)
    if renew:
        identity = json.dumps({"id": str(uuid.uuid4())}).encode()
        write_atomically(files, copy / "metadata", identity)
        shutil.rmtree(
            copy / KEPT_PLANS, ignore_errors=True
        )  # of the old id, which they would restore
    files.sync_all(copy)
    shutil.rmtree(place, ignore_errors=True)
    files.rename(copy, place)
    files.sync_folder(place.parent)
    return renew


def _identity(checkpoint: Path) -> bytes | None:
    """What Spark knows the query by; one that went back before has another than the savepoint."""
    file = checkpoint / "metadata"
    return file.read_bytes() if file.exists() else None


def _newest(checkpoint: Path) -> tuple[int, int]:
    """The last batch that was planned and the last that was finished."""

    def last(part: str) -> int:
        files = (checkpoint / part).glob("[0-9]*")
        return max((int(file.name) for file in files if file.name.isdecimal()), default=-1)

    return last("offsets"), last("commits")


def _checkpoints(operation: str, queries: dict[str, Query]) -> dict[str, Path]:
    places: dict[str, Path] = {}
    for name, query in queries.items():
        place = query.checkpoint
        if place is None:
            cause = f"the query {name} was not started by write_stream"
            raise UsageError(operation, cause, "copy its checkpoint yourself")
        if "://" in place:
            cause = f"the checkpoint of {name} is {place}"
            raise UsageError(operation, cause, "copy that folder with the tools of its store")
        places[name] = Path(place)
    if not places:
        raise UsageError(operation, "no query has been started yet", "run the pipeline first")
    return places


def _read(files: Files, folder: PipelineFolder, label: str) -> Savepoint:
    text = read_whole(files, folder.savepoints / label / _FACTS)
    found: dict[str, Any] = json.loads(text)
    return Savepoint(label, found["taken_ms"], found["queries"])
