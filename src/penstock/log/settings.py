"""What the log needs to know of a topic's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.limits import GIB

NEVER = -1


class Durability(Enum):
    """When an append counts as done."""

    FSYNC = "fsync"
    """On disk: survives a power failure."""
    OS = "os"
    """In the operating system's cache: survives the process, not the machine."""
    MEMORY = "memory"
    """In this process: gone when it ends."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Defaults are Kafka's."""

    segment_bytes: int = GIB
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = NEVER
    index_interval_bytes: int = 4096
    durability: Durability = Durability.FSYNC
    delete_old_segments: bool = True
    compact: bool = False
    min_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 24 * 3600 * 1000
