"""What the broker does for all its partitions at once."""

from __future__ import annotations

import errno

import pytest
from tests.support.log import DATA, Log

from penstock.errors import OfflineError
from penstock.testing.faulty import FaultyFiles


def test_when_metadata_cannot_be_synced_no_partition_takes_data() -> None:
    """Also one that had nothing to do in the round that failed."""
    files = FaultyFiles()
    log = Log(files)
    idle = log.topic("idle")
    files.fail("sync", errno.EIO)
    log.broker.create_topic("new", 1, {})
    log.commit()
    with pytest.raises(OfflineError):
        log.append(idle, b"x")


def test_no_producer_id_is_given_out_again_after_the_catalog_was_lost() -> None:
    log = Log()
    topic = log.topic()
    producer = log.broker.new_producer_id()
    log.append(topic, b"x", producer_id=producer, producer_epoch=0, base_sequence=0)
    log.commit()
    log.files.remove(DATA / "catalog.journal")
    log.restart(clean=False)
    assert log.broker.new_producer_id() > producer


@pytest.mark.parametrize("clean", [True, False])
def test_an_id_that_a_client_made_up_does_not_use_up_all_others(*, clean: bool) -> None:
    log = Log()
    topic = log.topic()
    producer = log.broker.new_producer_id()
    for made_up in (producer, 2**63 - 1):
        log.append(topic, b"x", producer_id=made_up, producer_epoch=0, base_sequence=0)
    log.commit()
    log.restart(clean=clean)
    assert producer < log.broker.new_producer_id() < producer + 10_000
