"""Apache Spark with its own Kafka connector, for the tests.

`running_spark` is a session in a process of its own, because jars are for a whole JVM. It is told what
to do line by line; what it can do stands in `tools/spark_session.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.jars import JAVA_PACKAGE, Jars, PeerError, need
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


def install() -> None:
    """Fetch the connector unless it is there."""
    need("java", JAVA_PACKAGE)
    JARS.install()


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
    install()
    jars = sorted(str(jar) for jar in JARS.folder().glob("*.jar"))
    log = folder / "spark.log"
    environment = os.environ | {
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
