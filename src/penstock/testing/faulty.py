"""A strict file system in memory that crashes, fails and fills up on request.

It promises exactly what POSIX and Linux promise and nothing more: written bytes are certain after
`File.sync`, names after `sync_folder` of their folder, everything after `sync_all`. `after_crash`
gives the file system that the next process finds, under a policy for what was not certain.

What it is not: a model of one real file system. ext4 keeps more than this one does (a synced file
keeps its name, names survive in order); whoever is safe here is safe there. It also does not model
sectors that rot by themselves: tests flip bits by hand.
"""

from __future__ import annotations

import copy
import errno
import random
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.files import Buffer
from penstock.memory_files import Binding, Content, Folder, MemoryFile, MemoryFiles, failure
from penstock.testing.power_failure import (
    DiskContent,
    DiskFolder,
    Keep,
    Names,
    PowerFailure,
    Write,
    names_on_disk,
    rebind,
    walk,
)

# Operations that change or sync something. Each gets a number; "any" in fail() means one of these.
CHANGES = frozenset(
    (
        *("create", "pwrite", "truncate", "sync", "allocate", "reserve", "give_back"),
        *("rename", "remove", "make_folder", "remove_folder", "sync_folder", "sync_all"),
    )
)
# Operations that can only be made to fail.
READS = frozenset(("open", "list", "pread", "pread_cached", "send"))
_UNLIMITED = 1 << 50


class Crash(BaseException):
    """The machine stops here; not an Exception, so that no handler swallows it."""


@dataclass
class _Failure:
    """An error that waits for its turn."""

    kind: str
    code: int
    countdown: int
    sticky: bool


class FaultyFile:
    """An open file of FaultyFiles."""

    def __init__(self, files: FaultyFiles, path: Path, content: DiskContent) -> None:
        self.path = path
        self.content = content
        self._files = files
        self._memory = MemoryFile(path, content)

    def pwrite(self, data: Sequence[Buffer], position: int) -> None:
        """Write all of data, or a part of it and raise."""
        self._files.do_pwrite(self, b"".join(data), position)

    def pread(self, size: int, position: int) -> bytes:
        """Up to size bytes from position."""
        with self._files.reading("pread", self.path):
            return self._memory.pread(size, position)

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        """As pread, or None if the file system was told to be cold."""
        with self._files.reading("pread_cached", self.path):
            return None if self._files.cold else self._memory.pread_cached(size, position)

    def is_cached(self, size: int, position: int) -> bool:
        """Unless the file system was told to be cold."""
        with self._files.reading("is_cached", self.path):
            return not self._files.cold

    def send(self, socket: int, size: int, position: int) -> int:
        """Write to the socket."""
        with self._files.reading("send", self.path):
            return self._memory.send(socket, size, position)

    def size(self) -> int:
        """Length in bytes."""
        with self._files.reading("size", self.path):
            return self._memory.size()

    def truncate(self, size: int) -> None:
        """Cut or extend to size."""
        self._files.do_truncate(self, size)

    def sync(self) -> None:
        """Make the bytes and the length certain."""
        self._files.do_sync(self)

    def reserve(self, size: int, position: int) -> None:
        """Changes nothing that could be lost; only room, of which this disk keeps no account."""
        self._files.do_nothing("reserve", f"{self.path} {position}+{size}")

    def give_back(self) -> None:
        """Changes nothing that could be lost."""
        self._files.do_nothing("give_back", str(self.path))


