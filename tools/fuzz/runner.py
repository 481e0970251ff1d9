"""Takes inputs to a target, and knows what must not happen to them."""

from __future__ import annotations

import hashlib
import logging
import resource
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from penstock.errors import PenstockError
from penstock.limits import DECOMPRESSED_BYTES_MAX, KIB
from tools.fuzz.decoders import DECODERS
from tools.fuzz.disk import DISK
from tools.fuzz.requests import REQUESTS
from tools.fuzz.target import Target

SEEDS = Path("tests/unit/seeds")
# Of processor time: a busy machine must not make a finding.
_SECONDS_MAX = 1.0
# A batch may be unpacked, which takes its size twice while it is copied, and nothing may take more.
_MEMORY_KIB_MAX = 2 * DECOMPRESSED_BYTES_MAX // KIB


KINDS: dict[str, type[Target]] = {kind.name: kind for kind in (*DECODERS, *DISK, *REQUESTS)}


class TooSlow(BaseException):
    """The time is up; not an Exception, so that no decoder takes it for bad input."""


@dataclass(frozen=True)
class Finding:
    """An input, and what went wrong with it."""

    target: str
    data: bytes
    cause: str
    trace: str

    def keep(self, folder: Path) -> Path:
        """Write the input where the tests find it."""
        path = folder / self.target / hashlib.sha256(self.data).hexdigest()[:16]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        return path


def targets(prefix: str = "") -> list[Target]:
    """Every target whose name begins so."""
    return [kind() for name, kind in KINDS.items() if name.startswith(prefix)]


class Fuzzer:
    """Runs one target; the inputs follow from the seed and the target's name."""

    def __init__(self, target: Target, seed: int) -> None:
        self.target = target
        self.done = 0
        self.slowest = 0.0
        self._random = Random(f"{seed} {target.name}")

    def one(self) -> Finding | None:
        """Make an input and run it."""
        data = self.target.generate(self._random)
        began = time.process_time()
        finding = examine(self.target, data)
        self.slowest = max(self.slowest, (time.process_time() - began) / self.target.parts)
        self.done += self.target.parts
        return _reduced(self.target, finding) if finding else None


def examine(target: Target, data: bytes) -> Finding | None:
    """Run one input: None if all is as it must be."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with _quiet(), _watchdog():
            target.run(data, _arm)
    except PenstockError:
        pass  # the declared errors, which every caller expects
    except (Exception, TooSlow) as error:
        cause = f"{type(error).__name__}: {error}"
        return Finding(target.name, data, cause, traceback.format_exc())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    if grown > _MEMORY_KIB_MAX:
        return Finding(target.name, data, f"it took {grown // 1024} MiB", "")
    return None


def _reduced(target: Target, finding: Finding) -> Finding:
    """The same finding by less: parts are left out as long as it fails in the same way."""
    kind = finding.cause.partition(":")[0]
    while True:
        for data in target.smaller(finding.data):
            smaller = examine(target, data)
            if smaller is not None and smaller.cause.startswith(kind):
                finding = smaller
                break
        else:
            return finding


def _arm() -> None:
    signal.setitimer(signal.ITIMER_PROF, _SECONDS_MAX)


@contextmanager
def _watchdog() -> Iterator[None]:
    """Raise TooSlow where the time runs out; C code is stopped when it returns."""
    before = signal.signal(signal.SIGPROF, _out_of_time)
    _arm()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _out_of_time(_number: int, _frame: FrameType | None) -> None:
    raise TooSlow(f"more than {_SECONDS_MAX} s")


@contextmanager
def _quiet() -> Iterator[None]:
    """Damage is logged, and here everything is damaged."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
