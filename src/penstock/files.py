"""The file system, passed in: everything the log does to a disk goes through these two classes.

`Files` names and removes, `File` reads and writes at positions. Production uses `OsFiles`; topics with
durability `memory` use `MemoryFiles`; the fault tests use a file system that can crash at any operation
(penstock.testing.faulty). Nothing outside this module calls `os` for storage.

This module may run compiled (setup.py), with the C types that stand in files.pxd.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import cython

from penstock.errors import ConflictError

if cython.compiled:
    from cython.cimports.penstock.buffers import bytes_of
    from cython.cimports.posix.unistd import pwrite

Buffer = bytes | bytearray | memoryview
NAME_BYTES_MAX = 255
"""Of one name in a path, on the common file systems."""
# One system call takes so many pieces at the most (Linux's IOV_MAX).
_PIECES_MAX = 1024
_KEEP_SIZE = 1  # Linux's FALLOC_FL_KEEP_SIZE
_FALLOCATE = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
if _FALLOCATE is not None:
    _FALLOCATE.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)


class File(Protocol):
    """An open file. It is closed when the last reference to it goes.

    Reads may be under way on another thread while the owner drops its reference, so there is no
    close(): a descriptor that is closed under a reader would be reused for another file.
    """

    def pwrite(self, data: Sequence[Buffer], position: int) -> None:
        """Write all of data at position, or raise OSError; what was written by then is undefined."""
        ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to size bytes from position; fewer at the end of the file."""
        ...

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        """As pread, but None when the operating system would have to wait for the disk."""
        ...

    def is_cached(self, size: int, position: int) -> bool:
        """Whether a range can probably be read without waiting for the disk."""
        ...

    def send(self, socket: int, size: int, position: int) -> int:
        """Send up to size bytes to a socket's descriptor; returns how many it took.

        Raises:
            BlockingIOError: the socket takes nothing now.
        """
        ...

    def size(self) -> int:
        """Length in bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Cut (or extend with zeros) to size."""
        ...

    def sync(self) -> None:
        """Return when everything written so far survives a power failure."""
        ...

    def reserve(self, size: int, position: int) -> None:
        """Have the disk allocate a range, most of it beyond the end, which stays where it is."""
        ...

    def give_back(self) -> None:
        """Let go of what is reserved beyond the end. Nobody may write meanwhile."""
        ...


class FileSlice:
    """A range of a file that goes to a socket without passing through this process."""

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return self.file.pread(self.size, self.position)

    def send(self, socket: int) -> int:
        """Send what the socket takes; the slice is then what is left."""
        count = self.file.send(socket, self.size, self.position)
        self.position += count
        self.size -= count
        return count


class Files(Protocol):
    """A file system."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless it exists or create is set."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether a file or folder of that name exists."""
        ...

    def list(self, folder: Path) -> dict[str, int]:
        """Names in the folder with their sizes (folders count as 0), sorted by name."""
        ...

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents; no error if it exists."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or folder another name, replacing a file that has it."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file."""
        ...

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Make creations, renames and removals in the folder survive a power failure."""
        ...

    def sync_all(self, path: Path) -> None:
        """Make everything on the file system that holds path survive a power failure."""
        ...

    def free_bytes(self, path: Path) -> int:
        """Room left for ordinary writes on the file system that holds path."""
        ...

    def total_bytes(self, path: Path) -> int:
        """Size of the file system that holds path."""
        ...

    def allocate(self, path: Path, size: int) -> None:
        """Create a file whose size bytes really occupy the disk."""
        ...


