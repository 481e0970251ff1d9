"""`penstock serve` as a process: what it prints, when it refuses to start, how it stops."""

from __future__ import annotations

import json
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka.protocol.metadata import MetadataRequest
from tests.clients.contract import Record
from tests.clients.wire import Wire, fetch_request, read_batches
from tests.support.serving import Serving, serving, steady_port

from penstock.testing import broker

CONFLICT, USAGE, FAILURE = 5, 2, 1


def refused(*args: str) -> tuple[int, str]:
    """The exit code and the message of a server that does not start."""
    command = [sys.executable, "-m", "penstock", "serve", *args]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert "ready" not in done.stdout
    return done.returncode, done.stderr


# -- starting


def test_it_says_where_it_listens_and_then_that_it_is_ready(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        listening, ready = server.lines
        assert re.fullmatch(r"kafka listening on 127\.0\.0\.1:\d+", listening)
        assert ready == "ready"
        with Wire(server.bootstrap) as wire:
            assert wire.versions()
        assert server.terminate() == 0
        assert server.lines[-1] == "stopping"
        assert server.stderr == ""


def test_it_says_so_for_an_ipv6_address(tmp_path: Path) -> None:
    if not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    with serving(tmp_path, kafka="[::1]:0") as server:
        assert re.fullmatch(r"kafka listening on \[::1\]:\d+", server.lines[0])
        client = AdminClient({"bootstrap.servers": server.bootstrap})
        assert len(client.list_topics(timeout=10).brokers) == 1


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_a_second_one_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        code, message = refused("--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0")
        assert code == CONFLICT
        assert f"in use by process {server.process.pid};" in message
        assert str(tmp_path / "data") in message
        assert "--data" in message
        # The first is none the worse for it.
        with Wire(server.bootstrap) as wire:
            wire.create_topic("after")
        assert server.terminate() == 0


def test_a_folder_is_free_again_after_a_kill(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.kill()
    with serving(tmp_path) as server:
        assert server.terminate() == 0


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, message = refused("--data", str(tmp_path / "data"), "--kafka", address)
    assert code == CONFLICT
    assert address in message
    assert "--kafka" in message
    # Nothing is left behind: the folder can be served.
    with serving(tmp_path) as server:
        assert server.terminate() == 0


def test_an_address_of_somebody_else_is_refused(tmp_path: Path) -> None:
    # TEST-NET-1 (RFC 5737): no machine has it.
    code, message = refused("--data", str(tmp_path), "--kafka", "192.0.2.1:9092", "--insecure")
    assert code == USAGE
    assert "cannot listen on 192.0.2.1:9092" in message


def test_an_address_others_can_reach_needs_a_word(tmp_path: Path) -> None:
    data = tmp_path / "data"
    code, message = refused("--data", str(data), "--kafka", "0.0.0.0:0")
    assert code == USAGE
    assert "--insecure" in message
    assert not data.exists(), "refused before anything was opened"
    with serving(tmp_path, "--insecure", kafka="0.0.0.0:0") as server:
        port = server.bootstrap.rpartition(":")[2]
        with Wire(f"127.0.0.1:{port}") as wire:
            assert wire.versions()
        assert server.terminate() == 0


def test_a_folder_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    newer = {"format": 99, "cluster_id": "A" * 22}
    (tmp_path / "format.json").write_text(json.dumps(newer))
    code, message = refused("--data", str(tmp_path), "--kafka", "127.0.0.1:0")
    assert code == FAILURE
    assert "format 99" in message
    assert "knows 1" in message


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "topics"):
        (tmp_path / name).mkdir()
    code, message = refused("--data", str(tmp_path), "--kafka", "127.0.0.1:0")
    assert code == USAGE
    assert "it holds what is not Penstock's (a.txt, b.txt) and no format.json; choose" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt", "topics"]


def test_an_empty_name_is_not_the_present_folder() -> None:
    code, message = refused("--data", "", "--kafka", "127.0.0.1:0")
    assert code == USAGE
    assert "cannot read --data '': it is empty" in message


@pytest.mark.parametrize("names", [["lost+found", ".snapshot"], ["lock"], ["lock", "topics/"]])
def test_a_first_start_that_was_interrupted_is_done_again(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    (tmp_path / "format.json.tmp").write_text("{")
    with broker(tmp_path):
        assert (tmp_path / "format.json").exists()


def test_a_folder_that_lost_its_format_is_still_ours(tmp_path: Path) -> None:
    with broker(tmp_path) as running, Wire(running.bootstrap) as wire:
        wire.create_topic("orders")
    (tmp_path / "format.json").unlink()
    (tmp_path / "views.db").touch()
    with broker(tmp_path) as running, Wire(running.bootstrap) as wire:
        assert wire.metadata("orders").error_code == 0


# -- what clients are told


def brokers(address: str) -> list[tuple[str, int]]:
    """The brokers that the metadata names."""
    with Wire(address) as wire:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        return [(one.host, one.port) for one in wire.call(request).brokers]


def test_clients_are_told_the_address_they_reached(tmp_path: Path) -> None:
    with serving(tmp_path, "--insecure", kafka="0.0.0.0:0") as server:
        port = int(server.bootstrap.rpartition(":")[2])
        assert brokers(f"127.0.0.1:{port}") == [("127.0.0.1", port)]
        assert brokers(f"127.0.0.2:{port}") == [("127.0.0.2", port)]


def test_clients_are_told_what_is_advertised(tmp_path: Path) -> None:
    with serving(tmp_path, "--advertise", "logs.example.org:1234") as server:
        assert brokers(server.bootstrap) == [("logs.example.org", 1234)]


# -- stopping


class Load:
    """Producers on a thread of their own, and what was acknowledged to them."""

    def __init__(self, bootstrap: str, topic: str, count: int) -> None:
        self._topic = topic
        config = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": 600_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 10,
            "queue.buffering.max.messages": 1000,
            "log_level": 0,  # that the broker goes away is what is tested
        }
        self._producers = [Producer(config) for _ in range(count)]
        self.acknowledged: dict[int, bytes] = {}
        self.errors: list[Any] = []
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            for producer in self._producers:
                number += 1
                try:
                    producer.produce(
                        self._topic, b"%d" % number, partition=0, on_delivery=self._delivered
                    )
                except BufferError:
                    time.sleep(0.001)
                producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
            return
        assert message.offset() not in self.acknowledged, "one offset for two records"
        self.acknowledged[message.offset()] = message.value()

    def wait_for(self, more: int) -> None:
        """Until so many more records were acknowledged."""
        enough = len(self.acknowledged) + more
        _within(30, lambda: len(self.acknowledged) >= enough)

    def finish(self) -> None:
        """Send no more, and wait for what is under way."""
        self.stopping.set()
        self._thread.join()
        for producer in self._producers:
            assert producer.flush(30) == 0


def _within(seconds: float, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.005)


@contextmanager
def load(bootstrap: str, topic: str, count: int = 3) -> Iterator[Load]:
    running = Load(bootstrap, topic, count)
    try:
        yield running
    finally:
        running.stopping.set()


def test_it_stops_in_order_while_producers_are_in_flight(tmp_path: Path) -> None:
    address = f"127.0.0.1:{steady_port()}"
    with serving(tmp_path, kafka=address) as first, load(address, "t") as running:
        running.wait_for(2000)
        began = time.monotonic()
        assert first.terminate() == 0, first.stderr
        seconds = time.monotonic() - began
        assert seconds < 5, "producers that go on sending must not keep it"
        assert first.stderr == ""
        assert (tmp_path / "data" / "clean").exists()
        before = dict(running.acknowledged)
        with serving(tmp_path, kafka=address) as second:
            assert stored(second, "t").items() >= before.items()
            running.wait_for(500)
            running.finish()
            assert running.errors == []
            # Whatever was under way when it stopped is there once as well.
            assert stored(second, "t") == running.acknowledged
            assert second.terminate() == 0


def stored(server: Serving, topic: str) -> dict[int, bytes]:
    with Wire(server.bootstrap) as wire:
        return {one.offset: one.value or b"" for one in wire.stored(topic)}


def test_a_fetch_that_waits_is_answered_when_it_stops(tmp_path: Path) -> None:
    with serving(tmp_path) as server, Wire(server.bootstrap) as wire:
        wire.create_topic("t")
        request = fetch_request("t", {0: 0}, max_wait_ms=30_000)
        wire.send(request, 12)
        # The broker answers in order, so what this connection asked before has been handled by now.
        with Wire(server.bootstrap) as other:
            other.metadata("t")
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        (partition,) = wire.receive(request).responses[0].partitions
        assert partition.error_code == 0
        assert not partition.records
        assert wire.closed_by_peer()
        assert server.wait() == 0
        assert time.monotonic() - began < 5


def test_it_stops_in_order_when_nobody_reads_what_it_says(tmp_path: Path) -> None:
    with serving(tmp_path) as server, Wire(server.bootstrap) as wire:
        wire.create_topic("t")
        assert server.process.stdout is not None
        server.process.stdout.close()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert (tmp_path / "data" / "clean").exists()
        assert server.stderr == ""


def test_standard_streams_may_be_closed(tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m penstock serve --data {tmp_path / 'data'} --http off"
    port = steady_port()
    closed = f"{command} --kafka 127.0.0.1:{port} <&- >&- 2>&-"
    with subprocess.Popen(["/bin/sh", "-c", closed]) as process:
        try:
            client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
            assert len(client.list_topics(timeout=30).brokers) == 1
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert (tmp_path / "data" / "clean").exists()


def test_readers_that_ask_again_do_not_keep_it(tmp_path: Path) -> None:
    """Consumers send the next fetch as soon as the last is answered; so many that some always win."""
    with serving(tmp_path) as server, ExitStack() as stack:
        readers = [stack.enter_context(Wire(server.bootstrap)) for _ in range(30)]
        readers[0].create_topic("t")
        for reader in readers:
            reader.send(fetch_request("t", {0: 0}, max_wait_ms=30_000), 12)
        with Wire(server.bootstrap) as other:
            other.metadata("t")
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        answers = _ask_again_until_closed(readers)
        assert server.wait() == 0, server.stderr
        assert time.monotonic() - began < 5
        assert answers >= len(readers)
        assert server.stderr == ""


def _ask_again_until_closed(readers: list[Wire]) -> int:
    """How many answers came."""
    answers = 0
    waiting = {reader.socket: reader for reader in readers}
    while waiting:
        for ready in select.select(list(waiting), [], [])[0]:
            try:
                (size,) = struct.unpack(">i", waiting[ready].exactly(4))
                waiting[ready].exactly(size)
                answers += 1
                waiting[ready].send(fetch_request("t", {0: 0}, max_wait_ms=30_000), 12)
            except OSError:
                del waiting[ready]
    return answers


def test_the_answer_to_a_fetch_under_way_is_whole(tmp_path: Path) -> None:
    with serving(tmp_path) as server, Wire(server.bootstrap) as wire:
        wire.create_topic("t")
        for _ in range(10):
            wire.write("t", [Record(b"x" * 500_000)])
        request = fetch_request("t", {0: 0})
        wire.send(request, 12)
        with Wire(server.bootstrap) as other:
            other.metadata("t")
        server.process.send_signal(signal.SIGTERM)
        (partition,) = wire.receive(request).responses[0].partitions
        assert len(read_batches(partition.records)) == 10
        assert server.wait() == 0


def test_a_client_that_takes_nothing_does_not_keep_it_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.server.app._STOP_SECONDS_MAX", 0.5)
    with ExitStack() as clients:
        with broker(tmp_path) as running:
            wire = clients.enter_context(Wire(running.bootstrap))
            deaf = clients.enter_context(Wire(running.bootstrap, receive_buffer=4096))
            wire.create_topic("t")
            for _ in range(16):
                wire.write("t", [Record(b"x" * 900_000)])
            deaf.send(fetch_request("t", {0: 0}), 12)
            wire.metadata("t")
        assert "did not take their answers" in caplog.text
    assert (tmp_path / "clean").exists()


def test_a_second_signal_does_no_harm(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.process.send_signal(signal.SIGINT)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        assert (tmp_path / "data" / "clean").exists()
