"""Apache Spark with its own Kafka connector, for the tests.

Spark is large, so it stands in a folder of the user's cache and not in the virtual environment: it
is fetched once, and only by those who run the tests. `running_spark` is a session in a process of
its own that is told what to do line by line; what it can do stands in `tools/spark_session.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.jars import JAVA_PACKAGE, Jars, PeerError, cache_folder, filled_once, need, say
from tools.kafka import tail

_ROOT = Path(__file__).parent.parent
_CONNECTOR = "4.2.0"
# Fetched without what they depend on: Spark brings that, except for the last three.
JARS = Jars(
    f"spark-kafka-{_CONNECTOR}",
    (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", _CONNECTOR),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.1"),
        ("org.apache.commons", "commons-pool2", "2.12.1"),
    ),
    transitive=False,
)


def install() -> Path:
    """Fetch Spark and its connector unless they are there; the folder of its Python packages."""
    need("java", JAVA_PACKAGE)
    JARS.install()
    groups = tomllib.loads((_ROOT / "pyproject.toml").read_text())["dependency-groups"]
    requirement: str
    (requirement,) = groups["spark"]
    folder = cache_folder() / requirement.replace("==", "-")
    with filled_once(folder) as missing:
        if missing:
            _fetch(folder, requirement)
    return folder


def _fetch(folder: Path, requirement: str) -> None:
    say(f"fetching {requirement} (about 450 MB, once) ...")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        packages = Path(temporary) / "packages"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages)]
        done = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerError(f"pip could not install {requirement}:\n{done.stdout}{done.stderr}")
        packages.rename(folder)
    say(f"{requirement}: {time.monotonic() - started:.0f} s")


class Spark:
    """A session that does one thing at a time."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def do(self, what: str, **arguments: Any) -> Any:
        """Have it do something; what came of it.

        Raises:
            PeerError: Spark refused or failed; the message is Spark's.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, "with": arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"the Spark session ended:\n{tail(self._log, 60)}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer["result"]


@contextlib.contextmanager
def running_spark(folder: Path) -> Iterator[Spark]:
    """A session that keeps what it writes in folder and ends with the block."""
    packages = install()
    jars = sorted(str(jar) for jar in JARS.folder().glob("*.jar"))
    log = folder / "spark.log"
    environment = os.environ | {
        "PYTHONPATH": str(packages),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }
    script = _ROOT / "tools" / "spark_session.py"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, str(script), str(folder), ",".join(jars)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield Spark(process, log)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()  # which is how it is told to end
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
