"""Who runs a pipeline: a lock on a file, which opens when the last process that has it ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

# Those who ask who holds the lock have it for an instant themselves.
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.02


class HeldError(Exception):
    """Somebody else has the lock."""

    def __init__(self, pid: int | None) -> None:
        super().__init__(f"process {pid or 'unknown'}")
        self.pid = pid


class PipelineLock:
    """Held from now on; the file names this process.

    Raises:
        HeldError: somebody else has it.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        for tries in range(_TRIES):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if tries == _TRIES - 1:
                    self._file.close()
                    raise HeldError(_written(path)) from None
            time.sleep(_PAUSE_SECONDS)
        self._file.truncate(0)
        self._file.write(str(os.getpid()).encode())
        self._file.flush()

    @property
    def descriptor(self) -> int:
        """For a child process that shall hold the lock too."""
        return self._file.fileno()

    def release(self) -> None:
        """Let go; children that hold it go on holding it."""
        self._file.close()


def holder(path: Path) -> HeldError | None:
    """Who holds the lock, or None if nobody does."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return HeldError(_written(path))
    return None


def _written(path: Path) -> int | None:
    text = path.read_text(encoding="ascii", errors="replace").strip()
    return int(text) if text.isdecimal() else None
