"""How far a partition is compacted: a small file beside its segments.

    compacted.json   {"end": offset, "horizon": milliseconds or null}

Everything below end has been through a pass. Horizon is the earliest time at which tombstones and
markers there may go. A damaged file costs one pass over the whole partition and nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from penstock.files import Files, read_whole, write_atomically
from penstock.log.journal import NOT_UNDERSTOOD

_ANYWHERE = 2**63 - 1


class Compacted(NamedTuple):
    """See the module."""

    end: int = 0
    horizon: int | None = None


def load(files: Files, folder: Path) -> Compacted:
    """What the file says; nothing is compacted where there is none."""
    path = folder / "compacted.json"
    if not files.exists(path):
        return Compacted()
    try:
        fields = json.loads(read_whole(files, path))
        horizon = fields["horizon"]
        return Compacted(int(fields["end"]), None if horizon is None else int(horizon))
    except NOT_UNDERSTOOD:
        return Compacted()


def reach(files: Files, folder: Path) -> int:
    """Below which offset batches and markers may be gone: anywhere, if the file is damaged."""
    known = load(files, folder)
    damaged = known.end == 0 and files.exists(folder / "compacted.json")
    return _ANYWHERE if damaged else known.end


def save(files: Files, folder: Path, compacted: Compacted) -> None:
    """Replace the file, synced."""
    data = json.dumps(compacted._asdict()).encode() + b"\n"
    write_atomically(files, folder / "compacted.json", data)