class OsFile:
    """A file of the operating system."""

    def __init__(self, path: Path, flags: int) -> None:
        self._fd = -1
        self.path = path
        self._fd = os.open(path, flags, 0o600)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    @property
    def descriptor(self) -> int:
        """The operating system's name for the open file."""
        return self._fd

    def pwrite(self, data: Sequence[Buffer], position: int) -> None:
        """Write all of data at position."""
        if len(data) > _PIECES_MAX:
            data = [b"".join(data)]
        total = len(data[0]) if len(data) == 1 else sum(map(len, data))
        if len(data) == 1 and total and self._wrote_at_once(data[0], position):
            return
        written = os.pwritev(self._fd, data, position)
        while written < total:
            # A short write is how Linux first reports a full disk or a signal; the next call tells.
            rest = b"".join(data)[written:]
            count = os.pwrite(self._fd, rest, position + written)
            if count == 0:
                raise OSError(errno.EIO, "write made no progress", str(self.path))
            written += count

    def _wrote_at_once(self, data: Buffer, position: int) -> bool:
        """Try the usual case in one short call; what is wrong shows when it is done the long way."""
        if cython.compiled:
            size = cython.declare(cython.Py_ssize_t, 0)
            first = cython.declare(cython.p_const_uchar, bytes_of(data, cython.address(size)))
            descriptor = cython.declare(cython.int, self._fd)
            written = cython.declare(cython.Py_ssize_t, 0)
            with cython.nogil:
                written = pwrite(descriptor, first, size, position)
            return written == size
        return False

    def pread(self, size: int, position: int) -> bytes:
        """Up to size bytes from position."""
        try:
            data = os.pread(self._fd, size, position)
            while 0 < len(data) < size:
                more = os.pread(self._fd, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            # The system names no file here, and of a bad disk this is what one wants to know.
            error.filename = str(self.path)
            raise
        return data

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        """As pread, from the page cache only."""
        buffer = bytearray(size)
        try:
            count = os.preadv(self._fd, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self.pread(size, position)  # tmpfs and friends: always in memory
        return buffer if count == size else memoryview(buffer)[:count]

    def is_cached(self, size: int, position: int) -> bool:
        """Look at both ends: the kernel reads ahead, so what lies between is rarely missing."""
        buffer = bytearray(1)
        try:
            for at in (position, position + size - 1):
                if os.preadv(self._fd, [buffer], at, os.RWF_NOWAIT) == 0:
                    return False
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
        return True

    def send(self, socket: int, size: int, position: int) -> int:
        """sendfile: from the page cache to the socket."""
        return os.sendfile(socket, self._fd, position, size)

    def size(self) -> int:
        """Length in bytes."""
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        """Cut or extend to size."""
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Fdatasync."""
        os.fdatasync(self._fd)

    def reserve(self, size: int, position: int) -> None:
        """Fallocate, which Python's os has only with a change of the file's size."""
        if _FALLOCATE is None:
            raise OSError(errno.EOPNOTSUPP, "this system reserves nothing", str(self.path))
        if _FALLOCATE(self._fd, _KEEP_SIZE, position, size) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(self.path))

    def give_back(self) -> None:
        """Cutting a file to the size that it has frees what lies beyond."""
        os.ftruncate(self._fd, self.size())


class OsFiles:
    """The operating system's file system."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        # Some folder that stays open, for syncs when the system grants no descriptor.
        self._kept = -1

    def __del__(self) -> None:
        if self._kept >= 0:
            os.close(self._kept)

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        """Open for reading and writing."""
        return OsFile(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0))

    def exists(self, path: Path) -> bool:
        """Whether path exists."""
        return path.exists()

    def list(self, folder: Path) -> dict[str, int]:
        """Names with sizes."""
        with os.scandir(folder) as entries:
            found = {e.name: 0 if e.is_dir() else e.stat().st_size for e in entries}
        return dict(sorted(found.items()))

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents, readable by the owner only."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Rename, replacing."""
        old.replace(new)

    def remove(self, path: Path) -> None:
        """Unlink."""
        path.unlink()

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        path.rmdir()

    def sync_folder(self, path: Path) -> None:
        """Fsync the folder itself, or all there is if it cannot be opened for want of a descriptor."""
        fd = self._open_folder(path)
        if fd == self._kept:
            self._syncfs(fd, path)
            return
        try:
            os.fsync(fd)
        finally:
            self._close_folder(fd)

    def sync_all(self, path: Path) -> None:
        """Syncfs: one call however many files are dirty.

        By the descriptor that stays open, where there is one: each that was open when a write failed is
        told of it, and one that was opened later only if nobody else was.
        """
        device = os.stat(f"{path}/.").st_dev  # noqa: PTH116 -- a Path would drop the dot, which files have not
        if self._kept >= 0 and device == os.fstat(self._kept).st_dev:
            self._syncfs(self._kept, path)
            return
        fd = self._open_folder(path)
        try:
            self._syncfs(fd, path)
        finally:
            self._close_folder(fd)

    def _syncfs(self, fd: int, path: Path) -> None:
        if self._libc.syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise SyncAllError(code, os.strerror(code), str(path))

    def _open_folder(self, path: Path) -> int:
        """A descriptor on the file system of a folder: of the folder itself wherever there is one."""
        try:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if not lacks_descriptor(error) or self._kept < 0:
                raise
            if path.stat().st_dev != os.fstat(self._kept).st_dev:
                raise
            return self._kept

    def _close_folder(self, fd: int) -> None:
        if self._kept < 0:
            self._kept = fd
        elif fd != self._kept:
            os.close(fd)

    def free_bytes(self, path: Path) -> int:
        """Bytes an ordinary user may still write: none where no further file can be made."""
        stat = os.statvfs(path)
        # Some file systems have no fixed number of files, and say 0 of 0.
        if stat.f_files and not stat.f_favail:
            return 0
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: Path) -> int:
        """Bytes of the whole file system."""
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize

    def allocate(self, path: Path, size: int) -> None:
        """Create path with size bytes of disk behind it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)


class FolderLock:
    """Holds a data folder for one process; the kernel lets go when the process ends."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 64, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise ConflictError(
                f"cannot open data folder {path.parent}",
                f"it is in use by process {holder or 'unknown'}",
                "stop that process, or choose another folder with --data",
            ) from None
        # Only for those who are refused, so a disk without room for it does not matter.
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let the next process have it."""
        os.close(self._fd)


def lacks_descriptor(error: OSError) -> bool:
    """Whether an error says that too many files are open, here or on the whole machine."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


