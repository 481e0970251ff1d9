"""Groups, committed offsets and transactions beside a real Kafka, taking turns in the same run.

Penstock runs with its defaults: what it answers is on disk, but for commits that move on from others,
which are synced every second. Kafka runs with its defaults, which sync nothing. One setting is measured
both ways: Kafka gathers the first members of a classic group for 3 s (group.initial.rebalance.delay.ms),
which is what its users get, and with 0 it does as Penstock always does, which is the fairer comparison;
all other measures are beside a Kafka with 0.

Every client is librdkafka. Members of classic groups send a heartbeat every 100 ms, because that is when
they hear of a rebalance, and with the client's default of 3 s the brokers would not show. Members of
KIP-848 groups send them as often as the broker tells them to.

Each number is the median of the rounds; the last lines hold the ratios of Penstock to Kafka against
their bars, and the exit status is 1 if one is short. It takes about 9 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools import kafka
from tools.kafka import BrokerProcess, KafkaError, running_kafka

from benchmarks import workload
from benchmarks.brokers import create_topic, delete_topic, running_penstock
from benchmarks.client import run as run_client
from benchmarks.report import Better, Verdict, conclude, preamble, progress, summary, table
from benchmarks.workload import Numbers, WorkloadError

KAFKA, KAFKA_DEFAULT, PENSTOCK = "kafka", "kafka default", "penstock"
PARTITIONS = 60
SIZES = (1, 10, 50)
SUSTAINED_RATE = 5000
IN_C = "commits"
MIB = 1 << 20


@dataclass(frozen=True)
class Load:
    """One workload of members.py, or commits of client.c, and what is kept of its numbers."""

    name: str
    workload: str
    parameters: Mapping[str, str | int]
    measures: dict[str, str]
    """Number of the workload to name of the measure."""
    better: Better
    sides: tuple[str, ...] = (KAFKA, PENSTOCK)
    bar: float = 1.0
    rounds_max: int = 99
    """Those that take long and differ little are measured less often."""


def _first_record(protocol: str, sides: tuple[str, ...]) -> Load:
    name = f"first-record-{'classic' if protocol == 'eager' else protocol}"
    return Load(
        "first-record",
        "first-record",
        {"protocol": protocol},
        {"seconds": name},
        Better.LESS,
        sides,
    )


def _rebalance(protocol: str, members: int) -> Load:
    # A change takes a quarter of a second, two, and with Kafka ten. How long one takes depends on where
    # between two heartbeats it comes; where one member is to hear of it, not several, it shows.
    times = {"eager": 3, "cooperative": 5 if members == 1 else 2, "consumer": 1}[protocol]
    return Load(
        "rebalance",
        "rebalance",
        {"protocol": protocol, "members": members, "partitions": PARTITIONS, "times": times},
        {change: f"{change}-{protocol}-{members}" for change in ("join", "leave")},
        Better.LESS,
        # How long a classic rebalance takes is how long the members take to hear of it and to answer:
        # both brokers wait for them, and a tenth is noise.
        bar=1.0 if protocol == "consumer" else 1.1,
        rounds_max=99 if protocol == "eager" else 2,
    )


def _rate(name: str, workload_name: str, measure: str, **parameters: int) -> Load:
    return Load(name, workload_name, parameters, {"rate": measure}, Better.MORE)


def _commits(measure: str, *, consumers: int, count: int, in_flight: int) -> Load:
    parameters = {"partitions": consumers, "records": count, "size": in_flight, "warm_up": 500}
    return Load("commits", IN_C, parameters, {"rate": measure}, Better.MORE)


LOADS = [
    _first_record("eager", (KAFKA, KAFKA_DEFAULT, PENSTOCK)),
    _first_record("consumer", (KAFKA, PENSTOCK)),
    *(_rebalance(protocol, n) for protocol in ("eager", "cooperative") for n in SIZES),
    *(_rebalance("consumer", n) for n in SIZES),
    _commits("commits-one-by-one", consumers=1, count=5000, in_flight=1),
    _commits("commits-in-flight", consumers=8, count=60_000, in_flight=800),
    _rate("transactions", "transactions", "transactions-1", count=400, records=1),
    _rate("transactions", "transactions", "transactions-100", count=300, records=100),
    _rate(
        "transactions", "transactions", "transactions-offsets", count=300, records=1, offsets=True
    ),
]
WORKLOADS = ("first-record", "rebalance", "commits", "transactions", "sustained")

Samples = dict[tuple[str, str], list[float]]
"""(measure, side) to one number per round."""


class Comparison:
    """Runs the workloads on all sides in turn and keeps what they measured."""

    def __init__(self, brokers: dict[str, BrokerProcess], only: set[str]) -> None:
        self.brokers = brokers
        self.only = only
        self.samples: Samples = defaultdict(list)
        self.cpu: Samples = defaultdict(list)
        self.topics = 0

    def round(self, number: int) -> None:
        """Every workload once on every side; who begins changes from round to round."""
        for load in LOADS:
            if load.name in self.only and number < load.rounds_max:
                for side in load.sides[:: -1 if number % 2 else 1]:
                    if side in self.brokers:
                        self._run(load, side)

    def warm_up(self) -> None:
        """Commits and transactions, not measured: both brokers get hot, and Kafka makes its topics."""
        for load in LOADS:
            for side in load.sides:
                if load.better is Better.MORE and load.name in self.only and side in self.brokers:
                    self._run(load, side)
        self.samples.clear()
        self.cpu.clear()

    def _run(self, load: Load, side: str) -> None:
        broker = self.brokers[side]
        with self._topic(broker) as topic:
            os.sync()  # nobody's unwritten pages may be written at the other's expense
            before = broker.cpu_seconds()
            numbers = self._numbers(load, broker.bootstrap, topic)
            cpu = broker.cpu_seconds() - before
        for number, measure in load.measures.items():
            self.samples[measure, side].append(numbers[number])
            self.cpu[measure, side].append(cpu)
            progress(
                f"  {measure}: {side} {_shown(load, numbers[number])}, {cpu:.2f} s of processor"
            )

    @staticmethod
    def _numbers(load: Load, bootstrap: str, topic: str) -> Numbers:
        if load.workload == IN_C:
            numbers = {name: int(value) for name, value in load.parameters.items()}
            return run_client(IN_C, bootstrap=bootstrap, topic=topic, **numbers)
        return workload.run(
            load.workload,
            "benchmarks.members",
            bootstrap=bootstrap,
            topic=topic,
            **load.parameters,
        )

    @contextlib.contextmanager
    def _topic(self, broker: BrokerProcess) -> Iterator[str]:
        """A new topic with a record in each partition, removed after its workload."""
        self.topics += 1
        name = f"benchmark-{self.topics}"
        create_topic(broker.bootstrap, name, PARTITIONS)
        run_client(
            "produce",
            bootstrap=broker.bootstrap,
            topic=name,
            partitions=PARTITIONS,
            records=100 * PARTITIONS,
        )
        yield name
        delete_topic(broker.bootstrap, name)


def measure(folder: Path, sides: tuple[str, ...], only: set[str], rounds: int) -> Comparison:
    """All rounds, one after the other."""
    with contextlib.ExitStack() as stack:
        brokers: dict[str, BrokerProcess] = {}
        for side in sides:
            progress(f"starting {side}")
            brokers[side] = stack.enter_context(_start(side, folder / side.replace(" ", "-")))
        comparison = Comparison(brokers, only)
        progress("warm-up, not measured")
        comparison.warm_up()
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            comparison.round(number)
    return comparison


def _start(side: str, folder: Path) -> contextlib.AbstractContextManager[BrokerProcess]:
    if side == PENSTOCK:
        return running_penstock(folder)
    delay = {"group.initial.rebalance.delay.ms": "0"} if side == KAFKA else {}
    return running_kafka(folder, overrides=delay)


# ---- a steady rate ---------------------------------------------------------------------------


def sustained(folder: Path, seconds: float) -> list[Verdict]:
    """Penstock by itself under ever more groups: does it keep up, and is what it keeps bounded?"""
    with running_penstock(folder) as broker:
        create_topic(broker.bootstrap, "sustained", PARTITIONS)
        before = broker.rss_bytes()
        numbers = workload.run(
            "commits",
            "benchmarks.sustained",
            bootstrap=broker.bootstrap,
            topic="sustained",
            partitions=PARTITIONS,
            rate=SUSTAINED_RATE,
            seconds=seconds,
        )
        memory = (broker.rss_bytes() - before) / MIB
        journal = (folder / "data" / "offsets.journal").stat().st_size / MIB
    return _sustained_verdicts(numbers, memory, journal, seconds)


def _sustained_verdicts(
    numbers: Numbers, memory: float, journal: float, seconds: float
) -> list[Verdict]:
    positions = numbers["groups"] * PARTITIONS
    print(
        f"\nsustained: {numbers['rate']:,.0f} commits/s for {seconds:.0f} s, answered after "
        f"{numbers['p50']:.1f} ms (p99 {numbers['p99']:.1f} ms); {numbers['groups']:,.0f} groups with "
        f"up to {positions:,.0f} positions, {memory:.0f} MiB more memory, journal {journal:.1f} MiB"
    )
    # Rates are never quite reached: the last answers come after the end.
    return [
        Verdict("commits-sustained", numbers["rate"], Better.MORE, 0.99 * SUSTAINED_RATE),
        # What is kept of a position, in memory twice (for readers and for the journal) and on disk;
        # the journal is written anew at three times what counts.
        Verdict("sustained-memory-KiB-per-position", memory * 1024 / positions, Better.LESS, 2.0),
        Verdict("sustained-journal-MiB", journal, Better.LESS, 4 + 3 * positions * 200 / MIB),
    ]


# ---- showing ---------------------------------------------------------------------------------


def _shown(load: Load, value: float) -> str:
    return f"{value:,.0f}/s" if load.better is Better.MORE else f"{value * 1000:,.0f} ms"


def _measures(only: set[str]) -> Iterator[tuple[str, Load]]:
    for load in LOADS:
        if load.name in only:
            for name in load.measures.values():
                yield name, load


def show(comparison: Comparison, sides: tuple[str, ...]) -> None:
    """The table of medians with their spread, and of the brokers' processor time."""
    rows = []
    for name, load in _measures(comparison.only):
        unit, factor = ("per s", 1.0) if load.better is Better.MORE else ("ms", 1000.0)
        values = [comparison.samples.get((name, side), []) for side in sides]
        used = [comparison.cpu.get((name, side), []) for side in sides]
        cells = [summary(value, factor, 0) if value else "-" for value in values]
        cells += [f"{statistics.median(value):.2f}" if value else "-" for value in used]
        rows.append([f"{name}, {unit}", *cells])
    heading = [*sides, *(f"{side} cpu s" for side in sides)]
    table(["median (smallest-largest)", *heading], rows)