class FaultyFiles(MemoryFiles):
    """The file system.

    Args:
        rng: decides how much of a write a crash in its middle applies.
        crash_at: number of the operation that crashes.
        capacity: size of the disk in bytes, None for no limit. Holes count as if they were written.
        sync_is_noop: syncs return at once and make nothing certain; a test of durability that
            passes on such a disk tests nothing.
        cold: pread_cached finds nothing in the cache.

    All of these may be set at any time. `trace` tells what happened, `operations` how many
    operations were numbered. `during_sync`, if set, is called in the middle of every sync of bytes:
    what it writes is not part of that sync.
    """

    def __init__(
        self,
        rng: random.Random | None = None,
        *,
        crash_at: int | None = None,
        capacity: int | None = None,
        sync_is_noop: bool = False,
        cold: bool = False,
    ) -> None:
        super().__init__()
        names_on_disk(self._root).update(self._root.entries)
        self.crash_at = crash_at
        self.capacity = capacity
        self.sync_is_noop = sync_is_noop
        self.cold = cold
        self.during_sync: Callable[[Path], None] | None = None
        self.operations = 0
        self.crashed = False
        self.trace: list[str] = []
        self._rng = rng or random.Random(0)  # noqa: S311 - tests want repeatable, not secret
        self._names: list[Names] = []
        self._failures: list[_Failure] = []
        self._handles: weakref.WeakSet[FaultyFile] = weakref.WeakSet()
        # The log syncs on one thread, reads cold pages on others and writes on a third.
        self._lock = threading.RLock()

    # What goes wrong, and what is left.

    def fail(self, kind: str, code: int, *, at: int = 1, sticky: bool = False) -> None:
        """Let an operation raise OSError(code).

        Args:
            kind: one of CHANGES or READS, or "any" for all of CHANGES.
            code: from errno.
            at: which operation of that kind from now on; 1 is the next one.
            sticky: all later ones of that kind fail, too, until heal().

        A failed pwrite writes half of its bytes first. A failed sync loses the unsynced bytes as
        Linux does: they read as written, but later syncs succeed without them. Others change
        nothing.
        """
        assert kind in CHANGES | READS | {"any"}, kind
        self._failures.append(_Failure(kind, code, at, sticky))

    def heal(self) -> None:
        """Forget all failures that were asked for."""
        self._failures.clear()

    def after_crash(self, policy: Keep, rng: random.Random) -> FaultyFiles:
        """The file system as the next process finds it; this one raises Crash from now on."""
        with self._lock:
            self.crashed = True
            after = FaultyFiles(
                rng, capacity=self.capacity, sync_is_noop=self.sync_is_noop, cold=self.cold
            )
            if policy is Keep.EVERYTHING:
                after._take_over(self)
                after.trace.append("after a crash: everything")
                return after
            power_failure = PowerFailure(policy, rng, self._names)
            after._root = power_failure.tree(self._root)
            kept = power_failure.names_kept
            after.trace.append(f"after a crash: {policy.value}, unsynced names: {kept}")
            return after

    def flip(self, path: Path, byte_index: int, bit: int) -> None:
        """Invert one bit, on the disk and in the cache."""
        content = self._existing(path)
        content.data[byte_index] ^= 1 << bit
        if byte_index < len(content.disk):
            content.disk[byte_index] ^= 1 << bit
        # A write on its way to the disk would undo the damage.
        for write in content.pending:
            if write.data is not None and 0 <= byte_index - write.position < len(write.data):
                damaged = bytearray(write.data)
                damaged[byte_index - write.position] ^= 1 << bit
                write.data = bytes(damaged)

    def read(self, path: Path) -> bytes:
        """A file's bytes as processes see them, even after a crash."""
        return bytes(self._existing(path).data)

    def write(self, path: Path, data: bytes) -> None:
        """Put a file there, certain at once and without an operation, with the folders it needs."""
        folder = self._root
        for name in path.parts[:-1]:
            node = folder.entries.setdefault(name, DiskFolder())
            assert isinstance(node, Folder)
            names_on_disk(folder)[name] = node
            folder = node
        content = folder.entries.setdefault(path.name, DiskContent())
        assert isinstance(content, DiskContent)
        names_on_disk(folder)[path.name] = content
        content.data[:] = content.disk[:] = data
        content.pending.clear()

    def paths(self) -> Sequence[Path]:
        """All files, as processes see them."""
        return [path for path, _ in walk(self._root, Path(), lambda folder: folder.entries)]

    # Files. The lock is released in the middle of a sync only.

    def do_pwrite(self, file: FaultyFile, data: bytes, position: int) -> None:
        """FaultyFile.pwrite."""
        with self._lock:
            name = f"{file.path} {position}+{len(data)}"
            try:
                self._operation("pwrite", name)
            except Crash:
                self._write(file, data[: self._rng.randint(0, len(data))], position)
                raise
            except OSError:
                self._write(file, data[: len(data) // 2], position)
                raise
            grows = max(0, position + len(data) - len(file.content.data))
            room = self._room()
            if grows > room:
                self._write(file, data[: max(0, len(data) - grows + room)], position)
                self.trace[-1] += " disk full"
                raise failure(errno.ENOSPC, file.path)
            self._write(file, data, position)

    def do_truncate(self, file: FaultyFile, size: int) -> None:
        """FaultyFile.truncate."""
        with self._lock:
            number = self._operation("truncate", f"{file.path} {size}")
            MemoryFile(file.path, file.content).truncate(size)
            file.content.pending.append(Write(number, size, None))

    def do_nothing(self, kind: str, name: str) -> None:
        """Count an operation without effect, at which the machine may crash, or which may fail."""
        with self._lock:
            self._operation(kind, name)

    def do_sync(self, file: FaultyFile) -> None:
        """FaultyFile.sync."""
        with self._lock:
            size = len(file.content.data)
            try:
                number = self._operation("sync", str(file.path))
            except OSError:
                file.content.pending.clear()
                raise
        if self.during_sync is not None:
            self.during_sync(file.path)
        with self._lock:
            self._alive()
            if not self.sync_is_noop:
                file.content.sync(number, size)

    def reading(self, kind: str, path: Path) -> threading.RLock:
        """The lock to read under, after failing if that was asked for."""
        with self._lock:
            self._alive()
            self._maybe_fail(kind, f"{kind} {path}")
            return self._lock

    # Files by name.

    def open(self, path: Path, *, create: bool = False) -> FaultyFile:
        """Open for reading and writing."""
        with self.reading("open", path):
            if create and not self.exists(path):
                self._operation("create", str(path))
            content = self._content(path, create)
            assert isinstance(content, DiskContent)
            file = FaultyFile(self, path, content)
            self._handles.add(file)
            return file

    def exists(self, path: Path) -> bool:
        """Whether path exists."""
        with self._lock:
            self._alive()
            return super().exists(path)

    def list(self, folder: Path) -> dict[str, int]:
        """Names with sizes."""
        with self.reading("list", folder):
            return super().list(folder)

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents: one operation each."""
        with self._lock:
            missing = [p for p in (path, *path.parents) if not self.exists(p)]
            for folder in reversed(missing):
                self._operation("make_folder", str(folder))
                super().make_folder(folder)
            super().make_folder(path)

    def rename(self, old: Path, new: Path) -> None:
        """Rename, replacing."""
        with self._lock:
            self._operation("rename", f"{old} to {new}")
            super().rename(old, new)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        with self._lock:
            self._operation("remove", str(path))
            super().remove(path)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        with self._lock:
            self._operation("remove_folder", str(path))
            super().remove_folder(path)

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder certain; not the folder's own name."""
        with self._lock:
            number = self._operation("sync_folder", str(path))
            folder = self._folder(path)
            if not self.sync_is_noop:
                self._sync_names(number, folder)

    def sync_all(self, path: Path) -> None:
        """Make all names and bytes certain."""
        with self._lock:
            sizes = [(content, len(content.data)) for content in self._contents()]
            try:
                number = self._operation("sync_all", str(path))
            except OSError:
                for content, _ in sizes:
                    content.pending.clear()
                raise
            super().sync_all(path)
        if self.during_sync is not None:
            self.during_sync(path)
        with self._lock:
            self._alive()
            if self.sync_is_noop:
                return
            self._sync_names(number, None)
            for content, size in sizes:
                content.sync(number, size)

    def free_bytes(self, path: Path) -> int:
        """What is left of the capacity."""
        with self._lock:
            self._alive()
            self._node(path)
            return self._room()

    def total_bytes(self, path: Path) -> int:
        """The capacity."""
        with self._lock:
            self._alive()
            self._node(path)
            return _UNLIMITED if self.capacity is None else self.capacity

    def allocate(self, path: Path, size: int) -> None:
        """Create a file of size zero bytes that occupy the disk."""
        with self._lock:
            number = self._operation("allocate", f"{path} {size}")
            content = self._content(path, create=True)
            assert isinstance(content, DiskContent)
            grows = size - len(content.data)
            if grows > self._room():
                self.trace[-1] += " disk full"
                raise failure(errno.ENOSPC, path)
            super().allocate(path, size)
            if grows > 0:
                content.pending.append(Write(number, size, None))

    # Inside.

    def _take_over(self, other: FaultyFiles) -> None:
        self._root, self._names = copy.deepcopy((other._root, other._names))
        # Numbers start again, and what is pending came before all of them, in its old order.
        for content in self._contents():
            for write in content.pending:
                write.number -= other.operations
        for change in self._names:
            change.number -= other.operations

    def _new_content(self) -> Content:
        return DiskContent()

    def _new_folder(self) -> Folder:
        return DiskFolder()

    def _bind(self, *bindings: Binding) -> None:
        super()._bind(*bindings)
        self._names.append(Names(self.operations, list(bindings)))

    def _alive(self) -> None:
        if self.crashed:
            raise Crash("the machine is off")

    def _operation(self, kind: str, name: str) -> int:
        """Count an operation, and crash or fail if it is its turn."""
        self._alive()
        self.operations += 1
        self.trace.append(f"{self.operations} {kind} {name}")
        if self.operations == self.crash_at:
            self.trace[-1] += " CRASH"
            self.crashed = True
            raise Crash(self.trace[-1])
        self._maybe_fail(kind, name)
        return self.operations

    def _maybe_fail(self, kind: str, name: str) -> None:
        for waiting in list(self._failures):
            if kind != waiting.kind and not (waiting.kind == "any" and kind in CHANGES):
                continue
            waiting.countdown -= 1
            if waiting.countdown > 0:
                continue
            if not waiting.sticky:
                self._failures.remove(waiting)
            self.trace.append(f"  {kind} failed: {errno.errorcode[waiting.code]}")
            raise failure(waiting.code, name)

    def _write(self, file: FaultyFile, data: bytes, position: int) -> None:
        MemoryFile(file.path, file.content).pwrite([data], position)
        if data:
            file.content.pending.append(Write(self.operations, position, data))

    def _sync_names(self, upto: int, only: Folder | None) -> None:
        waiting: list[Names] = []
        for change in self._names:
            left: list[Binding] = []
            for folder, name, node in change.bindings:
                if change.number <= upto and only in (None, folder):
                    rebind(names_on_disk(folder), name, node)
                else:
                    left.append((folder, name, node))
            if left:
                waiting.append(Names(change.number, left))
        self._names = waiting

    def _contents(self) -> Iterable[DiskContent]:
        return [content for _, content in walk(self._root, Path(), lambda f: f.entries)]

    def _existing(self, path: Path) -> DiskContent:
        content = self._content(path, create=False)
        assert isinstance(content, DiskContent)
        return content

    def _room(self) -> int:
        if self.capacity is None:
            return _UNLIMITED
        # A removed file occupies the disk for as long as somebody has it open.
        held = {id(c): c for c in self._contents()}
        held |= {id(file.content): file.content for file in self._handles}
        return max(0, self.capacity - sum(len(content.data) for content in held.values()))