class SyncAllError(OSError):
    """A sync of the whole file system failed: nothing written and not yet synced is certain.

    Also where it stood in for a smaller one. The system tells of it once: who swallows it lets the next
    sync vouch for what is lost.
    """


def sync_all(files: Files, path: Path) -> None:
    """Files.sync_all, with an error that says how much is in doubt."""
    try:
        files.sync_all(path)
    except OSError as error:
        raise SyncAllError(error.errno, error.strerror, str(path)) from error


def write_atomically(files: Files, path: Path, data: bytes, suffix: str = ".tmp") -> None:
    """Replace path so that after a crash it holds either the old bytes or the new ones.

    Processes that may write the same path at once need a suffix each, for what is half written.
    """
    replace_file(files, path, data, suffix)
    sync_name(files, path)


def replace_file(files: Files, path: Path, data: bytes, suffix: str = ".tmp") -> File:
    """The first half of it; the new file, which a power failure may still undo."""
    scratch, file = _write_scratch(files, path, data, suffix)
    file.sync()
    files.rename(scratch, path)
    return file


def sync_name(files: Files, path: Path) -> None:
    """The second half: the new file stays."""
    try:
        files.sync_folder(path.parent)
    except SyncAllError:
        raise
    except OSError as error:
        # Whatever the reason, also a full disk: which of the two a crash would leave is in doubt.
        raise OSError(errno.EIO, f"the new {path.name} may not last: {error}") from error


def write_all_atomically(files: Files, folder: Path, contents: Mapping[Path, bytes]) -> None:
    """The same for many files below a folder, with two syncs in all instead of two for each."""
    scratches = {path: _write_scratch(files, path, data)[0] for path, data in contents.items()}
    sync_all(files, folder)
    for path, scratch in scratches.items():
        files.rename(scratch, path)
    sync_all(files, folder)


def _write_scratch(
    files: Files, path: Path, data: bytes, suffix: str = ".tmp"
) -> tuple[Path, File]:
    scratch = path.with_name(path.name + suffix)
    file = files.open(scratch, create=True)
    try:
        file.truncate(0)
        file.pwrite([data], 0)
    except OSError:
        # On a full disk it would keep what little room there is.
        with suppress(OSError):
            files.remove(scratch)
        raise
    return scratch, file


def read_whole(files: Files, path: Path) -> bytes:
    """Everything in a small file."""
    file = files.open(path)
    return file.pread(file.size(), 0)
