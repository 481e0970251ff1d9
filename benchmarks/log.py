"""The log beside a real Kafka: the same client, the same machine, the same run, taking turns.

Penstock runs with its defaults (fsync before every acknowledgement) and, for the measures that say
`os`, with topics of durability `os`, which is what Kafka itself promises. Kafka runs with its defaults,
except that the hot one deletes a topic's files at once. Every workload is a librdkafka client in a
process of its own (client.c). Each number is the median of the rounds; the last lines hold the ratios
of Penstock to Kafka, the median of those of each turn, against their bars, and the exit status is 1 if
one is short. On a machine with 2 cores the whole takes about half an hour. Brokers that are not
measured are stopped meanwhile, for as long as Kafka takes that.

Throughput is measured on brokers that are hot from a warm-up and from the rounds before. The bars of
end-to-end are about brokers that were started for it and get nothing else, as they are when somebody
starts one. Kafka's compiler works beside it then, and its 99th percentile is some milliseconds; after
minutes of load it is a tenth of that, which `hot-end-to-end` shows, without a bar.

Client and broker share the machine, and producing takes most of it for the client. So there are two
more parties, in C (discard.c): one that throws records away and answers at once, and the least that is
durable, which receives, writes and syncs, and neither checks nor knows what it stores. The lines `limit`
say what they reach, to Kafka: on this machine, in this run, no broker can do better with that client
than the first, and none that stores what it gets in files much better than the second.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tools import kafka
from tools.kafka import BrokerProcess, KafkaError, running_kafka

from benchmarks import client
from benchmarks.brokers import await_deletions, create_topic, delete_topic, running_penstock
from benchmarks.discard import running_discard, running_least
from benchmarks.pages import forget_pages
from benchmarks.report import Better, Verdict, conclude, preamble, progress, summary, table
from benchmarks.workload import Numbers, WorkloadError

WORKLOADS = ("produce", "consume", "single", "end-to-end", "start")
PARTITIONS = (1, 6)
RATE = 1000
CONNECTING = 1500
"""The first records of end-to-end, which do not count."""


@dataclass(frozen=True)
class Scale:
    """How much of each workload: on two cores every part takes 1 to 6 s, but for end-to-end."""

    records: dict[int, int]
    """Record size to number of records."""
    turns: int
    """How often that, and single, is done in a round: it takes a second or less, and on shared cores
    one second differs from the next by a fifth."""
    single: int
    seconds: float
    """Of end-to-end on a new broker, after a second and a half that does not count; 0 for none."""
    hot_seconds: float
    """The same on a broker that was under load."""


# No more than 700 MB at a time: a virtual machine whose page cache grows beyond the memory that its
# host has given it so far measures the host, at a tenth of the speed.
FULL = Scale({100: 5_000_000, 1000: 700_000}, turns=3, single=60_000, seconds=20.0, hot_seconds=5.0)
QUICK = Scale({100: 1_000_000, 1000: 300_000}, turns=1, single=10_000, seconds=5.0, hot_seconds=2.0)
# Not measured: both brokers get hot, in Kafka's case the JIT compiler.
WARM_UP = Scale(
    {100: 1_000_000, 1000: 100_000}, turns=1, single=10_000, seconds=0.0, hot_seconds=1.0
)


@dataclass(frozen=True)
class Side:
    """One of the things compared: a broker and the configuration of the topics on it."""

    name: str
    broker: str
    config: dict[str, str] = field(default_factory=dict)
    workloads: frozenset[str] = frozenset(WORKLOADS)
    """What it takes part in."""


KAFKA = Side("kafka", "kafka")
PENSTOCK = Side("penstock", "penstock")
PENSTOCK_OS = Side("penstock os", "penstock", {"penstock.durability": "os"})
PENSTOCK_MEMORY = Side("penstock memory", "penstock", {"penstock.durability": "memory"})

NO_BROKER = Side("no broker", "discard", workloads=frozenset({"produce"}))
LEAST_BROKER = Side("least broker", "least", workloads=frozenset({"produce"}))
LIMITS = (NO_BROKER, LEAST_BROKER)


@dataclass(frozen=True)
class Bar:
    """What a measure has to reach: Penstock's divided by Kafka's."""

    measure: str
    side: Side
    better: Better
    value: float


def _bars(partitions: int) -> list[Bar]:
    """The bars that hold for one partition and for six alike."""
    more, less, suffix = Better.MORE, Better.LESS, f"-p{partitions}"
    return [
        Bar(f"produce-100B{suffix}", PENSTOCK, more, 1.2),
        Bar(f"produce-1kB{suffix}", PENSTOCK, more, 1.05),
        Bar(f"consume-100B{suffix}", PENSTOCK, more, 0.95),
        Bar(f"consume-1kB{suffix}", PENSTOCK, more, 0.95),
        Bar(f"single{suffix}", PENSTOCK, more, 3.0),
        Bar(f"end-to-end-p50{suffix}", PENSTOCK, less, 2.0),
        Bar(f"end-to-end-p99{suffix}", PENSTOCK, less, 0.5),
        Bar(f"end-to-end-p50{suffix}", PENSTOCK_OS, less, 1.0),
        Bar(f"end-to-end-p99{suffix}", PENSTOCK_OS, less, 0.3),
        Bar(f"cpu{suffix}", PENSTOCK, less, 0.6),
        Bar(f"cpu{suffix}", PENSTOCK_OS, less, 0.4),
    ]


BARS = [
    *(bar for partitions in PARTITIONS for bar in _bars(partitions)),
    Bar("memory", PENSTOCK, Better.LESS, 1 / 8),
    Bar("start", PENSTOCK, Better.LESS, 0.25),
]

# How a measure is shown: unit, factor and digits, by how its name starts.
_UNITS = (
    ("produce-100B", "k records/s", 1e-3, 0),
    ("consume-100B", "k records/s", 1e-3, 0),
    ("produce-1kB", "MB/s", 1e-3, 0),
    ("consume-1kB", "MB/s", 1e-3, 0),
    ("single", "requests/s", 1, 0),
    ("end-to-end", "ms", 1, 2),
    ("hot-end-to-end", "ms", 1, 2),
    ("cpu", "s", 1, 2),
    ("memory", "MB", 1e-6, 0),
    ("start", "s", 1, 2),
)

Samples = dict[tuple[str, str], list[float]]
"""(measure, name of the side) to one number per round."""


class Comparison:
    """Runs the workloads on all sides in turn and keeps what they measured."""

    def __init__(
        self, folder: Path, brokers: dict[str, BrokerProcess], sides: list[Side], only: set[str]
    ) -> None:
        self.folder = folder
        self.brokers = brokers
        self.sides = sides
        self.only = only
        self.samples: Samples = defaultdict(list)
        self.cpu: dict[tuple[str, str], float] = defaultdict(float)
        self.memory: dict[str, int] = defaultdict(int)
        self.topics = 0

    def round(self, scale: Scale, order: list[Side]) -> None:
        """Every workload once on every side, in that order of sides."""
        self.cpu.clear()
        self.memory.clear()
        for partitions in PARTITIONS:
            for _ in range(scale.turns):
                for size, records in scale.records.items():
                    for side in order:
                        self._produce_and_consume(side, partitions, size, records)
                for side in order:
                    self._single(side, partitions, scale.single)
            for side in order:
                self._hot_end_to_end(side, partitions, scale)
            for side in order:
                self._start(side, partitions, scale)
        for key, seconds in self.cpu.items():
            self.samples[key].append(seconds)
        for name, bytes_used in self.memory.items():
            self.samples["memory", name].append(bytes_used)

    def _produce_and_consume(self, side: Side, partitions: int, size: int, records: int) -> None:
        only = self.only & side.workloads & {"produce", "consume"}
        if not only:
            return
        label = f"{'100B' if size == 100 else '1kB'}-p{partitions}"
        broker = self.brokers[side.broker]
        with self._topic(broker, side, partitions) as run:
            numbers = run("produce", records=records, size=size)
            if "produce" in only:
                self._keep(f"produce-{label}", side, numbers["rate"])
            if "consume" in only:
                numbers = run("consume", records=records)
                self._keep(f"consume-{label}", side, numbers["rate"])

    def _single(self, side: Side, partitions: int, records: int) -> None:
        if "single" not in self.only & side.workloads:
            return
        with self._topic(self.brokers[side.broker], side, partitions) as run:
            numbers = run("single", records=records)
        self._keep(f"single-p{partitions}", side, numbers["rate"])

    def _start(self, side: Side, partitions: int, scale: Scale) -> None:
        """A new broker on an empty folder, until a client gets metadata; and what it is like then."""
        if not scale.seconds or not self.only & side.workloads & {"start", "end-to-end"}:
            return
        with (
            tempfile.TemporaryDirectory(dir=self.folder) as empty,
            start_broker(side.broker, Path(empty)) as broker,
        ):
            # Another configuration of topics is not another start.
            if "start" in self.only and side.name == side.broker:
                self._keep("start", side, broker.start_seconds)
            if "end-to-end" in self.only:
                self._end_to_end("end-to-end", broker, side, partitions, scale.seconds)

    def _hot_end_to_end(self, side: Side, partitions: int, scale: Scale) -> None:
        if "end-to-end" in self.only & side.workloads:
            broker = self.brokers[side.broker]
            self._end_to_end("hot-end-to-end", broker, side, partitions, scale.hot_seconds)

    def _end_to_end(
        self, measure: str, broker: BrokerProcess, side: Side, partitions: int, seconds: float
    ) -> None:
        records = CONNECTING + int(RATE * seconds)
        with self._topic(broker, side, partitions) as run:
            numbers = run("end-to-end", rate=RATE, records=records, warm_up=CONNECTING)
        for share in ("p50", "p99"):
            self._keep(f"{measure}-{share}-p{partitions}", side, numbers[share])

    @contextlib.contextmanager
    def _topic(
        self, broker: BrokerProcess, side: Side, partitions: int
    ) -> Iterator[Callable[..., Numbers]]:
        """A new topic to run workloads on, removed after them so that the disk does not fill."""
        forget_pages(self.folder)
        self.topics += 1
        topic = f"benchmark-{self.topics}"
        create_topic(broker.bootstrap, topic, partitions, side.config)

        def run(name: str, **parameters: int) -> Numbers:
            """One workload, with the broker's processor time and memory noted beside it."""
            os.sync()  # nobody's unwritten pages may be written at the other's expense
            before = broker.cpu_seconds()
            at = broker.bootstrap
            with self._alone(broker):
                numbers = client.run(
                    name, bootstrap=at, topic=topic, partitions=partitions, **parameters
                )
            if side not in LIMITS:
                self.cpu[f"cpu-p{partitions}", side.name] += broker.cpu_seconds() - before
                self.memory[side.broker] = max(self.memory[side.broker], broker.rss_bytes())
            return numbers

        yield run
        delete_topic(broker.bootstrap, topic)
        if broker in self.brokers.values():
            await_deletions(self.folder)

    @contextlib.contextmanager
    def _alone(self, broker: BrokerProcess) -> Iterator[None]:
        """The others are stopped: an idle Kafka takes 2 to 4 % of a core, and its compiler more.

        Not beside a broker that was started for end-to-end: that takes longer than Kafka can be stopped.
        """
        with contextlib.ExitStack() as stack:
            if broker in self.brokers.values():
                for other in self.brokers.values():
                    if other is not broker:
                        stack.enter_context(other.paused())
            yield

    def _keep(self, measure: str, side: Side, value: float) -> None:
        self.samples[measure, side.name].append(value)
        progress(f"  {measure}: {side.name} {_shown(measure, [value]).partition(' (')[0]}")


