"""The page cache between two measurements."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def forget_pages(folder: Path) -> None:
    """Take everything below the folder out of the page cache.

    Whoever writes next then gets memory that this machine already has. A virtual machine whose cache
    grows has to be given more of it by its host first, which costs the writer twice the processor
    time; and a broker that keeps deleted files for a minute, as Kafka does, would have it cost the
    other one.
    """
    os.sync()  # only clean pages go
    for parent, _, names in os.walk(folder):
        for name in names:
            # What is being deleted may go at any moment.
            with contextlib.suppress(FileNotFoundError), Path(parent, name).open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
