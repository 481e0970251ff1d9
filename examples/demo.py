"""The demo: a shop's orders through a broker that is killed on the way, and nothing is lost.

1. starts `penstock serve` on a free port with a temporary data folder;
2. streams orders into a topic of three partitions with an ordinary Kafka client, and follows them;
3. kills the broker with SIGKILL in the middle of it, and starts it again on the same folder;
4. reads everything back, and counts: every acknowledged order, once, in order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from kafka.admin import KafkaAdminClient, NewTopic

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

TOPIC = "orders"
PARTITIONS = 3
PRODUCTS = ("tea", "coffee", "cocoa", "milk", "honey")


def say(text: str) -> None:
    print(text, flush=True)


class Broker:
    """`penstock serve` as a child process that can be killed and started again."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._address = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        began = time.monotonic()
        command = [sys.executable, "-m", "penstock", "serve", "--data", str(self._data)]
        self._process = subprocess.Popen(
            [*command, "--kafka", self._address, "--http", "off"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("kafka listening on "):
                self._address = line.split()[-1]
            if line.strip() == "ready":
                seconds = time.monotonic() - began
                say(f"broker ready on {self.bootstrap} after {seconds * 1000:.0f} ms")
                return
        raise SystemExit("the broker did not start")

    @property
    def bootstrap(self) -> str:
        return self._address

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


class Shop:
    """Sends orders as fast as they are acknowledged, and remembers which were."""

    def __init__(self, bootstrap: str, count: int) -> None:
        self._count = count
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            retries=1_000_000,
            delivery_timeout_ms=60_000,
        )
        self.acknowledged: list[int] = []
        self.sent = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        choose = random.Random(1)
        for number in range(self._count):
            product = choose.choice(PRODUCTS)
            order = {"number": number, "product": product, "pieces": number % 5 + 1}
            future = self._producer.send(
                TOPIC,
                key=product.encode(),
                value=json.dumps(order).encode(),
            )
            future.add_callback(lambda _, number=number: self.acknowledged.append(number))
            self.sent += 1
        self._producer.flush()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def finish(self) -> None:
        self._thread.join()
        self._producer.close()


def read_back(bootstrap: str) -> tuple[list[int], Counter[str], int]:
    """Everything in the topic: numbers in the order read, pieces by product, and order breaks."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    ends = consumer.end_offsets(partitions)
    numbers: list[int] = []
    pieces: Counter[str] = Counter()
    last: dict[str, int] = {}
    breaks = 0
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        for records in consumer.poll(timeout_ms=1000).values():
            for record in records:
                order = json.loads(record.value)
                numbers.append(order["number"])
                pieces[order["product"]] += order["pieces"]
                breaks += order["number"] <= last.get(order["product"], -1)
                last[order["product"]] = order["number"]
    consumer.close()
    return numbers, pieces, breaks


def report(shop: Shop, numbers: list[int], pieces: Counter[str], breaks: int) -> bool:
    """Print what happened; whether all is well."""
    acknowledged = set(shop.acknowledged)
    lost = len(acknowledged - set(numbers))
    doubled = len(numbers) - len(set(numbers))
    say("")
    say(f"  orders sent           {shop.sent:>9,}")
    say(f"  acknowledged          {len(acknowledged):>9,}")
    say(f"  read back             {len(numbers):>9,}")
    say(f"  acknowledged and lost {lost:>9,}")
    say(f"  stored twice          {doubled:>9,}")
    say(f"  out of order          {breaks:>9,}")
    say("")
    say("  pieces sold: " + ", ".join(f"{name} {count:,}" for name, count in pieces.most_common()))
    return lost == doubled == breaks == 0 and len(acknowledged) == shop.sent


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--orders", type=int, default=200_000, help="how many (default 200,000)")
    count = parser.parse_args().orders
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        broker = Broker(Path(folder))
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
        admin.close()
        say(f"sending {count:,} orders, each acknowledged only when it is on disk ...")
        shop = Shop(broker.bootstrap, count)
        killed = False
        while shop.running:
            say(f"  {shop.sent:>9,} sent  {len(shop.acknowledged):>9,} acknowledged")
            if not killed and len(shop.acknowledged) > count // 3:
                killed = True
                say("  >>> kill -9, in the middle of it")
                broker.kill()
                broker.start()
            time.sleep(0.5)
        shop.finish()
        say("reading everything back ...")
        well = report(shop, *read_back(broker.bootstrap))
        broker.stop()
    say("  nothing was lost, nothing is there twice." if well else "  THIS SHOULD NOT HAPPEN")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
