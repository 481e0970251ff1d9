"""Sends the events of a day as they arrive, with an ordinary Kafka client."""

from __future__ import annotations

import threading
import time

from examples.shop.events import Event
from examples.shop.processes import Pipeline

from kafka import KafkaProducer


class Visitors:
    """A thread that begins when the pipeline is up, and remembers what was acknowledged."""

    def __init__(
        self, bootstrap: str, events: list[Event], speed: float, pipeline: Pipeline
    ) -> None:
        self._events = events
        self._speed = speed
        self._pipeline = pipeline
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=20,
            retries=1_000_000,
            delivery_timeout_ms=120_000,
        )
        self.sent = 0
        self.acknowledged: list[int] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def total(self) -> int:
        """How many events there will be."""
        return len(self._events)

    @property
    def share(self) -> float:
        """How much of the day has been sent."""
        return self.sent / self.total

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def finish(self) -> None:
        self._thread.join()
        self._producer.close()

    def _run(self) -> None:
        while self._pipeline.running and not self._pipeline.working:
            time.sleep(0.1)
        began = time.monotonic()
        for number, event in enumerate(self._events):
            wait = event.arrives / self._speed - (time.monotonic() - began)
            if wait > 0.001:
                time.sleep(wait)
            future = self._producer.send(event.topic, event.value(), event.key.encode())
            future.add_callback(lambda _, number=number: self.acknowledged.append(number))
            self.sent += 1
        self._producer.flush()
