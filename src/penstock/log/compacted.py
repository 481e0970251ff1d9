"""How far a partition is compacted: a small file beside its segments.

    compacted.json   {"end": offset, "horizon": milliseconds or null}

Everything below end has been through a pass. Horizon is the earliest time at which tombstones there
may go. A missing or damaged file costs one pass over the whole partition and nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from penstock.files import Files, read_whole, write_atomically
from penstock.log.journal import NOT_UNDERSTOOD


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


def save(files: Files, folder: Path, compacted: Compacted) -> None:
    """Replace the file, synced."""
    data = json.dumps(compacted._asdict()).encode() + b"\n"
    write_atomically(files, folder / "compacted.json", data)
