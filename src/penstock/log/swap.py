"""Puts a compacted segment in the place of those it was made from; a crash leaves one or the other.

    FIRST.log.cleaned, .index.cleaned, .timeindex.cleaned, .checkpoint.cleaned
        being written, or written and synced; a start removes them
    FIRST-END.swap
        the .log.cleaned under its second name: from here on it counts. It stands for all segments
        from offset FIRST to END; a start finishes what is left to do

The rename to .swap is the only moment that decides. What follows can be done again at any time: remove
the segments behind the first, put the indexes and the checkpoint in place, and last the log itself.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from penstock.files import Files
from penstock.log.segment import base_of, segment_path

CLEANED = ".cleaned"
PARTS = ("index", "timeindex", "checkpoint")
_SWAP_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.swap")


class Swap(NamedTuple):
    """A compacted segment that counts and has not taken its place yet."""

    first: int
    end: int


def cleaned_path(folder: Path, first: int, part: str) -> Path:
    """Where a part of a compacted segment is written."""
    path = segment_path(folder, first, part)
    return path.with_name(path.name + CLEANED)


def swap_path(folder: Path, swap: Swap) -> Path:
    """The log of a swap under way."""
    return folder / f"{swap.first:020d}-{swap.end:020d}.swap"


def pending(files: Files, folder: Path) -> list[Swap]:
    """The swaps that a crash interrupted."""
    found = [_SWAP_NAME.fullmatch(name) for name in files.list(folder)]
    return [Swap(int(match[1]), int(match[2])) for match in found if match]


def commit(files: Files, folder: Path, swap: Swap) -> None:
    """Let a compacted segment count, and put it in its place."""
    files.rename(cleaned_path(folder, swap.first, "log"), swap_path(folder, swap))
    complete(files, folder, swap)


def complete(files: Files, folder: Path, swap: Swap) -> None:
    """Do what is left of a swap; all of it may have been done before."""
    # Before anything is removed the new name must be certain; after a kill it need not be.
    files.sync_folder(folder)
    names = files.list(folder)
    replaced = [b for name in names if (b := base_of(name)) is not None and b > swap.first]
    for base in replaced:
        if base < swap.end:
            for part in (*PARTS, "log"):
                path = segment_path(folder, base, part)
                if path.name in names:
                    files.remove(path)
    for part in PARTS:
        path = cleaned_path(folder, swap.first, part)
        if path.name in names:
            files.rename(path, segment_path(folder, swap.first, part))
    files.sync_folder(folder)
    files.rename(swap_path(folder, swap), segment_path(folder, swap.first))
    files.sync_folder(folder)


def discard(files: Files, folder: Path) -> None:
    """Remove what was written and does not count."""
    if not files.exists(folder):
        return
    for name in files.list(folder):
        if name.endswith(CLEANED):
            files.remove(folder / name)


def segment_files(files: Files, folder: Path) -> dict[int, Path]:
    """The log file of every segment by its first offset, with swaps under way seen as done."""
    names = files.list(folder)
    swaps = pending(files, folder)
    found = {
        base: folder / name
        for name in names
        if (base := base_of(name)) is not None
        and not any(swap.first <= base < swap.end for swap in swaps)
    }
    found |= {swap.first: swap_path(folder, swap) for swap in swaps}
    return dict(sorted(found.items()))
