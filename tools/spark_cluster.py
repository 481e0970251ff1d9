"""A Spark cluster on loopback: a master and two workers, each in a process of its own.

    python -m tools.spark_cluster        runs one in the foreground until Ctrl-C

It comes with the package pyspark. Executors run the Python of this process, in which Penstock is
installed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tools.jars import JAVA_PACKAGE, PeerError, need
from tools.java import SHORT_LIVED
from tools.kafka import end_process, exit_on_sigterm, free_ports, tail

WORKERS = 2
START_TIMEOUT = 120.0
# What a driver on the same machine must say, or executors would look for it under the host's name.
DRIVER_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    # One on each worker, which has room for a second driver beside this one.
    "spark.cores.max": "2",
}


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[str]:
    """A cluster that keeps what it writes in folder and ends with the block; its master's address."""
    need("java", JAVA_PACKAGE)
    folder.mkdir(parents=True, exist_ok=True)
    port, page = free_ports(2)
    master = f"spark://127.0.0.1:{port}"
    here = ["--host", "127.0.0.1"]
    with contextlib.ExitStack() as stack:
        first = ["org.apache.spark.deploy.master.Master", *here]
        first += ["--port", str(port), "--webui-port", str(page)]
        stack.enter_context(_process(folder, "master", first))
        for number in range(WORKERS):
            worker = ["org.apache.spark.deploy.worker.Worker", *here, "--webui-port", "0"]
            worker += ["--cores", "2", "--memory", "2g"]
            worker += ["--work-dir", str(folder / f"work-{number}")]
            stack.enter_context(_process(folder, f"worker-{number}", [*worker, master]))
        _wait_for_workers(f"http://127.0.0.1:{page}/json/", folder)
        yield master


@contextlib.contextmanager
def _process(folder: Path, name: str, arguments: list[str]) -> Iterator[None]:
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C is for us: the cluster must live until the code in the with block has ended.
            start_new_session=True,
        )
    try:
        yield
    finally:
        end_process(process)


def _wait_for_workers(page: str, folder: Path) -> None:
    """Return when the master knows all workers."""
    until = time.monotonic() + START_TIMEOUT
    while time.monotonic() < until:
        with contextlib.suppress(OSError), urllib.request.urlopen(page, timeout=5) as answer:
            if answer.read().count(b'"ALIVE"') >= WORKERS:
                return
        time.sleep(0.1)
    logs = "\n".join(tail(log) for log in sorted(folder.glob("*.log")))
    raise PeerError(f"no cluster of {WORKERS} workers within {START_TIMEOUT:.0f} s:\n{logs}")


def main() -> int:
    """Run the command line; the exit status."""
    exit_on_sigterm()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-spark-") as folder,
        running_cluster(Path(folder)) as master,
        contextlib.suppress(KeyboardInterrupt),
    ):
        print(f"spark listening on {master}", flush=True)
        while True:
            time.sleep(3600)
    return 0


if __name__ == "__main__":
    sys.exit(main())
