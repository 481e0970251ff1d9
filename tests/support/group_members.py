"""Members of a consumer group in a process of their own, which a test can stop or kill.

    python -m tests.support.group_members BOOTSTRAP GROUP TOPIC PROTOCOL COUNT JOURNAL

Each writes the values it gets to the journal before it commits. SIGTERM lets them leave.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import closing, suppress

from confluent_kafka import Consumer, KafkaException

SETTINGS: dict[str, dict[str, object]] = {
    "classic": {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500},
    "consumer": {"group.protocol": "consumer"},
}


def consume(
    bootstrap: str, group: str, topic: str, protocol: str, journal: int, stop: threading.Event
) -> None:
    config: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    with closing(Consumer(config | SETTINGS[protocol])) as consumer:
        consumer.subscribe([topic])
        while not stop.is_set():
            values = [m.value() for m in consumer.consume(50, 0.2) if m.error() is None]
            if values:
                os.write(journal, b"\n".join(values) + b"\n")
                # Refused when the group has gone on without us: somebody else gets them again.
                with suppress(KafkaException):
                    consumer.commit(asynchronous=False)


def main() -> None:
    bootstrap, group, topic, protocol, count, path = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    members = [
        threading.Thread(target=consume, args=(bootstrap, group, topic, protocol, journal, stop))
        for _ in range(int(count))
    ]
    for member in members:
        member.start()
    # Waiting in slices, because a thread that waits for another hears no signal.
    while any(member.is_alive() for member in members):
        for member in members:
            member.join(0.1)


if __name__ == "__main__":
    main()