def start_broker(broker: str, folder: Path) -> contextlib.AbstractContextManager[BrokerProcess]:
    """The broker of that name with its data in the folder, for the time of a block."""
    return _START[broker](folder)


_START: dict[str, Callable[[Path], contextlib.AbstractContextManager[BrokerProcess]]] = {
    "kafka": running_kafka,
    "penstock": running_penstock,
    "discard": running_discard,
    "least": running_least,
}


def _deleting_kafka(folder: Path) -> contextlib.AbstractContextManager[BrokerProcess]:
    """What is deleted goes at once: by default it does a minute later, while another is measured."""
    return running_kafka(folder, overrides={"log.segment.delete.delay.ms": "100"})


def measure(folder: Path, sides: list[Side], only: set[str], rounds: int, scale: Scale) -> Samples:
    """All rounds; who begins changes from round to round."""
    with contextlib.ExitStack() as stack:
        brokers: dict[str, BrokerProcess] = {}
        for name in sorted({side.broker for side in sides}):
            progress(f"starting {name}")
            hot = _deleting_kafka if name == KAFKA.broker else partial(start_broker, name)
            brokers[name] = stack.enter_context(hot(folder / name))
        comparison = Comparison(folder, brokers, sides, only)
        samples = comparison.samples
        if only != {"start"}:
            progress("warm-up, not measured")
            comparison.round(WARM_UP, sides)
            samples.clear()
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            order = sides if number % 2 == 0 else sides[::-1]
            comparison.round(scale, order)
    return samples


