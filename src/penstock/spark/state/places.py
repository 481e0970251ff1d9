"""Where files of state are: a folder on a local disk, or one of an object store.

A file is there whole or not at all, and when `write` has returned it stays there. Files do not change,
but for a batch that runs again, which writes its own anew.
"""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import fsspec
import pyarrow as pa

from penstock.files import Files, OsFiles, read_whole, write_atomically

_FOLDER: Final = "state-of-penstock"
# What Hadoop calls the same store.
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}


class Place(Protocol):
    """A folder; the same one is equal to itself."""

    def __hash__(self) -> int: ...

    @property
    def url(self) -> str:
        """What people know it by."""
        ...

    def below(self, name: str) -> Place:
        """A folder in it."""
        ...

    def read(self, name: str) -> pa.Buffer:
        """A whole file; FileNotFoundError if it is not there."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Put a file there for good, in place of one of the same name."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        ...

    def names(self) -> list[str]:
        """Names of files and folders; none if it is not there itself."""
        ...


@dataclass(frozen=True)
class LocalPlace:
    """On a disk; synced before a name is given."""

    folder: Path
    files: Files = field(default_factory=OsFiles, compare=False)

    @property
    def url(self) -> str:
        """The path."""
        return str(self.folder)

    def below(self, name: str) -> LocalPlace:
        """A folder in it."""
        return LocalPlace(self.folder / name, self.files)

    def read(self, name: str) -> pa.Buffer:
        """Mapped, not read, where there is a disk: a page costs something when it is touched."""
        path = self.folder / name
        if isinstance(self.files, OsFiles):
            with pa.memory_map(str(path)) as mapped:
                return mapped.read_buffer()
        return pa.py_buffer(bytes(read_whole(self.files, path)))

    def write(self, name: str, data: bytes) -> None:
        """Put a file there; its folder is made with the first."""
        if not self.files.exists(self.folder):
            self._make_folder(self.folder)
        # Two tries of a task may write the same file at once, with the same bytes.
        write_atomically(self.files, self.folder / name, data, f".{uuid.uuid4().hex}.tmp")

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        if self.files.exists(self.folder / name):
            self.files.remove(self.folder / name)

    def names(self) -> list[str]:
        """Names without what a crash left half written."""
        if not self.files.exists(self.folder):
            return []
        return [name for name in self.files.list(self.folder) if not name.endswith(".tmp")]

    def _make_folder(self, folder: Path) -> None:
        """A new folder is there after a crash only if the one above it was synced."""
        if self.files.exists(folder):
            return
        self._make_folder(folder.parent)
        self.files.make_folder(folder)
        self.files.sync_folder(folder.parent)


@dataclass(frozen=True)
class RemotePlace:
    """In an object store, which takes a file whole or not at all.

    What is read is held in a file without a name on the local disk, and mapped from there.
    """

    url: str
    system: Any = field(compare=False)

    def below(self, name: str) -> RemotePlace:
        """A folder in it."""
        return RemotePlace(f"{self.url}/{name}", self.system)

    def read(self, name: str) -> pa.Buffer:
        """Fetch a file; nobody remembers it here but who asked."""
        with tempfile.NamedTemporaryFile(prefix="penstock-state-") as local:
            local.write(self.system.cat_file(f"{self.url}/{name}"))
            local.flush()
            with pa.memory_map(local.name) as mapped:
                return mapped.read_buffer()

    def write(self, name: str, data: bytes) -> None:
        """One PUT."""
        self.system.pipe_file(f"{self.url}/{name}", data)

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        try:
            self.system.rm_file(f"{self.url}/{name}")
        except FileNotFoundError:
            return

    def names(self) -> list[str]:
        """Asked of the store, not of what was listed before."""
        self.system.invalidate_cache(self.url)
        try:
            found = self.system.ls(self.url, detail=False)
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)


def place(url: str) -> Place:
    """The folder that a path or an address of fsspec's names."""
    scheme, separator, rest = url.partition("://")
    if separator:
        url = f"{_SCHEMES.get(scheme, scheme)}://{rest}"
    system, path = fsspec.core.url_to_fs(url)
    if "file" in (system.protocol if isinstance(system.protocol, tuple) else [system.protocol]):
        return LocalPlace(Path(path))
    return RemotePlace(path.rstrip("/"), system)


def states_place(checkpoint: str) -> Place:
    """Where a checkpoint has the states of its query."""
    return place(checkpoint).below(_FOLDER)


def operator_place(checkpoint: str, name: str) -> Place:
    """Where a checkpoint has the state of that name."""
    return states_place(checkpoint).below(name)
