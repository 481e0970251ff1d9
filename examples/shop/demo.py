"""The demo: an online shop on a broker and Spark, both of which are killed on the way.

1. starts `penstock serve` on a free port with an empty data folder;
2. lets visitors look at products, order and pay for two hours of the shop's time, which pass in a
   minute, with events out of order and some of them much too late;
3. runs `penstock run examples/shop/pipeline.py`, which keeps revenue by minute, visits and the most
   wanted products in tables of SQLite;
4. kills the pipeline with SIGKILL in mid-flight, and later the broker; at a terminal, so does every
   press of Enter;
5. when everything has been counted, compares every total with what the visitors did.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from examples.shop.events import OPENING, TOPICS, day
from examples.shop.processes import Broker, Pipeline
from examples.shop.screen import Screen
from examples.shop.tables import Tables, check
from examples.shop.visitors import Visitors
from kafka.admin import KafkaAdminClient, NewTopic

PARTITIONS = 3
HOURS = 2.0
VISITS_PER_SECOND = 3.0
PATIENCE_SECONDS = 300.0


def create_topics(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in TOPICS])
    admin.close()


def crashes(
    visitors: Visitors, pipeline: Pipeline, broker: Broker, tables: Tables
) -> Iterator[str]:
    """What is killed, as soon as it is time for it."""
    while tables.numbers().counted < 0.2 * visitors.total:
        yield ""
    yield "kill -9: the pipeline, in mid-flight" if pipeline.kill() else ""
    while visitors.share < 0.75:
        yield ""
    broker.kill()
    broker.start()
    yield "kill -9: the broker, which is back at once"


def button(pipeline: Pipeline, screen: Screen) -> None:
    """Every press of Enter kills the pipeline."""
    for _ in sys.stdin:
        if pipeline.kill():
            screen.say("kill -9: the pipeline, by you")


def watch(visitors: Visitors, pipeline: Pipeline, broker: Broker, tables: Tables) -> Screen:
    """Show how it goes until everything has been counted."""
    screen = Screen(OPENING)
    if sys.stdin.isatty():
        threading.Thread(target=button, args=(pipeline, screen), daemon=True).start()
    planned = crashes(visitors, pipeline, broker, tables)
    deadline = None
    with screen:
        while True:
            if happened := next(planned, ""):
                screen.say(happened)
            numbers = tables.numbers()
            screen.show(visitors.sent, numbers)
            if not visitors.running:
                deadline = deadline or time.monotonic() + PATIENCE_SECONDS
                if numbers.counted == visitors.sent or time.monotonic() > deadline:
                    return screen
            if not pipeline.running:
                return screen
            time.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long the shop is open")
    parser.add_argument("--folder", type=Path, default=Path("build/demo"), help="emptied at first")
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    database = options.folder / "shop.db"
    events = day(1, HOURS * 3600, VISITS_PER_SECOND)
    broker = Broker(options.folder / "data")
    create_topics(broker.bootstrap)
    pipeline = Pipeline(broker.bootstrap, options.folder, database)
    print("starting Spark; the shop opens when it is there ...", flush=True)
    visitors = Visitors(broker.bootstrap, events, HOURS * 3600 / options.seconds, pipeline)
    try:
        watch(visitors, pipeline, broker, Tables(database))
        visitors.finish()
    finally:
        pipeline.stop()
        broker.stop()
    wrong = check(events, visitors.acknowledged, Tables(database))
    print(f"ask it yourself: sqlite3 {database} 'SELECT * FROM revenue ORDER BY window_start'")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
