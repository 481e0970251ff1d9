"""Penstock's source in Spark beside Spark's own Kafka connector, taking turns on the same real Kafka.

JSON values become typed columns, by the source on one side and by from_json on the other, and then
nothing, a count in windows of ten seconds, or a count for each of 100,000 users. Both sides are sessions
of `penstock.spark.session`, so that the source alone makes the difference. The floor of a micro-batch is
the median time of batches of ten rows, in such a session and in one with Spark's defaults.

Each number is the median of the rounds, after one that is not counted; the last lines hold the ratios
against their bars, and the exit status is 1 if one is short. It takes about 12 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from tools import spark
from tools.kafka import KafkaError, running_kafka, tail

from benchmarks.brokers import create_topic
from benchmarks.report import Better, Verdict, conclude, preamble, progress, summary, table
from benchmarks.spark_side import CONNECTOR, PENSTOCK, PLAIN

TOPIC = "events"
PARTITIONS = 4
USERS = 100_000
KINDS = ("view", "click", "cart", "order", "search")
# Of rows a second, Penstock's to Spark's; and of the time of a batch, likewise.
THROUGHPUT = {"typed": 2.0, "windowed": 1.9, "users": 1.5}
FLOOR = {"floor-stateless": 0.85, "floor-stateful": 0.15}
Samples = dict[tuple[str, str], list[float]]


class Child:
    """A side in its own process."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def run(self, query: str) -> dict[str, Any]:
        """The result of one run of a query."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(query + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise KafkaError(f"the Spark session ended:\n{tail(self._log, 40)}")
        found: dict[str, Any] = json.loads(line)
        return found


@contextlib.contextmanager
def running_side(kind: str, bootstrap: str, folder: Path) -> Iterator[Child]:
    """A side that ends with the block."""
    jars = ",".join(sorted(str(jar) for jar in spark.JARS.folder().glob("*.jar")))
    log = folder / f"{kind}.log"
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder)}
    work = folder / kind
    work.mkdir()
    command = [sys.executable, "-m", "benchmarks.spark_side", kind, bootstrap, TOPIC]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, str(work), jars],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with process:
        try:
            yield Child(process, log)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # which is how it is told to end
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def fill(bootstrap: str, rows: int) -> None:
    """Events of about 105 bytes, a thousand of them for each second of event time."""
    create_topic(bootstrap, TOPIC, PARTITIONS)
    chance = random.Random(5)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "acks": "1"})
    for number in range(rows):
        second, millis = divmod(number, 1000)
        at = f"2026-01-01T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"
        value = (
            f'{{"user":"u{chance.randrange(USERS)}","kind":"{KINDS[number % len(KINDS)]}",'
            f'"amount":{number % 1000}.25,"at":"{at}.{millis:03}Z","number":{number}}}'
        )
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise KafkaError("the topic could not be filled")


def measure(sides: dict[str, Child], queries: dict[str, float], rounds: int) -> Samples:
    """Seconds of each query on each side, and for the others rows a second."""
    samples: Samples = defaultdict(list)
    for query in queries:
        for number in range(rounds + 1):
            for kind, child in sides.items():
                result = child.run(query)
                value = result["seconds"]
                if "rows" in result:
                    value = result["rows"] / value
                    progress(f"{query} {kind}: {result['rows']:,} rows, {value:,.0f} a second")
                else:
                    progress(f"{query} {kind}: {value * 1000:.0f} ms")
                if number:
                    samples[query, kind].append(value)
    return samples


def _verdict(samples: Samples, query: str, other: str, better: Better, bar: float) -> Verdict:
    ours, theirs = (statistics.median(samples[query, kind]) for kind in (PENSTOCK, other))
    return Verdict(query, ours / theirs, better, bar)


def run(folder: Path, rows: int, rounds: int) -> int:
    """Measure everything; the exit status."""
    with running_kafka(folder / "kafka") as kafka:
        progress(f"filling a topic with {rows:,} records")
        fill(kafka.bootstrap, rows)
        with (
            running_side(CONNECTOR, kafka.bootstrap, folder) as connector,
            running_side(PENSTOCK, kafka.bootstrap, folder) as ours,
        ):
            samples = measure({CONNECTOR: connector, PENSTOCK: ours}, THROUGHPUT, rounds)
            bootstrap = kafka.bootstrap
            with running_side(PLAIN, bootstrap, folder) as plain:
                samples |= measure({PLAIN: plain, PENSTOCK: ours}, FLOOR, rounds)
    table(
        ("rows a second, in thousands", CONNECTOR, PENSTOCK),
        [
            (query, *(summary(samples[query, kind], 1e-3, 0) for kind in (CONNECTOR, PENSTOCK)))
            for query in THROUGHPUT
        ],
    )
    table(
        ("time of a batch in ms", PLAIN, PENSTOCK),
        [
            (query, *(summary(samples[query, kind], 1e3, 0) for kind in (PLAIN, PENSTOCK)))
            for query in FLOOR
        ],
    )
    verdicts = [_verdict(samples, q, CONNECTOR, Better.MORE, bar) for q, bar in THROUGHPUT.items()]
    verdicts += [_verdict(samples, q, PLAIN, Better.LESS, bar) for q, bar in FLOOR.items()]
    return conclude(verdicts)


def main() -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000, help="records in the topic")
    parser.add_argument("--rounds", type=int, default=3, help="after one that is not counted")
    parser.add_argument("--folder", type=Path, help="where data goes (default: a temporary one)")
    options = parser.parse_args()
    spark.install()
    with tempfile.TemporaryDirectory(prefix="penstock-spark-", dir=options.folder) as folder:
        preamble("benchmarks.spark", Path(folder))
        return run(Path(folder), options.rows, options.rounds)


if __name__ == "__main__":
    sys.exit(main())
