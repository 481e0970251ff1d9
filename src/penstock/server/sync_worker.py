# cython: annotation_typing=True
"""Syncs files on a thread that never waits for the interpreter.

A busy loop holds the interpreter lock nearly all the time: a thread that needs it before and after
every sync waits longer for the lock than for the disk. So the thread sleeps, syncs and reports without
it, by two event counters of the kernel: the loop adds to `asked` and watches `answered`.

This module is written in Cython's pure-Python mode: it runs as it is, but only compiled does it do
without the lock.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Sequence

import cython

from penstock.limits import SYNC_ONE_BY_ONE_MAX

if cython.compiled:
    from cython.cimports.libc.errno import errno
    from cython.cimports.penstock.server.sync_worker import syncfs
    from cython.cimports.posix.unistd import fdatasync, read, write


@cython.final
@cython.cclass
class SyncWorker:
    """One request at a time: `submit`, wait until `answered` can be read, then `outcome`."""

    answered: cython.int
    _asked: cython.int
    _count: cython.int
    _together: cython.bint
    _called_back: cython.int
    _returned: cython.int
    _descriptors: cython.int[::1]
    _errors: cython.int[::1]

    def __init__(self) -> None:
        self.answered = os.eventfd(0, os.EFD_CLOEXEC)
        self._asked = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        self._count = 0
        self._together = False
        self._called_back = 0
        self._returned = 0
        self._descriptors = array("i", [0] * SYNC_ONE_BY_ONE_MAX)
        self._errors = array("i", [0] * SYNC_ONE_BY_ONE_MAX)

    @property
    def descriptor(self) -> int:
        """Becomes readable when a request has been answered."""
        return int(self.answered)

    # -- on the loop

    def submit(self, descriptors: Sequence[int], together: bool) -> None:
        """Sync these files; together means by one sync of the file system that holds the first."""
        at: cython.Py_ssize_t
        for at in range(1 if together else len(descriptors)):
            self._descriptors[at] = descriptors[at]
        self._together = together
        self._count = 1 if together else len(descriptors)
        _signal(self._asked)

    def call_back(self) -> None:
        """Make `serve` return."""
        self._called_back += 1
        _signal(self._asked)

    def outcome(self) -> list[int]:
        """Error numbers of the request that was answered, 0 where all went well; empty if all did."""
        at: cython.Py_ssize_t
        failed: cython.bint = False
        _wait(self.answered)
        for at in range(self._count):
            if self._errors[at] != 0:
                failed = True
        return [self._errors[at] for at in range(self._count)] if failed else []

    def close(self) -> None:
        """Give the descriptors back; nobody serves any more."""
        os.close(self._asked)
        os.close(self.answered)

    # -- on the thread

    def serve(self) -> None:
        """Answer requests until called back."""
        at: cython.Py_ssize_t
        with cython.nogil:
            while True:
                _wait(self._asked)
                if self._returned != self._called_back:
                    self._returned += 1
                    break
                for at in range(self._count):
                    self._errors[at] = _sync(self._descriptors[at], self._together)
                _signal(self.answered)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _wait(event: cython.int) -> cython.void:
    count: cython.ulonglong = 0
    if cython.compiled:
        while read(event, cython.address(count), 8) != 8:
            pass  # a signal came
    else:
        os.eventfd_read(event)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _signal(event: cython.int) -> cython.void:
    count: cython.ulonglong = 1
    if cython.compiled:
        write(event, cython.address(count), 8)
    else:
        os.eventfd_write(event, count)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _sync(descriptor: cython.int, together: cython.bint) -> cython.int:
    """The error number of an fdatasync, or of a syncfs."""
    if cython.compiled:
        result: cython.int = syncfs(descriptor) if together else fdatasync(descriptor)
        return 0 if result == 0 else errno
    else:
        libc = ctypes.CDLL(None, use_errno=True)
        failed = (libc.syncfs if together else libc.fdatasync)(descriptor)
        return ctypes.get_errno() if failed else 0
