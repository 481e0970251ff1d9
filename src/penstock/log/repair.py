"""The owner's decision about a partition that recovery refused. Every byte taken out is kept.

    truncate   end the log before the first damage; everything from there on is put aside
    skip       put aside the damaged stretches only, and leave gaps in the offsets

The repaired partition is built beside the old one and takes its place when it is complete; the old
one moves, as it was found, to the quarantine, with what the journal of rounds has of it; what of that
follows on is in the new one. A repair that was interrupted is finished by the next start, or done again.

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
from penstock.log.catalog import TopicEntry, read_identity, write_identities
from penstock.log.checkpoint import Checkpoint
from penstock.log.earlier_rounds import EarlierRounds, proven_end
from penstock.log.names import longer
from penstock.log.positions import PartitionId, Position, Positions
from penstock.log.segment import segment_path
from penstock.log.verify import Damage, FoundBatch, found_segments, scan

_REPAIRED = "~repaired"


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


def plan(files: Files, data: Path, folder: Path, choice: Choice, clock: Clock) -> Plan:
    """Find the damage, and say what a repair gives up."""
    losses: list[Loss] = []
    kept: list[FoundBatch] = []
    identity = _identity(files, folder)
    journaled = EarlierRounds(files, data).of(identity)
    for found in scan(files, folder, journaled):
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
    known = Positions(files, data / "positions.journal", clock).get(identity)
    if not losses and end_offset < max(known.end, proven_end(journaled)):
        losses = [Loss(end_offset, -1, 0)]  # whole batches, but fewer than were acknowledged
    return Plan(losses, kept, end_offset)


def execute(files: Files, data: Path, folder: Path, chosen: Plan, clock: Clock) -> Path:
    """Carry a plan out; returns the folder where the partition was kept as it was found."""
    identity = _identity(files, folder)
    aside = data / "quarantine" / longer(folder.name, f"-{clock.wall_ms()}")
    repaired = folder.with_name(longer(folder.name, _REPAIRED))
    _clear(files, repaired)
    files.make_folder(aside.parent)
    _build(files, folder, repaired, chosen)
    files.sync_all(data)
    files.rename(folder, aside)
    files.rename(repaired, folder)
    files.sync_all(data)
    # Last: a start recorded for the repaired log would make recovery lenient with the old one.
    positions = Positions(files, data / "positions.journal", clock)
    start = min(positions.get(identity).start, chosen.end_offset)
    positions.record({identity: Position(chosen.end_offset, start)})
    EarlierRounds(files, data).give_up(identity, aside)
    return aside


def finish_repair(files: Files, folder: Path) -> None:
    """Let a repaired partition take its place, if a crash came between the two renames."""
    repaired = folder.with_name(longer(folder.name, _REPAIRED))
    if files.exists(repaired) and not files.exists(folder):
        files.rename(repaired, folder)
        files.sync_folder(folder.parent)


def _identity(files: Files, folder: Path) -> PartitionId:
    entry = _entry(files, folder)
    return PartitionId(entry.id, int(folder.name.rpartition("-")[2]))


def _entry(files: Files, folder: Path) -> TopicEntry:
    entry = read_identity(files, folder)
    if entry is None or not folder.name.rpartition("-")[2].isdigit():
        raise StorageError(
            f"repair {folder}",
            "its topic.json cannot be read",
            "copy it from another partition of the topic",
        )
    return entry


def _clear(files: Files, folder: Path) -> None:
    """Remove what an earlier, interrupted repair has built."""
    if files.exists(folder):
        for name in files.list(folder):
            files.remove(folder / name)
        files.remove_folder(folder)


def _build(files: Files, source: Path, target: Path, chosen: Plan) -> None:
    """Write the kept batches as new segments, one for each unbroken run of the old ones."""
    files.make_folder(target)
    write_identities(files, target.parent, [target], _entry(files, source))
    runs = _runs(chosen)
    segments = found_segments(files, source)
    for at, run in enumerate(runs):
        old = files.open(segments[run[0].base_offset])
        new = files.open(segment_path(target, run[0].header.base_offset), create=True)
        size = 0
        for batch in run:
            data = batch.data or old.pread(batch.header.size, batch.position)
            new.pwrite([data], size)
            size += batch.header.size
        if at + 1 < len(runs):
            _vouch(files, target, run, size, runs[at + 1][0].header.base_offset)
    if not runs:
        files.open(segment_path(target, chosen.end_offset), create=True)


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
    path = checkpoints.checkpoint_path(folder, run[0].header.base_offset)
    write_atomically(files, path, checkpoints.encode(checkpoint))
