"""What brokers answered to records that they did not take.

kafka-python sends such records again until their time is up, and then says only that it is: not that
the disk is full, which the broker has told it all along. The answers are therefore looked at here on
their way to it; nothing is asked, and nothing is sent a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.client.connection import error_of_code, library, without_auto_create
from penstock.errors import PenstockError

_PRODUCE: Final = 0
_INIT_PRODUCER_ID: Final = 22


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer other than yes."""

    subject: str
    """What was refused: a partition, or the producer itself."""
    code: int
    message: str | None
    """In the broker's words; None where it has none."""

    def error(self, operation: str) -> PenstockError:
        """Our error for it, with Kafka's name for the code."""
        known = error_of_code(operation, self.code, self.message)
        name = library("kafka.errors").for_code(self.code).message
        cause = f"{self.subject} was refused with {name}: {known.cause}"
        return type(known)(operation, cause, known.remedy)


class Refusals:
    """The refusals that stand: those after which nothing else was heard of their subject."""

    def __init__(self) -> None:
        self._standing: dict[str, Refusal] = {}

    def client(self, **settings: Any) -> Any:
        """The network half of a producer, with its answers looked at."""
        client = without_auto_create(**settings)
        unwatched = client.send

        def send(node: Any, request: Any, **options: Any) -> Any:
            answered = unwatched(node, request, **options)
            if request.API_KEY in (_PRODUCE, _INIT_PRODUCER_ID):
                answered.add_callback(self._on_answer)
                answered.add_errback(self._on_lost)
            return answered

        client.send = send
        return client

    def first(self) -> Refusal | None:
        """The one that stands longest; None if there is none."""
        return next(iter(list(self._standing.values())), None)

    # Both run on the producer's own thread.

    def _on_answer(self, answer: Any) -> None:
        for refusal in _answers(answer):
            if refusal.code:
                self._standing[refusal.subject] = refusal
            else:
                self._standing.pop(refusal.subject, None)

    def _on_lost(self, _error: Exception) -> None:
        # The broker is gone, and what it said before is no longer the reason.
        self._standing.clear()


def _answers(answer: Any) -> Iterator[Refusal]:
    if answer.API_KEY == _INIT_PRODUCER_ID:
        yield Refusal("the producer", answer.error_code, None)
        return
    for topic in answer.responses:
        for one in topic.partition_responses:
            message = getattr(one, "error_message", None)
            yield Refusal(f"partition {one.index}", one.error_code, message)
