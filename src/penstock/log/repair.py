"""The owner's decision about a partition that recovery refused. Every byte taken out is kept.

    truncate   end the log before the first damage; everything from there on is put aside
    skip       put aside the damaged stretches only, and leave gaps in the offsets

A gap stands between two segments, and the checkpoint of the first vouches for it, so that recovery
and verification know it from a loss. What idempotent producers wrote before the repair is forgotten:
a retry that is still under way may be stored twice.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import NamedTuple

from penstock.clock import Clock
from penstock.errors import StorageError
from penstock.files import Files, write_atomically
from penstock.log import checkpoint as checkpoints
from penstock.log.catalog import read_identity
from penstock.log.checkpoint import Checkpoint
from penstock.log.positions import PartitionId, Position, Positions
from penstock.log.segment import segment_path
from penstock.log.verify import Damage, FoundBatch, scan


class Choice(Enum):
    """What to do about damage."""

    TRUNCATE = "truncate"
    SKIP = "skip"


class Loss(NamedTuple):
    """Offsets that a repair gives up."""

    first_offset: int
    next_offset: int
    """The first offset that is kept again; -1 if the log ends here."""
    size: int


class Plan(NamedTuple):
    """What a repair would do."""

    losses: list[Loss]
    kept: list[FoundBatch]
    end_offset: int


def plan(files: Files, folder: Path, choice: Choice) -> Plan:
    """Find the damage, and say what a repair gives up."""
    losses: list[Loss] = []
    kept: list[FoundBatch] = []
    for found in scan(files, folder):
        if isinstance(found, Damage):
            losses.append(Loss(found.first_offset, found.next_offset, found.size))
        elif not losses or choice is Choice.SKIP:
            kept.append(found)
    # Without a whole batch the log begins again where the first one was lost.
    end_offset = losses[0].first_offset if losses else 0
    if kept:
        end_offset = kept[-1].header.last_offset + 1
    if choice is Choice.TRUNCATE and losses:
        losses = [Loss(losses[0].first_offset, -1, sum(loss.size for loss in losses))]
    return Plan(losses, kept, end_offset)


def execute(files: Files, data: Path, folder: Path, chosen: Plan, clock: Clock) -> Path:
    """Carry a plan out; returns the folder where the partition was kept as it was found."""
    entry = read_identity(files, folder)
    number = folder.name.rpartition("-")[2]
    if entry is None or not number.isdigit():
        raise StorageError(
            f"repair {folder}",
            "its topic.json cannot be read",
            "copy it from another partition of the topic",
        )
    aside = data / "quarantine" / f"{folder.name}-{clock.wall_ms()}"
    files.make_folder(aside)
    for name in files.list(folder):
        _copy(files, folder / name, aside / name)
    files.sync_all(aside)
    _rewrite(files, folder, aside, chosen)
    identity = PartitionId(entry.id, int(number))
    positions = Positions(files, data / "positions.journal", clock)
    start = min(positions.get(identity).start, chosen.end_offset)
    positions.record([(identity, Position(chosen.end_offset, start))], sync=True)
    return aside


def _rewrite(files: Files, folder: Path, source: Path, chosen: Plan) -> None:
    """Write the kept batches as new segments, one for each unbroken run of the old ones."""
    for name in files.list(folder):
        if name[:20].isdigit():
            files.remove(folder / name)
    runs = _runs(chosen)
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        base = run[0].header.base_offset
        old = files.open(segment_path(source, run[0].base_offset))
        new = files.open(segment_path(folder, base), create=True)
        size = 0
        for batch in run:
            new.pwrite([old.pread(batch.header.size, batch.position)], size)
            size += batch.header.size
        new.sync()
        if following is not None:
            next_offset = following[0].header.base_offset
            _vouch(files, folder, run, size, next_offset)
    if not runs:
        files.open(segment_path(folder, chosen.end_offset), create=True).sync()
    files.sync_folder(folder)


def _runs(chosen: Plan) -> list[list[FoundBatch]]:
    runs: list[list[FoundBatch]] = []
    for batch in chosen.kept:
        last = runs[-1][-1] if runs else None
        unbroken = (
            last is not None
            and last.base_offset == batch.base_offset
            and last.header.last_offset + 1 == batch.header.base_offset
        )
        if unbroken:
            runs[-1].append(batch)
        else:
            runs.append([batch])
    return runs


def _vouch(files: Files, folder: Path, run: list[FoundBatch], size: int, next_offset: int) -> None:
    newest = max(run, key=lambda batch: batch.header.max_timestamp)
    base = run[0].header.base_offset
    checkpoint = Checkpoint(
        next_offset=next_offset,
        position=size,
        max_timestamp=newest.header.max_timestamp,
        max_timestamp_offset=newest.header.last_offset,
        first_timestamp=run[0].header.max_timestamp,
        batches=len(run),
        # No index is written: an empty one is searched from the segment's start.
        index_bytes=0,
        index_checksum=0,
        time_index_bytes=0,
        time_index_checksum=0,
        state=b"",
    )
    path = checkpoints.checkpoint_path(folder, base)
    write_atomically(files, path, checkpoints.encode(checkpoint))


def _copy(files: Files, source: Path, target: Path) -> None:
    piece_bytes = 1 << 20
    old, new = files.open(source), files.open(target, create=True)
    for position in range(0, old.size(), piece_bytes):
        new.pwrite([old.pread(piece_bytes, position)], position)
