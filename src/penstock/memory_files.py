"""A file system in memory, for topics whose owner chose durability `memory`.

It behaves as the operating system does, down to the type of every error (the contract suite holds
both to that). But nothing survives the process, so the sync calls only check that what they name
is there. It is not a cache and knows nothing of disks; the crash tests build theirs on top of it
(penstock.testing.faulty).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from penstock.files import NAME_BYTES_MAX, Buffer, File


class Content:
    """The bytes of one file, whatever its name is by now."""

    def __init__(self) -> None:
        self.data = bytearray()


class Folder:
    """Names and what they stand for."""

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}


Node = Content | Folder
# Bind a name in a folder to a node, or to nothing.
Binding = tuple[Folder, str, Node | None]


def failure(code: int, path: Path | str) -> OSError:
    """The error the operating system reports for this code: OSError picks the subclass."""
    return OSError(code, os.strerror(code), str(path))


class MemoryFile:
    """An open file in memory."""

    __slots__ = ("_content", "path")

    def __init__(self, path: Path, content: Content) -> None:
        self.path = path
        self._content = content

    def pwrite(self, data: Sequence[Buffer], position: int) -> None:
        """Write all of data at position, with zeros between the old end and position."""
        if position < 0:
            raise failure(errno.EINVAL, self.path)
        content = self._content.data
        for piece in data:
            if len(content) < position and len(piece):
                content.extend(bytes(position - len(content)))
            content[position : position + len(piece)] = piece
            position += len(piece)

    def pread(self, size: int, position: int) -> bytes:
        """Up to size bytes from position."""
        return bytes(self._read(size, position))

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        """As pread; never None, since there is no disk to wait for."""
        return self._read(size, position)

    def is_cached(self, size: int, position: int) -> bool:
        """Always: there is no disk."""
        return True

    def send(self, socket: int, size: int, position: int) -> int:
        """Write to the socket."""
        return os.write(socket, self._read(size, position))

    def size(self) -> int:
        """Length in bytes."""
        return len(self._content.data)

    def truncate(self, size: int) -> None:
        """Cut or extend to size."""
        if size < 0:
            raise failure(errno.EINVAL, self.path)
        content = self._content.data
        if size < len(content):
            del content[size:]
        else:
            content.extend(bytes(size - len(content)))

    def sync(self) -> None:
        """Nothing to do."""

    def reserve(self, size: int, position: int) -> None:
        """Nothing to do: there is no disk."""

    def give_back(self) -> None:
        """Nothing to do."""

    def _read(self, size: int, position: int) -> bytearray:
        if position < 0:
            raise failure(errno.EINVAL, self.path)
        # A slice is a copy in one step: a view would forbid the writer to grow the file meanwhile.
        return self._content.data[position : position + size]


class MemoryFiles:
    """A file system in memory."""

    def __init__(self) -> None:
        self._root = self._new_folder()
        self._root.entries["/"] = self._new_folder()

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing."""
        return MemoryFile(path, self._content(path, create))

    def exists(self, path: Path) -> bool:
        """Whether path exists."""
        try:
            self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, folder: Path) -> dict[str, int]:
        """Names with sizes."""
        found = self._folder(folder).entries
        return {
            name: len(node.data) if isinstance(node, Content) else 0
            for name, node in sorted(found.items())
        }

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents."""
        if self.exists(path):
            if not isinstance(self._node(path), Folder):
                raise failure(errno.EEXIST, path)
            return
        if not self.exists(path.parent):
            self.make_folder(path.parent)
        self._bind((self._folder(path.parent), path.name, self._new_folder()))

    def rename(self, old: Path, new: Path) -> None:
        """Rename, replacing a file or an empty folder."""
        source, target = self._folder(old.parent), self._folder(new.parent)
        node = self._node(old)
        replaced = target.entries.get(new.name)
        if node is replaced:
            return
        if isinstance(node, Folder):
            if isinstance(replaced, Content):
                raise failure(errno.ENOTDIR, new)
            if old in new.parents:
                raise failure(errno.EINVAL, new)
            if replaced is not None and replaced.entries:
                raise failure(errno.ENOTEMPTY, new)
        elif isinstance(replaced, Folder):
            raise failure(errno.EISDIR, new)
        self._bind((source, old.name, None), (target, new.name, node))

    def remove(self, path: Path) -> None:
        """Remove a file; whoever has it open still reads and writes it."""
        if isinstance(self._node(path), Folder):
            raise failure(errno.EISDIR, path)
        self._bind((self._folder(path.parent), path.name, None))

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        if self._folder(path).entries:
            raise failure(errno.ENOTEMPTY, path)
        self._bind((self._folder(path.parent), path.name, None))

    def sync_folder(self, path: Path) -> None:
        """Nothing to do for a folder that exists."""
        self._folder(path)

    def sync_all(self, path: Path) -> None:
        """Nothing to do for a folder that exists."""
        self._folder(path)

    def free_bytes(self, path: Path) -> int:
        """Memory the machine can still give without swapping."""
        self._node(path)
        return _memory("MemAvailable:")

    def total_bytes(self, path: Path) -> int:
        """Memory of the machine."""
        self._node(path)
        return _memory("MemTotal:")

    def allocate(self, path: Path, size: int) -> None:
        """Create path with at least size bytes."""
        content = self._content(path, create=True)
        if size <= 0:
            raise failure(errno.EINVAL, path)
        content.data.extend(bytes(max(0, size - len(content.data))))

    # What a subclass that remembers more than the present state replaces.

    def _new_content(self) -> Content:
        return Content()

    def _new_folder(self) -> Folder:
        return Folder()

    def _bind(self, *bindings: Binding) -> None:
        """Every change of names ends here; the bindings of one call belong together."""
        for _, name, _ in bindings:
            if len(name.encode()) > NAME_BYTES_MAX:
                raise failure(errno.ENAMETOOLONG, name)
        for folder, name, node in bindings:
            if node is None:
                del folder.entries[name]
            else:
                folder.entries[name] = node

    # Finding things, with the operating system's errors.

    def _node(self, path: Path) -> Node:
        node: Node = self._root
        for name in path.parts:
            if not isinstance(node, Folder):
                raise failure(errno.ENOTDIR, path)
            if name not in node.entries:
                raise failure(errno.ENOENT, path)
            node = node.entries[name]
        return node

    def _folder(self, path: Path) -> Folder:
        node = self._node(path)
        if not isinstance(node, Folder):
            raise failure(errno.ENOTDIR, path)
        return node

    def _content(self, path: Path, create: bool) -> Content:
        node = self._folder(path.parent).entries.get(path.name) if path.name else self._root
        if isinstance(node, Folder):
            raise failure(errno.EISDIR, path)
        if node is None:
            if not create:
                raise failure(errno.ENOENT, path)
            node = self._new_content()
            self._bind((self._folder(path.parent), path.name, node))
        return node


def _memory(name: str) -> int:
    with Path("/proc/meminfo").open(encoding="ascii") as lines:
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith(name)))
