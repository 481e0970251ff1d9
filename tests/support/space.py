"""Room on a disk in memory."""

from __future__ import annotations

from pathlib import Path

from penstock.clock import Clock
from penstock.files import Files
from penstock.log.space import DiskSpace


def small_reserve(files: Files, folder: Path, clock: Clock) -> DiskSpace:
    """Space as a broker watches it, whose reserve is quickly copied for each of many crashes."""
    return DiskSpace(files, folder, clock, reserve_bytes=4096)
