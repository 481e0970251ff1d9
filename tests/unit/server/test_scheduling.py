"""What a thread asks of the scheduler: short slices, and nothing else is changed."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from struct import Struct

import pytest

from penstock.limits import SYNC_SLICE_SECONDS
from penstock.server.scheduling import ask_for_slices

_GET_ATTRIBUTES = {"x86_64": 315, "aarch64": 275}
_ATTRIBUTES = Struct("=IIQiIQQQ")

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() not in _GET_ATTRIBUTES,
    reason="only Linux has such slices, and its calls are known for two processors",
)


def attributes() -> tuple[int, int, int]:
    """Policy, nice and slice in nanoseconds of the calling thread."""
    found = ctypes.create_string_buffer(_ATTRIBUTES.size)
    number = _GET_ATTRIBUTES[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, 0, found, _ATTRIBUTES.size, 0) == 0
    _, policy, _, nice, _, slice_, _, _ = _ATTRIBUTES.unpack(found.raw)
    return policy, nice, slice_


def on_a_thread(work: Callable[[], None]) -> None:
    """Run work on a thread of its own, and fail if it fails: what it asks for ends with it."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def test_a_thread_gets_short_slices_and_keeps_the_rest() -> None:
    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 3)
        policy, nice, before = attributes()
        assert nice == 3
        assert ask_for_slices(SYNC_SLICE_SECONDS)
        assert attributes()[:2] == (policy, nice)
        if before:  # what older systems, which know no slices, show as none
            assert attributes()[2] == round(SYNC_SLICE_SECONDS * 1e9)

    before = attributes()
    on_a_thread(work)
    assert attributes() == before, "it is for the thread that asks"


def test_a_policy_that_somebody_chose_is_kept() -> None:
    def work() -> None:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        before = attributes()
        assert not ask_for_slices(SYNC_SLICE_SECONDS)
        assert attributes() == before

    on_a_thread(work)
