"""How much memory this process may take, by what Linux says of the machine and of the container."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.machine import memory_bytes

MIB = 2**20


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "proc/meminfo", "MemFree: 1 kB\nMemTotal:   8388608 kB\nMemAvailable: 2 kB\n")
    return tmp_path


def test_without_groups_it_is_the_machine(root: Path) -> None:
    assert memory_bytes(root) == 8192 * MIB


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": str(512 * MIB)}, 512),
        ("0::/\n", {"memory.max": str(256 * MIB)}, 256),
        ("0::/not/to/be/seen\n", {"memory.max": "max"}, 8192),
        ("4:cpu,memory:/c\n0::/\n", {"memory/c/memory.limit_in_bytes": str(64 * MIB)}, 64),
        ("4:memory:/c\n", {"memory/memory.limit_in_bytes": str(2**63 - 4096)}, 8192),
        ("5:cpu:/c\n", {"memory/c/memory.limit_in_bytes": str(64 * MIB)}, 8192),
    ],
)
def test_a_container_may_have_less(
    root: Path, groups: str, limits: dict[str, str], expected: int
) -> None:
    put(root / "proc/self/cgroup", groups)
    for name, limit in limits.items():
        put(root / "sys/fs/cgroup" / name, limit + "\n")
    assert memory_bytes(root) == expected * MIB


def test_it_is_found_here() -> None:
    assert memory_bytes() > MIB
