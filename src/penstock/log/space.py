"""Watches the free space, so that a full disk refuses writes early and metadata still finds room.

States:  open --(free < minimum, or a write met a full disk)--> full --(free >= minimum again)--> open

While full, the reserve file is given up, so that deletes, journals and the shutdown can go on; it is
taken back when space returns.

This module may run compiled (setup.py), with the C types that stand in space.pxd.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.clock import Clock
from penstock.errors import DiskFullError
from penstock.files import Files, SyncAllError, lacks_descriptor
from penstock.limits import (
    DISK_CHECK_BYTES,
    DISK_CHECK_SECONDS,
    DISK_FREE_BYTES_MIN,
    DISK_RESERVE_BYTES,
)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_log = logging.getLogger(__name__)


def means_full(error: OSError) -> bool:
    """Whether an error says that the disk, or the owner's share of it, is used up."""
    return error.errno in _FULL


def found_room(write: Callable[[], None], make_room: Callable[[], None]) -> bool:
    """Write metadata, if need be in the room that was kept for it.

    False if there is none, or no descriptor for the file that it would be written to.
    """
    for _ in range(2):
        try:
            write()
            return True
        except SyncAllError:
            raise  # a failed sync says nothing about room, and must not be tried again
        except OSError as error:
            if lacks_descriptor(error):
                return False
            if not means_full(error):
                raise
            make_room()
    return False


class DiskSpace:
    """Says whether new data may be written."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        clock: Clock,
        *,
        free_bytes_min: int = DISK_FREE_BYTES_MIN,
        reserve_bytes: int = DISK_RESERVE_BYTES,
    ) -> None:
        self._files = files
        self._folder = folder
        self._clock = clock
        self._free_bytes_min = free_bytes_min
        self._reserve_bytes = reserve_bytes
        self._open_again_bytes = free_bytes_min + reserve_bytes
        self._reserve = folder / "reserve"
        self._looked_at = float("-inf")
        self._since_look = DISK_CHECK_BYTES
        self.full = False

    def begin(self) -> None:
        """A start writes metadata before anything else: what is reserved for that is given up."""
        if self._files.free_bytes(self._folder) < self._free_bytes_min:
            self._become_full()

    def check(self, size: int = 0) -> None:
        """Pass if size bytes may be written, or raise DiskFullError.

        Cheap: the disk is asked once for every few megabytes, or a few times a second while full.
        """
        self._since_look += size
        if self.full or self._since_look >= DISK_CHECK_BYTES:
            self._look_again()
        if self.full:
            raise self.error()

    def watch(self) -> None:
        """Look whoever writes, as others may fill the disk. Called now and then."""
        self._look()

    def _look_again(self) -> None:
        now = self._clock.monotonic()
        if not self.full or now - self._looked_at >= DISK_CHECK_SECONDS:
            self._looked_at = now
            self._since_look = 0
            self._look()

    def found_full(self) -> None:
        """A write met a full disk."""
        self._become_full()
        self._looked_at = self._clock.monotonic()

    def error(self) -> DiskFullError:
        """What a refused writer is told."""
        return DiskFullError(
            "append",
            f"less than {self._free_bytes_min // 2**20} MiB, or no inode, are free in {self._folder}",
            "make room with `penstock topics trim` or a shorter retention.ms; "
            f"writes go on by themselves when {self._open_again_bytes // 2**20} MiB are free",
        )

    def _look(self) -> None:
        free = self._files.free_bytes(self._folder)
        if self.full and free >= self._open_again_bytes:
            self._become_open()
        elif not self.full and free < self._free_bytes_min:
            self._become_full()
        elif not self.full and not self._files.exists(self._reserve):
            self._take_reserve()

    def _become_full(self) -> None:
        if self.full:
            return
        self.full = True
        _log.warning("disk full: writes are refused, readers and deletion go on")
        with suppress(FileNotFoundError):
            self._files.remove(self._reserve)

    def _become_open(self) -> None:
        self.full = False
        _log.warning("space has returned: writes are accepted again")
        self._take_reserve()

    def _take_reserve(self) -> None:
        try:
            self._files.allocate(self._reserve, self._reserve_bytes)
        except OSError as error:
            if not means_full(error):
                raise
            self._become_full()
