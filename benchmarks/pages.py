"""The page cache between two measurements."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_PAUSE_SECONDS = 0.1
_LITTLE_KIB = 8 * 1024
"""By so much the cache may shrink or grow for other reasons."""


def forget_pages(folder: Path) -> None:
    """Take everything below the folder out of the page cache.

    Whoever writes next then gets memory that this machine already has. A virtual machine whose cache
    grows has to be given more of it by its host first, which costs the writer twice the processor time.

    Once is not enough: most of what a broker has just handed to the network from the cache, as Kafka
    does, stays there the first time, and whoever came next paid for it.
    """
    os.sync()  # only clean pages go
    before = _cached_kib()
    while True:
        _forget_once(folder)
        time.sleep(_PAUSE_SECONDS)
        _forget_once(folder)
        after = _cached_kib()
        if before - after < _LITTLE_KIB:
            return
        before = after


def _forget_once(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            # What is being deleted may go at any moment.
            with contextlib.suppress(FileNotFoundError), Path(parent, name).open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _cached_kib() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Cached:"):
            return int(line.split()[1])
    raise RuntimeError("/proc/meminfo does not tell what is cached")