# ---- showing ---------------------------------------------------------------------------------


def _unit(measure_name: str) -> tuple[str, float, int]:
    for start, unit, factor, digits in _UNITS:
        if measure_name.startswith(start):
            return unit, factor, digits
    raise KeyError(measure_name)


def _shown(measure_name: str, samples: list[float]) -> str:
    unit, factor, digits = _unit(measure_name)
    text = summary(samples, factor, digits)
    return f"{text} {unit}" if len(samples) > 1 else f"{text.partition(' ')[0]} {unit}"


def show(samples: Samples, sides: list[Side]) -> None:
    """The table of medians with their spread."""
    rows = []
    for name in dict.fromkeys(name for name, _ in samples):
        unit, factor, digits = _unit(name)
        values = [samples.get((name, side.name), []) for side in sides]
        cells = [summary(value, factor, digits) if value else "-" for value in values]
        rows.append([f"{name}, {unit}", *cells])
    table(["median (smallest-largest)", *(side.name for side in sides)], rows)


def ratio_in_turn(ours: list[float], theirs: list[float]) -> float:
    """The median of what each turn gave, divided by what the other side had in the same turn.

    Not of two medians: in slow spells of the machine both sides are slower, but either median may be
    within them while the other is not: for producing 100 B those of two whole runs differed by up to a
    sixth, these by 2 %.
    """
    return statistics.median(our / their for our, their in zip(ours, theirs, strict=True))


