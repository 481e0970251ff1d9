"""Cost does not grow with what is retained: Penstock beside itself in three states.

    empty      a new broker with one topic
    retained   that topic already holds 50 GB in sealed segments (sparse files)
    idle       1,000 other partitions that have been written and lie idle

The same steady load (a producer and a consumer that follows it) runs on the three in turn; what
counts is the broker's processor time per million records, as the median of the rounds' own ratios: a
spell in which the machine is slow is one of all three. Then all 1,000 partitions are written at
once and the delay until they are committed is measured, then the memory, then restarts after an
orderly stop and after kill -9 under load. The last lines hold each measure against its bar, and the
exit status is 1 if one is short. On a machine with 2 cores it takes about 5 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tools.kafka import BrokerProcess, KafkaError, exit_on_sigterm

from benchmarks import workload
from benchmarks.brokers import create_topic, running_penstock
from benchmarks.pages import forget_pages
from benchmarks.report import Better, Verdict, conclude, preamble, progress, summary, table
from benchmarks.retained import retain

TOPIC = "work"
IDLE_TOPIC = "idle"
IDLE_PARTITIONS = 1_000
RETAINED_SEGMENTS = 50  # of a gigabyte each
RATE = 200_000

CPU_BAR = 1.10
MEMORY_BAR_MB = 100.0
CLEAN_RESTART_BAR_SECONDS = 1.0
# "Bounded" needs a number: a client's default request timeout is 30 s, a person's patience is one.
COMMIT_BAR_MS = 1_000.0
# After a kill only the tail that no checkpoint covers is read. The tail is the same in both states,
# so the time may differ by no more than such short times scatter.
KILL_RESTART_BAR = 1.5

STATES = ("empty", "retained", "idle")

Samples = dict[str, list[float]]
"""State to one number per round."""


def prepare(folder: Path, state: str) -> None:
    """Bring a data folder into its state, with a broker that is stopped again afterwards."""
    progress(f"preparing {state}")
    with running_penstock(folder) as broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        if state == "idle":
            create_topic(broker.bootstrap, IDLE_TOPIC, IDLE_PARTITIONS)
            # Written, not just made: an empty partition could cost less than one in use.
            _burst(broker, rounds=2)
    if state == "retained":
        retain(folder / "data" / "topics" / f"{TOPIC}-0", RETAINED_SEGMENTS)


def _steady(broker: BrokerProcess, seconds: float) -> float:
    """Processor seconds of the broker per million records of the steady load."""
    records = int(RATE * seconds)
    before = broker.cpu_seconds()
    parameters = {"partitions": 1, "rate": RATE, "records": records}
    numbers = workload.run("steady", bootstrap=broker.bootstrap, topic=TOPIC, **parameters)
    if numbers["rate"] < RATE * 0.8:
        progress(f"  only {numbers['rate']:,.0f} records/s of {RATE:,}: the machine is too busy")
    return (broker.cpu_seconds() - before) * 1e6 / records


def _burst(broker: BrokerProcess, rounds: int) -> workload.Numbers:
    parameters = {"partitions": IDLE_PARTITIONS, "rounds": rounds}
    return workload.run("burst", bootstrap=broker.bootstrap, topic=IDLE_TOPIC, **parameters)


def measure_load(
    folder: Path, rounds: int, seconds: float
) -> tuple[Samples, Samples, workload.Numbers]:
    """Processor time and memory by state, and the delays of writing all partitions at once."""
    cpu: Samples = defaultdict(list)
    memory: Samples = defaultdict(list)
    with contextlib.ExitStack() as stack:
        brokers = {state: stack.enter_context(running_penstock(folder / state)) for state in STATES}
        for state, broker in brokers.items():
            _steady(broker, min(seconds, 2.0))  # warm-up
            progress(f"  {state} is up: {broker.rss_bytes() / 1e6:.0f} MB")
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            for state in STATES if number % 2 == 0 else STATES[::-1]:
                forget_pages(folder)
                cpu[state].append(_steady(brokers[state], seconds))
                memory[state].append(brokers[state].rss_bytes() / 1e6)
                progress(f"  {state}: {cpu[state][-1]:.3f} CPU s per million records")
        progress(f"writing {IDLE_PARTITIONS:,} partitions at once")
        os.sync()
        delays = _burst(brokers["idle"], rounds=4 * rounds)
        memory["idle"].append(brokers["idle"].rss_bytes() / 1e6)
    return cpu, memory, delays


def measure_restarts(folder: Path, rounds: int) -> tuple[Samples, Samples]:
    """Seconds until metadata is answered: after an orderly stop, and after kill -9 under load."""
    clean: Samples = defaultdict(list)
    killed: Samples = defaultdict(list)
    for number in range(rounds):
        progress(f"restarts {number + 1} of {rounds}")
        for state in STATES:
            with running_penstock(folder / state) as broker:
                clean[state].append(broker.start_seconds)
                _kill_under_load(broker)
            with running_penstock(folder / state) as broker:
                killed[state].append(broker.start_seconds)
            progress(
                f"  {state}: {clean[state][-1]:.2f} s after a stop, "
                f"{killed[state][-1]:.2f} s after a kill"
            )
    return clean, killed


def _kill_under_load(broker: BrokerProcess) -> None:
    parameters = {"partitions": 1, "rate": RATE, "records": RATE * 60}
    child = workload.start("steady", bootstrap=broker.bootstrap, topic=TOPIC, **parameters)
    try:
        time.sleep(2.0)
        if child.poll() is not None:
            raise workload.WorkloadError("the load ended before the broker was killed")
        os.kill(broker.pid, signal.SIGKILL)
    finally:
        child.kill()
        child.wait()


# ---- showing ---------------------------------------------------------------------------------


def show(rows: dict[str, Samples], delays: workload.Numbers) -> None:
    """The table of medians with their spread, and the delays."""
    lines = [
        [name, *(summary(samples[state], 1, 3) for state in STATES)]
        for name, samples in rows.items()
    ]
    table(["median (smallest-largest)", *STATES], lines)
    print(
        f"\n{IDLE_PARTITIONS:,} partitions written at once, ms until committed: "
        f"p50 {delays['p50']:.1f}, p99 {delays['p99']:.1f}, max {delays['max']:.1f}; "
        f"first time {delays['first']:.1f}"
    )


def verdicts(
    cpu: Samples, memory: Samples, delays: workload.Numbers, clean: Samples, killed: Samples
) -> list[Verdict]:
    """Every measure against its bar."""
    median = statistics.median
    less = Better.LESS
    found = []
    for state in STATES[1:]:
        ratios = [own / empty for own, empty in zip(cpu[state], cpu["empty"], strict=True)]
        found.append(Verdict(f"cpu-{state}-to-empty", median(ratios), less, CPU_BAR))
    found += [
        Verdict(f"memory-MB-{state}", max(memory[state]), less, MEMORY_BAR_MB) for state in STATES
    ]
    found.append(Verdict("commit-ms-max-all-partitions", delays["max"], less, COMMIT_BAR_MS))
    found += [
        Verdict(f"restart-clean-s-{state}", median(clean[state]), less, CLEAN_RESTART_BAR_SECONDS)
        for state in STATES
    ]
    ratio = median(killed["retained"]) / median(killed["empty"])
    found.append(Verdict("restart-kill-retained-to-empty", ratio, less, KILL_RESTART_BAR))
    return found


# ---- command line ----------------------------------------------------------------------------


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, help="rounds to take the median of (default: 9)")
    parser.add_argument(
        "--quick", action="store_true", help="2 short rounds: a first look, not evidence"
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
    exit_on_sigterm()
    rounds = options.rounds or (2 if options.quick else 9)
    seconds = 3.0 if options.quick else 6.0
    preamble("benchmarks.growth", options.folder)
    try:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="penstock-bench-") as folder:
            for state in STATES:
                prepare(Path(folder) / state, state)
            cpu, memory, delays = measure_load(Path(folder), rounds, seconds)
            clean, killed = measure_restarts(Path(folder), rounds)
    except (KafkaError, workload.WorkloadError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    rows = {
        "CPU s per million records": cpu,
        "memory after load, MB": memory,
        "restart after a stop, s": clean,
        "restart after kill -9, s": killed,
    }
    show(rows, delays)
    return conclude(verdicts(cpu, memory, delays, clean, killed))


if __name__ == "__main__":
    sys.exit(main())
