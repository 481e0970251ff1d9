"""What the machine has, or grants this process of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Where Linux mounts the groups of processes: the only tree of version 2, and one of many of version 1.
_LIMIT_FILES = {
    "": ("sys/fs/cgroup", "memory.max"),
    "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
}


def memory_bytes(root: Path = Path("/")) -> int:
    """Memory of the machine, or of the container if that has less."""
    with (root / "proc/meminfo").open(encoding="ascii") as lines:
        total = next(line.split()[1] for line in lines if line.startswith("MemTotal:"))
    return min([1024 * int(total), *_group_limits(root)])


def _group_limits(root: Path) -> Iterator[int]:
    """What the groups of this process, and those around them, may take together."""
    membership = root / "proc/self/cgroup"
    if not membership.exists():
        return
    for line in membership.read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in _LIMIT_FILES:
                mount, name = _LIMIT_FILES[controller]
                yield from _limits_above(root / mount, group, name)


def _limits_above(mount: Path, group: str, name: str) -> Iterator[int]:
    folder = mount / group.lstrip("/")
    for place in (folder, *folder.parents):
        # A container does not see the folders above its own; a group without a limit says "max".
        with suppress(OSError, ValueError):
            yield int((place / name).read_text())
        if place == mount:
            return
