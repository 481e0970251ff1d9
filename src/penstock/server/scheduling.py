"""Asks Linux to let a thread run as soon as it can go on.

Where every core is busy a thread that wakes up waits until the running one has had its slice, which on
many systems is looked at 250 times a second: a sync, which sleeps and wakes up four times, took some
milliseconds for what the disk does in half of one. From Linux 6.12 on a thread may ask for shorter
slices than others; it runs before them then, for no more of the processor's time. Needs no rights;
older systems pass it over.
"""

from __future__ import annotations

import ctypes
import os
import platform
from struct import Struct

# The C library has no name for these system calls.
_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}
# struct sched_attr: size, policy, flags, nice, priority, runtime (here: the slice), deadline, period.
_ATTRIBUTES = Struct("=IIQiIQQQ")


def ask_for_slices(seconds: float) -> bool:
    """Have the calling thread scheduled in slices of this length; whether the system took it.

    A thread that somebody has given a policy of its own keeps it.
    """
    number = _SET_ATTRIBUTES.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return False
    policy = os.sched_getscheduler(0)
    if policy != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    nanoseconds = round(seconds * 1e9)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, 0, nice, 0, nanoseconds, 0, 0)
    this_thread, no_flags = 0, 0
    return bool(ctypes.CDLL(None).syscall(number, this_thread, attributes, no_flags) == 0)
