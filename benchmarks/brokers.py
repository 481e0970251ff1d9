"""Penstock as a child process, as `tools.kafka.running_kafka` is for Kafka; topics on either."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tools.kafka import (
    START_TIMEOUT,
    BrokerProcess,
    KafkaError,
    end_process,
    wait_for_metadata,
)

TOPIC_TIMEOUT = 30.0
DELETION_TIMEOUT = 60.0
"""Kafka begins to delete half a minute after its start."""

_TO_BE_DELETED = ("-delete", ".deleted")
"""How a topic's folder ends that Kafka or Penstock has yet to delete."""

_LISTENING = re.compile(r"^kafka listening on (\S+:\d+)$", re.MULTILINE)


@contextlib.contextmanager
def running_penstock(folder: Path, *options: str) -> Iterator[BrokerProcess]:
    """A Penstock with its data in folder/data; it ends with the block, always.

    It runs under this interpreter, with options of `penstock serve` or none. Killing it by its pid
    within the block is allowed: what is dead by the end is left alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "penstock.log"
    command = [sys.executable, "-m", "penstock", "serve", "--kafka", "127.0.0.1:0"]
    command += ["--http", "off"]
    command += ["--data", str(folder / "data"), *options]
    with log.open("wb") as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C is for us: the broker must live until the code in the with block has ended.
            start_new_session=True,
        )
        try:
            bootstrap = _wait_for_address(process, log, started)
            seconds = wait_for_metadata(process, bootstrap, started, log)
            yield BrokerProcess(bootstrap, process.pid, seconds)
            # A restart that is measured after this is either one after an orderly stop or, where the
            # block has killed the broker, one after a kill; anything else would mislead.
            if not end_process(process) or process.returncode not in (0, -signal.SIGKILL):
                raise KafkaError(f"Penstock did not stop in order:\n{log.read_text()}")
        finally:
            end_process(process)


def _wait_for_address(process: subprocess.Popen[bytes], log: Path, started: float) -> str:
    """The address in the line that Penstock prints when it listens."""
    while True:
        ended = process.poll() is not None
        text = log.read_text(errors="replace")
        if found := _LISTENING.search(text):
            return found[1]
        if ended or time.perf_counter() - started > START_TIMEOUT:
            state = f"ended with status {process.returncode}" if ended else "does not listen"
            raise KafkaError(f"Penstock {state}:\n{text}")
        time.sleep(0.002)


def _admin(bootstrap: str) -> Any:
    """A client for one call: one that is kept would look for the broker for ever after its end.

    Quiet below errors: when it goes, librdkafka logs what it had not yet delivered to itself.
    """
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})


def create_topic(
    bootstrap: str, name: str, partitions: int, config: Mapping[str, str] | None = None
) -> None:
    """Create the topic and wait until every partition of it has a leader."""
    admin = _admin(bootstrap)
    topic = NewTopic(name, partitions, 1, config=dict(config or {}))
    _wait(admin.create_topics([topic]), "create")
    deadline = time.monotonic() + TOPIC_TIMEOUT
    while time.monotonic() < deadline:
        found = admin.list_topics(name, TOPIC_TIMEOUT).topics[name].partitions
        if len(found) == partitions and all(one.leader >= 0 for one in found.values()):
            return
        time.sleep(0.02)
    raise KafkaError(f"topic {name} has no leaders after {TOPIC_TIMEOUT:.0f} s")


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete the topic and return when the broker has agreed; files may go later."""
    admin = _admin(bootstrap)
    _wait(admin.delete_topics([name]), "delete")


def await_deletions(folder: Path) -> None:
    """Return when neither broker has files below the folder that it still has to delete.

    Half a gigabyte goes in a tenth of a second, in which a sync takes up to 40 ms: whoever was measured
    then had that in its 99th percentile.
    """
    deadline = time.monotonic() + DELETION_TIMEOUT
    while any(
        name.endswith(_TO_BE_DELETED) for _, folders, _ in os.walk(folder) for name in folders
    ):
        if time.monotonic() > deadline:
            raise KafkaError(f"deleted topics are still there after {DELETION_TIMEOUT:.0f} s")
        time.sleep(0.05)


def _wait(futures: Mapping[str, Any], operation: str) -> None:
    for topic, future in futures.items():
        try:
            future.result(TOPIC_TIMEOUT)
        except KafkaException as error:
            raise KafkaError(f"could not {operation} topic {topic}: {error}") from error
