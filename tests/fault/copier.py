"""One worker of the exactly-once test: consume, transform, produce, in transactions, until killed.

    python -m tests.fault.copier BOOTSTRAP TRANSACTIONAL_ID GROUP INPUT OUTPUT

Whatever goes wrong ends it; whoever started it starts another with the same transactional id.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.fault.killed_broker import CLIENT


def main() -> None:
    bootstrap, name, group, source, target = sys.argv[1:]
    base = CLIENT | {"bootstrap.servers": bootstrap}
    consumer = Consumer(
        base
        | {
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe([source])
    producer = Producer(base | {"transactional.id": name, "transaction.timeout.ms": 10_000})
    producer.init_transactions(30)
    while True:
        records = [r for r in consumer.consume(100, 0.2) if r.error() is None]
        if not records:
            continue
        producer.begin_transaction()
        ends: dict[int, int] = {}
        for record in records:
            producer.produce(target, record.value()[::-1], partition=record.partition())
            ends[record.partition()] = record.offset() + 1
        offsets = [TopicPartition(source, number, end) for number, end in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)


if __name__ == "__main__":
    main()
