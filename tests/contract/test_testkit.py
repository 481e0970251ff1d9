"""The public test kit: a broker in a with block, and the pytest fixture."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from tests.clients.wire import Wire

from penstock.errors import ConflictError, UsageError
from penstock.testing import RunningBroker, broker

pytest_plugins = ["pytester"]


def produce(running: RunningBroker, topic: str, *values: bytes) -> None:
    failed: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": running.bootstrap})
    for value in values:
        producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(30) == 0
    assert failed == []


def consume(running: RunningBroker, topic: str, count: int) -> list[bytes]:
    return list(_consume(running, topic, count))


def _consume(running: RunningBroker, topic: str, count: int) -> Iterator[bytes]:
    config = {"bootstrap.servers": running.bootstrap, "group.id": "unused"}
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        end = time.monotonic() + 30
        while count > 0:
            message = consumer.poll(1)
            assert time.monotonic() < end, "not within 30 s"
            if message is not None and message.error() is None:
                count -= 1
                yield message.value()


def test_clients_write_and_read() -> None:
    with broker() as running:
        produce(running, "orders", b"tea", b"coffee")
        assert consume(running, "orders", 2) == [b"tea", b"coffee"]


def test_it_answers_as_soon_as_it_is_there(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        with broker(tmp_path / name) as running, Wire(running.bootstrap) as wire:
            assert wire.versions()


def test_the_same_folder_again_finds_the_data(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        assert running.data == tmp_path
        produce(running, "orders", b"tea")
    with broker(str(tmp_path)) as running:
        assert running.data == tmp_path
        produce(running, "orders", b"coffee")
        assert consume(running, "orders", 2) == [b"tea", b"coffee"]
    assert tmp_path.is_dir(), "a folder that the caller chose is the caller's"


def test_a_second_broker_on_the_same_folder_is_refused() -> None:
    with broker() as first:
        with pytest.raises(ConflictError, match="in use by process"), broker(first.data):
            pass
        produce(first, "orders", b"the first goes on")


def test_two_brokers_know_nothing_of_each_other() -> None:
    with broker() as first, broker() as second:
        assert first.bootstrap != second.bootstrap
        produce(first, "orders", b"tea")
        with Wire(second.bootstrap) as wire:
            assert wire.metadata("orders").error_code != 0


def test_nothing_is_left_behind() -> None:
    before = threading.active_count()
    with broker() as running:
        assert (running.data / "format.json").exists()
    assert not running.data.exists()
    assert threading.active_count() == before
    host, _, port = running.bootstrap.rpartition(":")
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect((host, int(port)))


def test_nothing_is_left_behind_by_a_test_that_fails() -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), broker() as running:
        _ = 1 / 0
    assert not running.data.exists()
    assert threading.active_count() == before


def test_nothing_is_left_behind_by_a_broker_that_does_not_start(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    before = threading.active_count()
    with pytest.raises(UsageError, match="cannot open data folder"), broker(in_the_way):
        pass
    assert threading.active_count() == before


def test_a_broker_starts_where_warnings_are_errors() -> None:
    """In a process of its own: here everything has been imported."""
    program = """
import penstock.wire.share_group_messages
from penstock.client.topics import create_topic
from penstock.testing import broker
with broker() as running:
    create_topic(running.bootstrap, "orders")
"""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# -- the fixture


def test_the_fixture_is_a_broker(penstock_broker: RunningBroker) -> None:
    produce(penstock_broker, "orders", b"tea")
    assert consume(penstock_broker, "orders", 1) == [b"tea"]


def test_the_fixture_is_found_without_an_import_and_is_fresh(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from pathlib import Path

        folders = []

        def test_first(penstock_broker):
            folders.append(penstock_broker.data)
            assert folders[0].is_dir()

        def test_second(penstock_broker):
            assert penstock_broker.data not in folders
            assert not folders[0].exists()
        """
    )
    # In a process of its own: there the plugin is found by its entry point alone, as for a user.
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_the_fixture_is_listed_with_what_it_does(pytester: pytest.Pytester) -> None:
    listed = pytester.runpytest_subprocess("--fixtures", "-p", "no:cacheprovider")
    listed.stdout.fnmatch_lines(["penstock_broker*", "*A real broker*"])
