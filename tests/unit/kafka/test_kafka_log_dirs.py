"""DescribeLogDirs."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import DescribeLogDirsRequest
from tests.clients.admin_requests import describe_log_dirs
from tests.unit.kafka.exchange import DATA, NOW, Exchange, versions

from penstock.errors import DamagedLogError
from penstock.kafka.errors import Code


def sizes(response: Any) -> dict[tuple[str, int], int]:
    (folder,) = response.results
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in folder.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", versions(35))
def test_everything(exchange: Exchange, version: int) -> None:
    topic = exchange.topic("a", 2)
    exchange.topic("b")
    exchange.append(topic, NOW, partition=1)
    response = exchange.send(DescribeLogDirsRequest(topics=None), version)
    written = topic.partition(1).size_bytes
    assert written > 0
    assert sizes(response) == {("a", 0): 0, ("a", 1): written, ("b", 0): 0}
    (folder,) = response.results
    assert (folder.error_code, folder.log_dir) == (Code.NONE, str(DATA))
    if version >= 4:
        assert folder.usable_bytes > 0


@pytest.mark.parametrize("version", versions(35))
def test_some(exchange: Exchange, version: int) -> None:
    exchange.topic("a", 3)
    response = exchange.send(describe_log_dirs("a", [2, 7, -1]), version)
    assert sizes(response) == {("a", 2): 0}
    assert sizes(exchange.send(describe_log_dirs("b"), version)) == {}
    assert sizes(exchange.send(DescribeLogDirsRequest(topics=[]), version)) == {}


def test_damaged_partitions_are_left_out(exchange: Exchange) -> None:
    topic = exchange.topic("a", 2)
    topic.partitions[0] = DamagedLogError("open", "it is damaged")
    assert sizes(exchange.send_highest(DescribeLogDirsRequest(topics=None))) == {("a", 1): 0}
