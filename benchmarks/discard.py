"""Brokers that are none, beside the real ones: builds discard.c and runs it for a block."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tools.kafka import BrokerProcess, end_process, free_ports, wait_for_metadata

from benchmarks.brokers import running_penstock
from benchmarks.compiling import compiled


def running_discard(folder: Path) -> contextlib.AbstractContextManager[BrokerProcess]:
    """What answers a Produce and forgets it; a Penstock behind it answers everything else."""
    return _running(folder)


def running_least(folder: Path) -> contextlib.AbstractContextManager[BrokerProcess]:
    """The same, but it writes what it gets, and answers when that is synced."""
    return _running(folder, str(folder))


@contextlib.contextmanager
def _running(folder: Path, *options: str) -> Iterator[BrokerProcess]:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    with running_penstock(folder, "--advertise", address) as behind:
        log = folder / "discard.log"
        command = [str(compiled("discard")), str(port), behind.bootstrap.rpartition(":")[2]]
        command += options
        with log.open("wb") as output:
            started = time.perf_counter()
            process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True
            )
            try:
                seconds = wait_for_metadata(process, address, started, log)
                yield BrokerProcess(address, process.pid, seconds)
            finally:
                end_process(process)
