"""A decision that is durable is carried out after a restart, also if the disk is full at that moment."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.transactions import Transactions
from penstock.client.batches import Batches
from penstock.client.cluster import LATEST, Cluster, Place
from penstock.client.topics import create_topic
from penstock.client.transactional import BatchWriter, Transaction
from penstock.errors import UnavailableError
from penstock.record.decode import records_of
from penstock.record.encode import NewRecord
from penstock.testing import broker

OUT = Place("out", 0)
DEADLINE = 30.0


def committed(bootstrap: str) -> list[bytes | None]:
    with Cluster(bootstrap, "read", committed=True) as cluster:
        found: list[bytes | None] = []
        position, end = 0, cluster.offsets({OUT: LATEST})[OUT]
        while position < end:
            batches = Batches(
                cluster.fetch(OUT, position, bytes_max=1 << 20, wait_ms=100), position
            )
            found += [record.value for batch in batches for record in records_of(*batch)]
            position = batches.next_offset
        return found


def write(cluster: Cluster, value: bytes) -> tuple[Transaction, Any]:
    transaction = Transaction(cluster, "writer", "write")
    ticket = transaction.begin(60_000)
    writer = BatchWriter(cluster, ticket, "write", lambda: 1)
    writer.write(OUT, [NewRecord(value, None, int(time.time() * 1000))])
    return transaction, ticket


def test_a_marker_that_cannot_be_written_at_the_start_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Transactions._mark
    monkeypatch.setattr("penstock.client.link.REQUEST_SECONDS_MAX", 1.0)
    monkeypatch.setattr("penstock.client.cluster._RETRY_SECONDS", 0.0)
    with (
        broker(data=tmp_path) as running,
        Cluster(running.bootstrap, "x", committed=False) as first,
    ):
        create_topic(running.bootstrap, "out", partitions=1)
        transaction, ticket = write(first, b"committed")
        monkeypatch.setattr(Transactions, "_mark", lambda *_, **__: False)
        with pytest.raises(UnavailableError):
            transaction.end(ticket, commit=True)  # answered when all markers are written
    monkeypatch.undo()
    attempts = iter([False])

    def full_at_first(self: Transactions, *args: Any, **named: Any) -> bool:
        return next(attempts, True) and real(self, *args, **named)

    monkeypatch.setattr(Transactions, "_mark", full_at_first)
    with (
        broker(data=tmp_path) as running,
        Cluster(running.bootstrap, "x", committed=False) as second,
    ):
        transaction, ticket = write(second, b"aborted")
        transaction.end(ticket, commit=False)
        until = time.monotonic() + DEADLINE
        while committed(running.bootstrap) != [b"committed"] and time.monotonic() < until:
            time.sleep(0.1)
        assert committed(running.bootstrap) == [b"committed"]