def show_limits(samples: Samples) -> None:
    """What no broker can exceed, and what none that stores can exceed by much."""
    print()
    for measure_name, side in samples:
        limits = side in {limit.name for limit in LIMITS}
        if limits and (theirs := samples.get((measure_name, KAFKA.name))):
            ratio = ratio_in_turn(samples[measure_name, side], theirs)
            print(f"limit {measure_name} {ratio:.3f} ({side})")


def verdicts(samples: Samples, only: set[str]) -> list[Verdict]:
    """Every bar for which both sides were measured."""
    found = []
    complete = only >= set(WORKLOADS) - {"start"}
    for bar in BARS:
        ours = samples.get((bar.measure, bar.side.name))
        theirs = samples.get((bar.measure, KAFKA.name))
        if not ours or not theirs:
            continue
        if bar.measure.startswith(("cpu", "memory")) and not complete:
            continue  # these bars are about the whole of the work
        durability = "-os" if bar.side is PENSTOCK_OS else ""
        ratio = ratio_in_turn(ours, theirs)
        found.append(Verdict(f"{bar.measure}{durability}", ratio, bar.better, bar.value))
    return found


# ---- command line ----------------------------------------------------------------------------


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.log",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, help="rounds to take the median of (default: 5)")
    parser.add_argument(
        "--quick", action="store_true", help="2 short rounds: a first look, not evidence"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=WORKLOADS,
        help="only this workload, may be repeated; processor time and memory get no verdict then",
    )
    parser.add_argument(
        "--alone", action="store_true", help="Penstock without Kafka: numbers but no ratios"
    )
    parser.add_argument(
        "--memory", action="store_true", help="also topics of durability 'memory', for the guide"
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
    sides = [PENSTOCK, PENSTOCK_OS]
    if not options.alone:
        sides.insert(0, KAFKA)
        if "produce" in only:
            sides.extend(LIMITS)
    if options.memory:
        sides.append(PENSTOCK_MEMORY)
    versions = []
    if not options.alone:
        versions = [f"kafka      {kafka.VERSION}, {kafka.java_version()}"]
    try:
        preamble("benchmarks.log", options.folder, versions)
        scale = QUICK if options.quick else FULL
        rounds = options.rounds or (2 if options.quick else 5)
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="penstock-bench-") as folder:
            samples = measure(Path(folder), sides, only, rounds, scale)
    except (KafkaError, WorkloadError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    show(samples, sides)
    show_limits(samples)
    return conclude(verdicts(samples, only))


if __name__ == "__main__":
    sys.exit(main())
