"""What every benchmark prints: machine, versions, medians with their spread, verdicts."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import confluent_kafka

_MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs", "devtmpfs"}


class Better(Enum):
    """Which direction of a measure is the good one."""

    MORE = ">="
    LESS = "<="


@dataclass(frozen=True)
class Verdict:
    """One measure held against its bar."""

    name: str
    value: float
    better: Better
    bar: float

    @property
    def ok(self) -> bool:
        """Whether the bar is met."""
        if self.better is Better.MORE:
            return self.value >= self.bar
        return self.value <= self.bar

    def __str__(self) -> str:
        state = "ok" if self.ok else "short"
        return f"ratio {self.name} {self.value:.3f} bar {self.better.value}{self.bar:g} {state}"


def conclude(verdicts: Iterable[Verdict]) -> int:
    """Print a line per verdict; the exit status: 1 if one is short."""
    print()
    status = 0
    for verdict in verdicts:
        print(verdict)
        if not verdict.ok:
            status = 1
    sys.stdout.flush()
    return status


def summary(samples: Sequence[float], factor: float = 1.0, digits: int = 2) -> str:
    """Median and, in brackets, smallest and largest."""
    low, middle, high = min(samples), statistics.median(samples), max(samples)
    shown = [f"{value * factor:,.{digits}f}" for value in (middle, low, high)]
    return f"{shown[0]} ({shown[1]}-{shown[2]})"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in aligned columns: the first to the left, the others to the right."""
    lines = [list(heading), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    print()
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())
    sys.stdout.flush()


_started = time.monotonic()


def progress(line: str) -> None:
    """A line about what goes on, with the time since the start, on standard error."""
    elapsed = int(time.monotonic() - _started)
    print(f"[{elapsed // 60:2}:{elapsed % 60:02}] {line}", file=sys.stderr, flush=True)


def preamble(module: str, folder: Path, extra: Iterable[str] = ()) -> None:
    """Print the command, the machine and the versions."""
    print("command   ", " ".join([f"python -m {module}", *sys.argv[1:]]))
    print("machine   ", machine())
    print("disk      ", _disk(folder))
    print("python    ", platform.python_version(), f"({platform.python_implementation()})")
    print("penstock  ", penstock_version())
    print("client    ", _client_version())
    for line in extra:
        print(line)
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"WARNING    the machine is not quiet (load average {busy:.1f}): expect noise")
    sys.stdout.flush()


def machine() -> str:
    """Processor, cores, memory and kernel in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{_processor()}, {cores} cores, {memory:.0f} GiB, {platform.system()} " + (
        platform.release()
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def _disk(folder: Path) -> str:
    """The file system that the data is on; one in memory would make every fsync free."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, system = line.partition(" - ")
        if mount.split()[2] == number:
            kind = system.split()[0]
            if kind in _MEMORY_FILE_SYSTEMS:
                return f"{kind} (in memory: fsync costs nothing here, use --folder)"
            return kind
    return "unknown file system"


def penstock_version() -> str:
    """What `penstock version` says, in one line: the version, and whether compiled or pure."""
    command = [sys.executable, "-m", "penstock", "version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"(penstock version failed: {done.stderr.strip()[-200:]})"
    return "; ".join(line.strip() for line in done.stdout.splitlines() if line.strip())


def _client_version() -> str:
    package = importlib.metadata.version("confluent-kafka")
    return f"confluent-kafka {package}, librdkafka {confluent_kafka.libversion()[0]}"
