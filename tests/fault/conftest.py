"""Limits small enough that a short history meets them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints, rewritten and full journals and room ahead within a few dozen batches."""
    monkeypatch.setattr("penstock.log.partition.CHECKPOINT_BATCHES", 3)
    monkeypatch.setattr("penstock.log.partition.ROOM_AHEAD_ROUND_BYTES_MIN", 300)
    monkeypatch.setattr("penstock.log.positions._REWRITE_BYTES", 300)
    monkeypatch.setattr("penstock.log.catalog._REWRITE_BYTES", 300)
    monkeypatch.setattr("penstock.log.space.DISK_CHECK_BYTES", 1000)
    monkeypatch.setattr("penstock.log.round_journal.ROUND_JOURNAL_BYTES", 8 * 4096)
    for module in ("commit", "round_journal"):
        monkeypatch.setattr(f"penstock.log.{module}.ROUND_JOURNALED_BYTES_MAX", 6000)
        monkeypatch.setattr(f"penstock.log.{module}.ROUND_JOURNALED_PARTITIONS_MAX", 8)


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """A thousand crashes log ten thousand warnings."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
