"""The load of the comparison with Kafka: builds client.c and runs it, one process per workload."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path

import confluent_kafka

from benchmarks.compiling import compiled
from benchmarks.workload import TIME_LIMIT, Numbers, WorkloadError

# The client's allocator keeps what it was given. As it comes it returns every batch of a megabyte to the
# system and takes the next from there, empty, page by page: time of the client that hides the brokers.
_KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=4294967296"
}


def run(
    name: str,
    *,
    bootstrap: str,
    topic: str,
    partitions: int,
    records: int,
    size: int = 100,
    warm_up: int = 0,
    rate: int = 0,
) -> Numbers:
    """Do produce, consume, single, end-to-end or commits and return what it measured.

    End-to-end is sent at a rate per second, and the first records of it (warm_up) do not count. For
    commits the partitions are consumers, the records commits, and the size how many are unanswered.
    """
    numbers = (partitions, records, size, warm_up, rate)
    command = [str(build()), name, bootstrap, topic, *map(str, numbers)]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **_KEEP_MEMORY},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIME_LIMIT,
        )
    except subprocess.TimeoutExpired:
        raise WorkloadError(f"'{' '.join(command)}' hangs") from None
    if done.returncode:
        raise WorkloadError(f"'{' '.join(command)}' failed:\n{done.stderr}")
    measured: Numbers = json.loads(done.stdout)
    return measured


@functools.cache
def build() -> Path:
    """Compile the client against the librdkafka that confluent-kafka brings; the program."""
    library = _librdkafka()
    # The library's own dependencies are the business of the loader, which finds them.
    return compiled("client", str(library), f"-Wl,-rpath,{library.parent}")


def _librdkafka() -> Path:
    package = Path(confluent_kafka.__file__).parent
    folders = (package.with_name("confluent_kafka.libs"), package / ".dylibs")
    for folder in folders:
        for library in folder.glob("librdkafka*"):
            return library
    raise WorkloadError(f"confluent-kafka brings no librdkafka in {folders[0]}; install its wheel")
