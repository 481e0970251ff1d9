"""Reading records and applying each of them once.

The position in the database is the only one that counts: the one that is committed to the group is
for those who look at its lag. A member that has lost its partitions and does not know it yet does no
harm: it reads the position, locked, in the transaction in which it applies, and finds it moved.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from penstock.consume.positions import TABLE, Place, Positions, RecordsGoneError
from penstock.errors import PenstockError, UsageError

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.5
_ASK_SECONDS: Final = 30.0
# What the promise stands on; a setting that says otherwise is refused.
_FIXED: Final = {
    "enable.auto.commit": False,
    # Falling off the retained end must be an error and not a jump.
    "auto.offset.reset": "error",
}


def consume_into(
    connection: Any,
    topics: Iterable[str],
    apply: Callable[[Any, Any], None],
    *,
    name: str,
    settings: Mapping[str, Any],
    start: Literal["start", "end"] = "start",
    batch: int = 500,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Read topics and apply every record once, until `stop` says so.

    Args:
        connection: Of sqlite3 or psycopg; nobody else may use it meanwhile.
        topics: What to read.
        apply: Called with the connection and a record (confluent_kafka.Message), in a transaction
            that it must not end. If it raises, everything of this transaction is undone.
        name: Of the consumer; the group its instances share, and the key of its positions.
        settings: For confluent-kafka, `bootstrap.servers` at least.
        start: Where to start in a partition that was never read.
        batch: Records in one transaction, at most.
        stop: Asked after every transaction, and twice a second while there is nothing to read.

    Raises:
        RecordsGoneError: records were deleted before they could be applied.
        UsageError: a setting, or the connection, does not fit.
        PenstockError: the broker refused, or could not be reached.
    """
    reader = _Reader(Positions(connection, name), connection, apply)
    consumer = _connect(name, settings)
    with _translated(f"cannot consume as {name}"), contextlib.closing(consumer):
        reader.subscribe(consumer, list(topics), from_end=start == "end")
        while not stop():
            for place, messages in reader.sorted(consumer.consume(batch, _POLL_SECONDS)).items():
                reader.apply_all(place, messages)


@contextlib.contextmanager
def _translated(operation: str) -> Iterator[None]:
    import confluent_kafka  # noqa: PLC0415 -- an extra: penstock[consume]

    try:
        yield
    except confluent_kafka.KafkaException as error:
        raise PenstockError(operation, error.args[0].str()) from error


def _connect(name: str, settings: Mapping[str, Any]) -> Any:
    import confluent_kafka  # noqa: PLC0415 -- an extra: penstock[consume]

    operation = f"cannot start consumer {name}"
    for key, value in _FIXED.items():
        if settings.get(key, value) != value:
            raise UsageError(operation, f"{key} must be {value}", "leave it out")
    if "cooperative" in settings.get("partition.assignment.strategy", ""):
        raise UsageError(operation, "cooperative strategies are not supported", "use range")
    try:
        return confluent_kafka.Consumer({**settings, **_FIXED, "group.id": name})
    except confluent_kafka.KafkaException as error:
        raise UsageError(operation, str(error.args[0].str())) from error


class _Reader:
    """What is known of the partitions that this instance owns."""

    def __init__(
        self, positions: Positions, connection: Any, apply: Callable[[Any, Any], None]
    ) -> None:
        self._positions = positions
        self._connection = connection
        self._apply = apply
        self._consumer: Any = None
        self._from_end = False
        self._expected: dict[Place, int] = {}
        """The position that was stored when we last looked, of the partitions that are ours."""

    def subscribe(self, consumer: Any, topics: list[str], *, from_end: bool) -> None:
        """Join the group; partitions are entered when they are assigned."""
        self._consumer = consumer
        self._from_end = from_end
        consumer.subscribe(topics, on_assign=self._assigned)

    def sorted(self, messages: Iterable[Any]) -> dict[Place, list[Any]]:
        """Records by their partition, in order."""
        found: dict[Place, list[Any]] = {}
        for message in messages:
            if message.error():
                self._check(message)
            else:
                found.setdefault((message.topic(), message.partition()), []).append(message)
        return found

    def apply_all(self, place: Place, messages: list[Any]) -> None:
        """Apply what was not applied yet, and store that it was, in one transaction."""
        after = messages[-1].offset() + 1
        with self._positions.transaction(place) as stored:
            moved_back = stored < self._expected.get(place, stored)
            if not moved_back:
                for message in messages:
                    if message.offset() >= stored:
                        self._apply(self._connection, message)
                after = max(after, stored)
                self._positions.move(place, after)
        if moved_back:
            # Somebody wants records to be applied again; what we hold comes after those.
            _log.info("%s partition %d goes back to offset %d", *place, stored)
            with self._harmless("seek in a partition that may have gone to another"):
                self._consumer.seek(_partition(place, stored))
            after = stored
        self._expected[place] = after
        self._show(place, after)

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        for one in partitions:
            place = (one.topic, one.partition)
            low, high = consumer.get_watermark_offsets(one, _ASK_SECONDS)
            offset = self._positions.enter(place, high if self._from_end else low)
            _refuse_gone(place, offset, low, high)
            self._expected[place] = one.offset = offset
        consumer.assign(partitions)

    def _show(self, place: Place, offset: int) -> None:
        """Commit to the group as well: nothing depends on it, but it shows the lag."""
        with self._harmless("commit to the group"):
            self._consumer.commit(offsets=[_partition(place, offset)], asynchronous=True)

    @staticmethod
    @contextlib.contextmanager
    def _harmless(what: str) -> Iterator[None]:
        import confluent_kafka  # noqa: PLC0415 -- an extra: penstock[consume]

        try:
            yield
        except confluent_kafka.KafkaException as error:
            _log.info("cannot %s, which does no harm: %s", what, error)

    def _check(self, message: Any) -> None:
        """Raise what a message that is none stands for, unless the client goes on by itself."""
        import confluent_kafka  # noqa: PLC0415 -- an extra: penstock[consume]

        error, kinds = message.error(), confluent_kafka.KafkaError
        place = (message.topic(), message.partition())
        if error.code() in (kinds._PARTITION_EOF, kinds._MAX_POLL_EXCEEDED):
            return
        if error.code() == kinds._AUTO_OFFSET_RESET and place in self._expected:
            at = _partition(place, self._expected[place])
            _refuse_gone(place, at.offset, *self._consumer.get_watermark_offsets(at, _ASK_SECONDS))
        raise PenstockError(f"cannot read {place[0]} partition {place[1]}", error.str())


def _refuse_gone(place: Place, offset: int, low: int, high: int) -> None:
    topic, partition = place
    operation = f"cannot go on at offset {offset} of {topic} partition {partition}"
    remedy = f"decide where to go on, and set next_offset in {TABLE}"
    if offset < low:
        cause = (
            f"it starts at {low}: {low - offset:,} records were deleted before they were applied"
        )
        raise RecordsGoneError(operation, cause, remedy)
    if offset > high:
        cause = f"it ends at {high}: the topic was created anew, or lost records"
        raise RecordsGoneError(operation, cause, remedy)


def _partition(place: Place, offset: int) -> Any:
    import confluent_kafka  # noqa: PLC0415 -- an extra: penstock[consume]

    return confluent_kafka.TopicPartition(*place, offset)
