"""Files of a sink or a checkpoint, on a local disk or in an object store, through fsspec.

An object store keeps what it has acknowledged. A local disk does so after a sync of the file and of its
folder, which fsspec does not do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from penstock.files import OsFiles, write_atomically


class DurableFolder:
    """A folder by its address, such as a path or `s3://bucket/folder`.

    Args:
        address: where it is.
        options: of its file system, as fsspec has them.
    """

    def __init__(self, address: str, options: Mapping[str, Any] | None = None) -> None:
        self.files, root = fsspec.core.url_to_fs(address, **(options or {}))
        self._root = root.rstrip("/")
        self._local = isinstance(self.files, LocalFileSystem)

    def path(self, name: str) -> str:
        """What the file system calls a file of this folder."""
        return f"{self._root}/{name}"

    def address(self, name: str) -> str:
        """What others call it, with its protocol."""
        return str(self.files.unstrip_protocol(self.path(name)))

    def names(self, folder: str) -> list[str]:
        """What a folder within holds, without its path; nothing if there is no such folder."""
        self.files.invalidate_cache()
        try:
            found = self.files.ls(self.path(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(one.rstrip("/").rpartition("/")[2] for one in found)

    def read(self, name: str) -> bytes | None:
        """The contents of a file; None if it is not there."""
        try:
            return bytes(self.files.cat_file(self.path(name)))
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes) -> None:
        """Make a file or replace it, at once and durably."""
        if not self._local:
            self.files.pipe_file(self.path(name), data)
            return
        path = Path(self.path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(OsFiles(), path, data)
        self._sync_folders(path.parent)

    def put_new(self, name: str, data: bytes, scratch: str) -> bool:
        """Make a file at once and durably, or find that somebody else has made it.

        Args:
            name: the file.
            data: all of it.
            scratch: the file that it is first, on a local disk; of whoever asks, alone.
        """
        if not self._local:
            try:
                self.files.pipe_file(self.path(name), data, mode="create")
            except FileExistsError:
                return False
            return True
        path, first = Path(self.path(name)), Path(self.path(scratch))
        path.parent.mkdir(parents=True, exist_ok=True)
        files = OsFiles()
        file = files.open(first, create=True)
        file.pwrite([data], 0)
        file.sync()
        try:
            path.hardlink_to(first)  # unlike a rename it never replaces
        except FileExistsError:
            return False
        finally:
            files.remove(first)
        self._sync_folders(path.parent)
        return True

    def make_durable(self, name: str) -> None:
        """See to it that a file that was written and closed stays."""
        if self._local:
            path = Path(self.path(name))
            OsFiles().open(path).sync()
            self._sync_folders(path.parent)

    def remove(self, name: str) -> None:
        """Remove a file or a folder with all it holds."""
        self.files.rm(self.path(name), recursive=True)

    def _sync_folders(self, folder: Path) -> None:
        """From a folder up to the root, each of which may be new."""
        files = OsFiles()
        root = Path(self._root)
        for one in (folder, *folder.parents):
            files.sync_folder(one)
            if one == root.parent:
                return