def verdicts(comparison: Comparison) -> list[Verdict]:
    """Every measure for which both sides were measured: at least as good as Kafka."""
    found = []
    for name, load in _measures(comparison.only):
        ours = comparison.samples.get((name, PENSTOCK))
        for side in load.sides:
            theirs = comparison.samples.get((name, side))
            if side == PENSTOCK or not ours or not theirs:
                continue
            ratio = statistics.median(ours) / statistics.median(theirs)
            suffix = "-default" if side == KAFKA_DEFAULT else ""
            found.append(Verdict(name + suffix, ratio, load.better, load.bar))
    return found


# ---- command line ----------------------------------------------------------------------------


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.groups",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds to take the median of (default: %(default)s)"
    )
    parser.add_argument(
        "--only", action="append", choices=WORKLOADS, help="only this workload, may be repeated"
    )
    parser.add_argument(
        "--alone", action="store_true", help="Penstock without Kafka: numbers but no ratios"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=30.0,
        help=f"how long to keep up {SUSTAINED_RATE} commits a second (default: %(default).0f)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("/var/tmp"),
        help="where the data goes for the time of the run; on a real disk (default: %(default)s)",
    )
    return parser.parse_args()


def main() -> int:
    """Run the command line; the exit status."""
    options = _options()
    kafka.exit_on_sigterm()
    only = set(options.only or WORKLOADS)
    sides: tuple[str, ...] = (PENSTOCK,)
    versions = []
    if not options.alone:
        sides = (KAFKA, PENSTOCK)
        if "first-record" in only:
            sides = (KAFKA, KAFKA_DEFAULT, PENSTOCK)
        versions = [f"kafka      {kafka.VERSION}, {kafka.java_version()}"]
    found: list[Verdict] = []
    try:
        preamble("benchmarks.groups", options.folder, versions)
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="penstock-bench-") as folder:
            if only != {"sustained"}:
                comparison = measure(Path(folder), sides, only, options.rounds)
                show(comparison, sides)
                found += verdicts(comparison)
            if "sustained" in only:
                progress(f"{SUSTAINED_RATE} commits a second for {options.seconds:.0f} s")
                found += sustained(Path(folder) / "sustained", options.seconds)
    except (KafkaError, WorkloadError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return conclude(found)


if __name__ == "__main__":
    sys.exit(main())
